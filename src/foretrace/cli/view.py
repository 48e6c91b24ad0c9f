"""Open traces in the Perfetto UI (ui.perfetto.dev), from a server on this machine that nobody else can reach.

  foretrace view trace.json.gz                      opens the browser, ends once the UI has the trace
  foretrace view trace.json.gz --step '#3'          at a step; --finding 2, --event 153, --range 1.2ms:3.4ms likewise
  foretrace view trace.json.gz --add-findings       with foretrace's findings as tracks of their own
  foretrace view trace.json.gz --add-findings --predicted plan.json      and what was predicted beside what was measured
  foretrace view rank0.json.gz rank1.json.gz        a tab for each

Without a display, or over ssh, it prints the links and the ssh line that makes them work on your own machine. The
files go from this machine's disk to your browser's memory; nothing is uploaded. Only the UI may fetch them, under
paths that cannot be guessed. The UI connects to port 9001 alone.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli import flags
from foretrace.cli.files import check_sources, reading, target_of
from foretrace.cli.streams import say, to_stdout
from foretrace.errors import InputError
from foretrace.knowledge.perfetto import LOCAL_ACCESS_NOTE, LOOPBACK, PORT
from foretrace.model.sidefile import stem_of
from foretrace.model.words import bytes_of, count, first_of, time
from foretrace.report.text import clean

if TYPE_CHECKING:
    from foretrace.view.links import Window
    from foretrace.view.opening import OpenTrace

__all__ = ["add_arguments", "has_display", "run", "ssh_line"]

_TIMEOUT_S = 600
# Files named in one sentence.
_NAMED = 3
_SSH_PORT = "22"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace view``."""
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="a profiler trace, plain or gzip")
    place = parser.add_mutually_exclusive_group()
    flags.add_step(place, what="show this step")
    place.add_argument("--finding", type=flags.positive, metavar="N", help="show what a finding of explain rests on")
    place.add_argument("--event", type=_whole, metavar="N", help="show an event, by its number in reports")
    flags.add_range(place, what="show this stretch of time")
    flags.add(parser, "add_findings", action="store_true", help="open a copy with the findings as tracks of their own")
    parser.add_argument(
        "--predicted",
        metavar="FILE",
        help="with --add-findings: draw the kernels of this predicted timeline beside the measured ones",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="with --add-findings: keep the copy there")
    parser.add_argument("--force", action="store_true", help="replace FILE; open a trace too large for the UI")
    flags.add(parser, "no_browser", action="store_true", help="print the links, open nothing")
    parser.add_argument("--json", action="store_true", help="print the links as one line of JSON, open nothing")
    parser.add_argument("--port", type=_port, default=PORT, metavar="N", help=f"where to listen ({PORT})")
    parser.add_argument(
        "--timeout",
        type=flags.seconds,
        default=_TIMEOUT_S,
        metavar="S",
        help=f"give up after so many seconds without a request ({_TIMEOUT_S})",
    )


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of an event")
    return int(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is no port (0 to 65535; 0 takes a free one)")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Serve the traces until the UI has each of them; exit code 2 when it did not fetch them all."""
    from foretrace.view.links import perfetto_link
    from foretrace.view.opening import OpenTrace, refuse_large
    from foretrace.view.server import GRACE_S, TraceServer

    target = _check(args)
    with ExitStack() as stack:
        traces = [stack.enter_context(OpenTrace(path)) for path in args.traces]
        if not args.force:
            for trace in traces:
                refuse_large(trace)
        windows = [_window(args, path) for path in args.traces]
        if args.add_findings:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foretrace-view-")))
            copies = [_annotated(args, path, target, folder / str(i)) for i, path in enumerate(args.traces)]
            traces = [stack.enter_context(OpenTrace(copy)) for copy in copies]
            if not args.force:
                for trace in traces:
                    refuse_large(trace)
        here = has_display(os.environ, sys.platform)
        fetched = [False] * len(traces)

        def on_fetched(index: int) -> None:
            if not fetched[index]:
                say(f"{traces[index].path.name} was fetched ({bytes_of(traces[index].size)})")
            fetched[index] = True

        # A tunnel can lead from the port that the UI needs on the user's machine to any port of this one.
        seen_as = None if here else PORT
        server = stack.enter_context(TraceServer(traces, port=args.port, seen_as=seen_as, on_fetched=on_fetched))
        links = [perfetto_link(url, window=w) for url, w in zip(server.urls, windows, strict=True)]
        tunnel = None if here else ssh_line(server.port, os.environ)
        if here and server.port != PORT:
            say(f"the Perfetto UI connects to port {PORT} only; on port {server.port} it will say 'Failed to fetch'")
        if args.json:
            _print_json(args.traces, traces, links, server.urls, server.port, tunnel)
        else:
            _print(traces, links, server.port, tunnel)
            if here and not args.no_browser:
                _browse(links)
        missing = server.wait(timeout=args.timeout, grace=GRACE_S)
    if missing:
        names = first_of([clean(str(args.traces[i])) for i in missing], _NAMED)
        raise InputError(
            f"no request came for {time(args.timeout * 1e6)}, so the server ended; not fetched: {names}; run this "
            "again, with --timeout SECONDS for more time"
        )
    return 0


def _check(args: argparse.Namespace) -> Path | None:
    """The file to keep; raises `InputError` for flags that do not go together."""
    if "-" in args.traces:
        raise InputError("foretrace view serves files; save standard input to a file and name that")
    check_sources(args.traces)
    if args.predicted is not None and not args.add_findings:
        raise InputError("--predicted draws into the copy that --add-findings makes; give that as well")
    if args.output is not None and not args.add_findings:
        raise InputError("-o keeps the copy that --add-findings makes; give that as well")
    if args.output is not None and len(args.traces) > 1:
        raise InputError(f"-o names one file, and {len(args.traces)} traces were given; view them one by one")
    sources = [*args.traces, *([] if args.predicted is None else [args.predicted])]
    return target_of(args.output, force=args.force, sources=sources)


def _window(args: argparse.Namespace, path: str) -> Window | None:
    if args.step is None and args.finding is None and args.event is None and args.range is None:
        return None
    from foretrace.cli.explain import STEP_FLAG, read_and_explain
    from foretrace.trace import load
    from foretrace.trace.steps import select_steps
    from foretrace.view import places

    if args.finding is not None:
        explained = read_and_explain(path)
        window = places.finding_window(explained.trace, explained.report, args.finding)
    else:
        with reading([path]):
            trace = load(path)
        if args.step is not None:
            window = places.step_window(trace, select_steps(trace.steps, [args.step], what=STEP_FLAG))
        elif args.event is not None:
            window = places.event_window(trace, args.event)
        else:
            window = places.range_window(trace, *args.range)
    if window is None:
        say(f"{path}: the times of this file cannot be put into a link; it opens as a whole")
    return window


def _annotated(args: argparse.Namespace, path: str, target: Path | None, folder: Path) -> Path:
    from foretrace.view.annotate import write_annotated

    source = Path(path)
    if target is None:
        folder.mkdir()
        target = folder / f"{stem_of(source)}.findings.json.gz"
    written = write_annotated(source, target, force=args.force, predicted=args.predicted)
    if not written.is_relative_to(folder):
        say(f"wrote {written}")
    return written


def has_display(environ: Mapping[str, str], platform: str) -> bool:
    """Whether a browser opened here is in front of the user: there is a display, and the session came not by ssh."""
    if environ.get("SSH_CONNECTION"):
        return False
    windows_anyway = platform in ("win32", "darwin", "cygwin")
    return windows_anyway or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def ssh_line(port: int, environ: Mapping[str, str]) -> str:
    """What to run on the user's machine so that the UI there reaches ``port`` here, by the port it insists on.

    The host is the address by which this session was reached, or this machine's name.
    """
    import getpass

    words = environ.get("SSH_CONNECTION", "").split()
    host, ssh_port = (words[2], words[3]) if len(words) == 4 else (socket.gethostname(), _SSH_PORT)
    with suppress(KeyError, OSError, ImportError):  # a container's user may have no name; ssh then takes the caller's
        host = f"{getpass.getuser()}@{host}"
    other = [] if ssh_port == _SSH_PORT else ["-p", ssh_port]
    return shlex.join(["ssh", "-L", f"{PORT}:{LOOPBACK}:{port}", *other, host])


def _print(traces: Sequence[OpenTrace], links: Sequence[str], port: int, tunnel: str | None) -> None:
    lines: list[str] = []
    for trace, link in zip(traces, links, strict=True):
        lines += [f"{clean(trace.path.name)}  {bytes_of(trace.size)}", f"  {link}"]
    if tunnel:
        lines += ["", "On the machine with the browser, keep this running, then open the link there:", f"  {tunnel}"]
    until = "it is" if len(traces) == 1 else f"all {len(traces)} are"
    lines += ["", f"Serving on {LOOPBACK}:{port} until {until} fetched; Ctrl-C ends it. {LOCAL_ACCESS_NOTE}."]
    to_stdout("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))


def _print_json(
    paths: Sequence[str],
    traces: Sequence[OpenTrace],
    links: Sequence[str],
    urls: Sequence[str],
    port: int,
    tunnel: str | None,
) -> None:
    from foretrace.model.view import Viewed, ViewedTrace
    from foretrace.report.json import to_json

    served = [
        ViewedTrace(
            path=_text(path),
            copy=None if trace.path == Path(path) else _text(trace.path),
            bytes=trace.size,
            url=url,
            link=link,
        )
        for path, trace, url, link in zip(paths, traces, urls, links, strict=True)
    ]
    to_stdout(to_json(Viewed(port=port, ssh=tunnel, traces=served)))


def _text(path: str | Path) -> str:
    """A path as text, even where it is none on disk."""
    return os.fsencode(path).decode("utf-8", "replace")


def _browse(links: Sequence[str]) -> None:
    """Open each link in a tab; where there is no browser the printed links remain."""
    import webbrowser

    try:
        opened = [webbrowser.open_new_tab(link) for link in links]
    except (webbrowser.Error, OSError):
        opened = [False]
    if not all(opened):
        say(f"no browser could be opened; open the {'link' if len(links) == 1 else count(len(links), 'link')} yourself")
