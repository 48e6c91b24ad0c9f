"""What a recording's side file says of the device, for the snapshot that lies beside it."""

from __future__ import annotations

from pathlib import Path

from foretrace.model.sidefile import DeviceMemory, SideFile, read_side, traces_of_snapshot

__all__ = ["device_beside"]


def device_beside(path: str, device: int) -> DeviceMemory | None:
    """The device as it was when the snapshot was taken; None where no side file names this very snapshot.

    ``x.snapshot.pickle`` is looked for in ``x.trace.side.json`` and ``x.side.json``, which `foretrace run --memory`
    writes.
    """
    name = Path(path).name
    for trace in traces_of_snapshot(path):
        side = read_side(trace)
        if side is not None and side.memory is not None and side.memory.snapshot == name:
            return _device(side, device)
    return None


def _device(side: SideFile, device: int) -> DeviceMemory | None:
    found = side.memory.devices if side.memory is not None else []
    return next((one for one in found if one.index == device), None)
