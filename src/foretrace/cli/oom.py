"""Explain out-of-memory messages: why the request failed, whose memory it was, what helps and what cannot.

  foretrace oom crash.log                     every message in a log or traceback
  pbpaste | foretrace oom -                   from standard input (a terminal: paste, then Ctrl-D)
  foretrace oom crash.log --snapshot s.pickle the verdict held against an allocator snapshot
  foretrace oom crash.log --conf expandable_segments:True     what PYTORCH_ALLOC_CONF was
  foretrace oom crash.log --all               every remedy with its conditions, and what the message does not say
  foretrace oom crash.log --json              schema foretrace.oom/1

Reads the wordings of PyTorch since 1.13 for CUDA, ROCm, XPU, MPS and NPU, cudaMallocAsync's and vLLM's, in any log.
Nothing is read from this machine: neither its GPUs nor its environment have to be those of the message. Exit code 2
where there is no message.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli import flags
from foretrace.cli.files import check_sources, deliver, target_of, view_for
from foretrace.errors import InputError
from foretrace.knowledge.formats import GZIP_MAGIC
from foretrace.report.text import clean

if TYPE_CHECKING:
    from foretrace.memory.snapshot import Snapshot

__all__ = ["add_arguments", "run"]

# More than any log a person pastes; what is larger is some other file, or needs cutting first.
_MOST_BYTES = 256 << 20
# Packed by the logger, by a server, by a careless copy: more layers than this are no accident.
_LAYERS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace oom``."""
    parser.add_argument("text", metavar="FILE", help="a text with the message anywhere in it, or - for standard input")
    flags.add_output(parser, json="the whole document as one line of JSON")
    parser.add_argument("--snapshot", metavar="FILE", help="an allocator snapshot of the process that failed")
    parser.add_argument("--conf", metavar="OPTIONS", help="what PYTORCH_ALLOC_CONF (or PYTORCH_CUDA_ALLOC_CONF) was")
    parser.add_argument("--torch", metavar="VERSION", help="PyTorch's version, where the advice depends on it")
    flags.add_rows(parser, everything="every remedy, condition and reason")


def run(args: argparse.Namespace) -> int:
    """Explain every message of the text; exit code 0. Raises `InputError` where there is none."""
    from foretrace.memory.oom.explain import explain_text
    from foretrace.memory.oom.settings import read_conf, read_version

    sources = [args.text, *([args.snapshot] if args.snapshot is not None else [])]
    check_sources(sources)
    target = None if args.output == "-" else target_of(args.output, force=args.force, sources=sources)
    conf = None if args.conf is None else read_conf(args.conf)
    version = None if args.torch is None else read_version(args.torch)
    text = _read(args.text)
    oom = explain_text(text, path=args.text, conf=conf, version=version, snapshot=_snapshot(args.snapshot))
    if args.json:
        from foretrace.report.json import to_json

        content = to_json(oom)
    else:
        from foretrace.report.oom import render_oom

        view = view_for(target, everything=args.everything, top=args.top)
        content = render_oom(oom, view).encode("utf-8", "replace")
    deliver(content, target, force=args.force)
    return 0


def _snapshot(path: str | None) -> Snapshot | None:
    if path is None:
        return None
    from foretrace.memory.reading import read_snapshot

    return read_snapshot(path)


def _read(path: str) -> str:
    """The text of a file, packed with gzip or not, whatever its encoding; bytes that are no text are replaced."""
    raw = _bytes(path)
    layers = 0
    while raw.startswith(GZIP_MAGIC) and layers < _LAYERS:
        raw = _unpacked(raw, path)
        layers += 1
    if len(raw) > _MOST_BYTES:
        raise InputError(f"{_name(path)} is larger than {_MOST_BYTES >> 20} MiB; cut out the part with the message")
    if not raw.strip(b"\0 \t\r\n"):
        raise InputError(f"{_name(path)} is empty; it should hold the text of an out-of-memory error")
    # PowerShell writes what is redirected in UTF-16.
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")):
        if raw.startswith(mark):
            return raw.decode(encoding, "replace")
    return raw.decode("utf-8", "replace")


def _unpacked(raw: bytes, path: str) -> bytes:
    """All members of a gzip file, up to one byte more than is read; of one that is cut off, what is there."""
    parts: list[bytes] = []
    size = 0
    while raw.startswith(GZIP_MAGIC) and size <= _MOST_BYTES:
        inflater = zlib.decompressobj(wbits=31)
        try:
            parts.append(inflater.decompress(raw, _MOST_BYTES + 1 - size))
        except zlib.error:
            if size == 0:
                raise InputError(f"{_name(path)} is a damaged gzip file; copy it again") from None
            break
        size += len(parts[-1])
        if not inflater.eof:
            break
        raw = inflater.unused_data
    return b"".join(parts)


def _bytes(path: str) -> bytes:
    if path == "-":
        buffer = getattr(sys.stdin, "buffer", None)
        return buffer.read(_MOST_BYTES + 1) if buffer is not None else sys.stdin.read().encode("utf-8", "replace")
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_BYTES + 1)
    except IsADirectoryError:
        raise InputError(f"{clean(path)} is a folder; name a file with the message in it") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{clean(path)} cannot be read: {why}") from None


def _name(path: str) -> str:
    return "standard input" if path == "-" else clean(path)
