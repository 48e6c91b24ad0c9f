"""Launches that share a correlation id: which of them put a GPU row on its stream.

Files of several ranks merged into one hold the same ids once a process. A GPU row names its device, not its process,
so that which process drives which device is learned first; within a process the nearest earlier launch is taken.
Everything is a sort or a search, so that a file in which all ids are equal costs no more than any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.thresholds import DRIVES_DEVICE, DRIVES_DEVICE_BY_TIME

if TYPE_CHECKING:
    from foretrace.trace.table import Trace

__all__ = ["choose_launches"]

Int64 = NDArray[np.int64]


def choose_launches(trace: Trace, gpu: Int64, calls: Int64) -> tuple[Int64, int]:
    """The launch of each GPU row, and for how many rows it had to be guessed.

    ``gpu`` and ``calls`` are row numbers with a correlation id; every GPU row has at least one call of its id.
    """
    ids, group = np.unique(trace.correlation[calls], return_inverse=True)
    order = np.lexsort((trace.start[calls], group))
    calls, group = calls[order], group[order]
    row_group = np.searchsorted(ids, trace.correlation[gpu])
    launch, several = _nearest(trace, gpu, row_group, calls, group)
    if not several.any():
        return launch, 0
    pids: dict[int | str, int] = {}
    process_of_lane = np.array([pids.setdefault(lane.pid, len(pids)) for lane in trace.lanes], dtype=np.int64)
    present, process = np.unique(process_of_lane[trace.lane[calls]], return_inverse=True)
    if len(present) == 1:
        return launch, int(several.sum())
    # Where a merging tool made the devices different it did so in the process column; else the device tells.
    place = process_of_lane[trace.lane[gpu]] * 2**32 + trace.device[gpu] + 1
    places, at = np.unique(place, return_inverse=True)
    only, alone = _votes(trace, gpu, row_group, calls, group, process)
    owner = _owners(at, len(places), only, alone, len(present))[at]
    pairs, pair = np.unique(group * len(present) + process, return_inverse=True)
    wanted = row_group * len(present) + owner
    found = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    own = np.flatnonzero(several & (owner >= 0) & (pairs[found] == wanted))
    if len(own):
        order = np.lexsort((trace.start[calls], pair))
        launch[own], several[own] = _nearest(trace, gpu[own], found[own], calls[order], pair[order])
    return launch, int(several.sum())


def _nearest(trace: Trace, gpu: Int64, row_group: Int64, calls: Int64, group: Int64) -> tuple[Int64, NDArray[np.bool_]]:
    """The last call of each row's group that starts before the row, else the first; whether there are several.

    ``calls`` is sorted by group and start.
    """
    first = np.searchsorted(group, row_group, side="left")
    last = np.searchsorted(group, row_group, side="right")
    # Calls and rows in one order of (group, start), calls first: the calls passed so far are those before a row.
    both = np.lexsort(
        (
            np.repeat((0, 1), (len(calls), len(gpu))),
            np.concatenate((trace.start[calls], trace.start[gpu])),
            np.concatenate((group, row_group)),
        )
    )
    is_call = both < len(calls)
    passed = np.cumsum(is_call)
    before = np.empty(len(gpu), dtype=np.int64)
    before[both[~is_call] - len(calls)] = passed[~is_call]
    return calls[np.maximum(before - 1, first)], last - first > 1


def _votes(
    trace: Trace, gpu: Int64, row_group: Int64, calls: Int64, group: Int64, process: Int64
) -> tuple[Int64, Int64]:
    """What each row says about its process (-1: nothing).

    The first array: the only process that has its id; the second: the only one whose launch came before the row.
    """
    # The earliest call of each process in each group, by group and start.
    order = np.lexsort((trace.start[calls], process, group))
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (np.diff(group[order]) != 0) | (np.diff(process[order]) != 0)
    order = order[new]
    order = order[np.lexsort((trace.start[calls[order]], group[order]))]
    start, first_group, one = trace.start[calls[order]], group[order], process[order]
    first = np.searchsorted(first_group, row_group, side="left")
    only = np.searchsorted(first_group, row_group, side="right") - first == 1
    second = np.minimum(first + 1, len(order) - 1)
    moment = trace.start[gpu]
    alone = ~only & (start[first] <= moment) & (start[second] > moment)
    return np.where(only, one[first], -1), np.where(alone, one[first], -1)


def _owners(at: Int64, places: int, only: Int64, alone: Int64, processes: int) -> Int64:
    """The process that drives each place, -1 where that cannot be told; ``at`` is the place of each row."""
    owner = np.full(places, -1, dtype=np.int64)
    rows = np.bincount(at, minlength=places)
    certain = np.bincount(at[only >= 0], minlength=places)
    for votes, enough in ((alone, DRIVES_DEVICE_BY_TIME * (rows - certain)), (only, DRIVES_DEVICE * certain)):
        pairs, counts = np.unique((at * processes + votes)[votes >= 0], return_counts=True)
        place, one = pairs // processes, pairs % processes
        # A place whose rows with a certain process disagree has no owner, whatever the times say.
        won = (counts > enough[place]) & ((certain[place] == 0) | (votes is only))
        owner[place[won]] = one[won]
    unknown = np.flatnonzero((owner < 0) & (certain == 0))
    left = set(range(processes)) - set(owner.tolist())
    if len(unknown) == 1 and (owner < 0).sum() == 1 and places > 1 and len(left) == 1:
        owner[unknown] = left.pop()  # the one device left belongs to the one process without a device
    return owner
