"""Writing whole files: nothing but a regular file is ever replaced."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from foretrace.capture import files
from foretrace.capture.files import Rows
from foretrace.errors import InputError
from foretrace.memory.reading.convert import convert
from foretrace.model.baseline import SCHEMA, Baseline, MadeOn, write_baseline
from foretrace.model.sidefile import SideFile, side_path, write_side
from foretrace.model.whole import special_file, write_whole
from foretrace.trace.writer import refuse_taken, write_bytes


def pipe(folder: Path) -> Path:
    path = folder / "there.json"
    os.mkfifo(path)
    return path


def bound_socket(folder: Path) -> Path:
    path = folder / "there.json"
    here = Path.cwd()
    os.chdir(folder)  # a socket's path may be 107 bytes long, which a temporary folder's may exceed
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)
    return path


def link_to_a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "behind")
    path = folder / "there.json"
    path.symlink_to("behind")
    return path


SPECIAL = {"pipe": pipe, "socket": bound_socket, "link": link_to_a_pipe}


@pytest.fixture(params=list(SPECIAL))
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return SPECIAL[request.param](tmp_path)


@pytest.mark.parametrize("force", [False, True], ids=["kept", "forced"])
def test_what_is_no_regular_file_is_refused_and_stays(special: Path, force: bool) -> None:
    before = special.lstat()
    with pytest.raises(InputError, match=r"there.json is a (named pipe|socket), no regular file") as refused:
        write_bytes(special, [b"{}"], force=force)
    assert "--force" not in str(refused.value)
    assert special.lstat() == before
    assert not [path for path in special.parent.iterdir() if path.suffix == ".tmp"]


def test_a_device_is_refused_whatever_is_asked() -> None:
    # Only looked at: what would write is not called.
    with pytest.raises(InputError, match="/dev/null is a device, no regular file"):
        refuse_taken(Path("/dev/null"), force=True)


def test_a_link_of_the_system_is_none_to_replace_although_it_leads_to_a_file() -> None:
    if not Path("/dev/stdout").is_symlink():
        pytest.skip("the system has no such link")
    assert special_file(Path("/dev/stdout")) is not None


def test_a_pipe_that_appears_while_writing_stays(tmp_path: Path) -> None:
    def pieces():  # type: ignore[no-untyped-def]
        yield b"{}"
        os.mkfifo(tmp_path / "late.json")

    with pytest.raises(InputError, match="is a named pipe"):
        write_bytes(tmp_path / "late.json", pieces(), force=True)
    assert stat.S_ISFIFO((tmp_path / "late.json").stat().st_mode)


def test_a_link_that_points_nowhere_is_taken_as_well(tmp_path: Path) -> None:
    link = tmp_path / "there.json"
    link.symlink_to("nowhere")
    with pytest.raises(InputError, match="exists; choose another name"):
        write_bytes(link, [b"{}"])
    assert link.is_symlink()


def baseline(path: Path) -> None:
    made = MadeOn(torch=None, gpu=None, dtypes=[])
    write_baseline(path, Baseline(schema=SCHEMA, test="t", made_on=made, parts=[]))


def converted(path: Path) -> None:
    convert(path.parent / "none.pickle", path, force=True)


WRITERS: dict[str, Callable[[Path], object]] = {
    "whole": lambda path: write_whole(path, b"{}"),
    "baseline": baseline,
    "convert": converted,
    "recording": lambda path: files.target(path, force=True),
}


@pytest.mark.parametrize("writer", list(WRITERS))
def test_every_writer_leaves_it_alone(special: Path, writer: str) -> None:
    before = special.lstat()
    with pytest.raises((OSError, InputError), match="no regular file"):
        WRITERS[writer](special)
    assert special.lstat() == before


def test_a_side_file_does_not_take_the_place_of_a_pipe(tmp_path: Path) -> None:
    trace = tmp_path / "t.trace.json"
    os.mkfifo(side_path(trace))
    with pytest.raises(OSError, match="it is a named pipe"):
        write_side(trace, SideFile())
    assert stat.S_ISFIFO(side_path(trace).stat().st_mode)


def test_a_recording_goes_beside_a_pipe_that_appeared_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "t.trace.json"

    def export(plain: Path) -> None:
        plain.write_text('{"traceEvents": []}')
        os.mkfifo(path)

    def accept(_: Rows) -> bool:
        return True

    written, _ = files.write_trace(export, path, accept=accept)
    assert written.name == "t.2.trace.json"
    assert stat.S_ISFIFO(path.stat().st_mode)
