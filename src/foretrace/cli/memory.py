"""Read what the CUDA allocator held: where memory is, what pins it, and whether a request would succeed.

  foretrace memory snapshot.pickle                      one screen (torch.cuda.memory._dump_snapshot)
  foretrace memory snapshot.pickle --request 200MiB     would this allocation succeed now, from where, or why not
  foretrace memory snapshot.pickle --request 2GiB --device-free 10GiB --fail       the same as a gate, for CI
  foretrace memory snapshot.pickle --map                a row a segment: held, pending, holes, free
  foretrace memory snapshot.pickle --html report.html   also one page: every segment and block, to zoom and search
  foretrace memory snapshot.pickle --json               schema foretrace.memory/1
  foretrace memory summary.txt                          memory_summary(), memory_stats(), a raw memory timeline
  foretrace memory convert snapshot.pickle --protocol 4 -o viewable.pickle      for viewers that refuse protocol 5

A snapshot is read as data only: no code in it runs. Needs no torch. How to record one: foretrace run … --memory, or
torch.cuda.memory._record_memory_history() before the model is made and _dump_snapshot() at the end. Sizes are
written 200MiB, 1.5GiB, 2GB, or in bytes. What the device has free is not in a snapshot: --device-free says it.
"""

from __future__ import annotations

import argparse
import re
from fractions import Fraction
from pathlib import Path

from foretrace.cli import flags
from foretrace.cli.files import check_sources, deliver, output_of, page_target, progress_of, target_of, view_for, write
from foretrace.cli.streams import say
from foretrace.errors import InputError

__all__ = ["add_arguments", "run"]

_CONVERT = "convert"
# What is of the screen and the document alone.
_OF_SCREENS = {
    "json": "json", "map": "map", "request": "request", "fail": "fail", "stream": "stream", "pool": "pool",
    "device": "device", "device-free": "device_free", "device-total": "device_total", "limit": "limit", "top": "top",
    "all": "everything", "html": "html",
}  # fmt: skip
_PROTOCOL = 4  # the newest that every viewer reads
_DIGITS = re.compile(r"[0-9]{1,30}(\.[0-9]{1,30})?")
_UNITS = {
    "": 1, "b": 1,
    "k": 1 << 10, "kib": 1 << 10, "kb": 1000,
    "m": 1 << 20, "mib": 1 << 20, "mb": 1000**2,
    "g": 1 << 30, "gib": 1 << 30, "gb": 1000**3,
    "t": 1 << 40, "tib": 1 << 40, "tb": 1000**4,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace memory``."""
    parser.add_argument(
        "words", nargs="+", metavar="SNAPSHOT", help="the file, or - for standard input; convert FILE writes it anew"
    )
    flags.add_output(parser, json="the whole document as one line of JSON")
    parser.add_argument("--request", type=size, metavar="SIZE", help="would an allocation of this size succeed now")
    parser.add_argument("--stream", type=whole, metavar="N", help="the stream of the request (the busiest)")
    parser.add_argument("--pool", type=pool, metavar="A.B", help="the pool of the request (0.0, ordinary tensors)")
    parser.add_argument("--device", type=whole, metavar="N", help="the device (the one with most reserved)")
    flags.add(parser, "device_free", type=size, metavar="SIZE", help="what the device has free (nvidia-smi)")
    flags.add(parser, "device_total", type=size, metavar="SIZE", help="the device's memory")
    parser.add_argument(
        "--limit", type=size, metavar="SIZE", help="the process's limit (set_per_process_memory_fraction)"
    )
    parser.add_argument("--fail", action="store_true", help="exit code 1 unless the request would succeed")
    parser.add_argument("--map", action="store_true", help="draw the segments instead of what pins them and the peak")
    parser.add_argument("--protocol", type=int, choices=range(6), help="of convert: the pickle protocol (4)")
    flags.add_html(parser, what="the memory and a map of its segments")
    flags.add_rows(parser, everything="every row, every segment")


def size(text: str) -> int:
    """Bytes of ``200MiB``, ``1.5 GiB``, ``2GB`` (decimal) or ``4096``, as the type of a flag."""
    number = text.strip().lower().replace(" ", "")
    digits = number.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = _UNITS.get(number[len(digits) :])
    if unit is None or not _DIGITS.fullmatch(digits):
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 200MiB, 1.5GiB, 2GB, or bytes")
    # Exact: a float would round from 2**53 on.
    value = round(Fraction(digits) * unit)
    if value >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no size a device could have")
    return value


def whole(text: str) -> int:
    """A whole number, not negative, decimal or 0x…, as the type of a flag."""
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return value


def pool(text: str) -> tuple[int, int]:
    """A pool as the map shows it, ``0.1``, as the type of a flag."""
    from foretrace.memory.pools import pool_of

    try:
        return pool_of(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    """Read one file and say what it holds; or write a snapshot anew."""
    if args.words[0] == _CONVERT and len(args.words) == 2 and not Path(_CONVERT).exists():
        return _convert(args, args.words[1])
    if args.protocol is not None:
        raise InputError("--protocol is of convert: foretrace memory convert FILE -o NEW --protocol N")
    if len(args.words) != 1:
        raise InputError(
            "foretrace memory reads one file at a time; to write one anew: foretrace memory convert FILE -o NEW"
        )
    path: str = args.words[0]
    if args.fail and args.request is None:
        raise InputError("--fail is about a request: give --request SIZE as well")
    check_sources([path])
    target = output_of(args, [path])
    page = page_target(args.html, force=args.force, sources=[path], beside=target)
    from foretrace.memory.examining import examine_file

    with progress_of(path) as progress:
        memory = examine_file(
            path,
            device=args.device,
            request_bytes=args.request,
            stream=args.stream,
            pool=args.pool,
            device_free_bytes=args.device_free,
            device_total_bytes=args.device_total,
            limit_bytes=args.limit,
            progress=progress,
        )
    if args.json:
        from foretrace.report.json import to_json

        content = to_json(memory)
    else:
        from foretrace.report.memory import render_memory

        view = view_for(target, everything=args.everything, top=args.top)
        content = render_memory(memory, view, segments=args.map).encode("utf-8", "replace")
    deliver(content, target, force=args.force)
    if page is not None:
        from foretrace.memory.drawn import drawn_of_memory
        from foretrace.report.html.memory import memory_page

        write(page, memory_page(memory, drawn_of_memory(memory)), force=args.force)
    return 1 if args.fail and (memory.request is None or memory.request.succeeds is not True) else 0


def _convert(args: argparse.Namespace, path: str) -> int:
    said = [f"--{flag}" for flag, name in _OF_SCREENS.items() if getattr(args, name) not in (None, False)]
    if said:
        raise InputError(f"convert writes the file anew and says nothing of it: leave {', '.join(said)} out")
    protocol = _PROTOCOL if args.protocol is None else args.protocol
    check_sources([path])
    target = target_of(args.output, force=args.force, sources=[path])
    if target is None:
        raise InputError("convert writes a file: name it with -o NEW.pickle")
    from foretrace.memory.reading.convert import convert

    convert(path, target, protocol=protocol, force=args.force)
    say(f"wrote {target} (pickle protocol {protocol})")
    return 0
