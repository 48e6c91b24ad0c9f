"""``foretrace view``: what it prints, opens, refuses, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import queue
import shlex
import signal
import socket
import subprocess
import sys
import threading
import types
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

import foretrace
from foretrace.cli import main, view
from foretrace.knowledge.perfetto import UI_ORIGIN, UI_TRACE_LINK
from foretrace.view import opening

SAMPLE = str(Path(foretrace.__file__).parent / "cli" / "samples" / "h200_mlp_eager.trace.json.gz")
ENOUGH_S = 20.0
SSH = "10.0.0.9 50000 10.0.0.2 22"


@pytest.fixture(autouse=True)
def display(monkeypatch: pytest.MonkeyPatch) -> None:
    """A desktop, whatever machine the tests run on."""
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[queue.Queue[str]]:
    """The links that a browser was asked to open; it fetches the traces behind them."""
    links: queue.Queue[str] = queue.Queue()
    threads: list[threading.Thread] = []

    def open_new_tab(link: str) -> bool:
        links.put(link)
        threads.append(threading.Thread(target=fetch, args=(arguments(link)["url"],)))
        threads[-1].start()
        return True

    monkeypatch.setattr(webbrowser, "open_new_tab", open_new_tab)
    monkeypatch.setattr("foretrace.view.server.GRACE_S", 0.05)
    yield links
    for thread in threads:
        thread.join(ENOUGH_S)


def fetch(url: str, port: int | None = None) -> bytes:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", port or parts.port, timeout=ENOUGH_S)
    connection.request("GET", parts.path, headers={"Origin": UI_ORIGIN, "Host": parts.netloc})
    body = connection.getresponse().read()
    connection.close()
    return body


def arguments(link: str) -> dict[str, str]:
    assert link.startswith(UI_TRACE_LINK)
    return dict(parse_qsl(link.removeprefix(UI_TRACE_LINK), strict_parsing=True))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["view", "--port", "0", *words]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    return sentence


# ---- opening


def test_the_browser_opens_and_the_command_ends(opened: queue.Queue[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", SAMPLE, "--port", "0"]) == 0
    link = opened.get_nowait()
    out, err = capsys.readouterr()
    assert link in out
    assert "ssh" not in out
    assert "h200_mlp_eager.trace.json.gz was fetched (7.33 kB)" in err
    assert set(arguments(link)) == {"url"}


def test_several_traces_get_a_tab_each(opened: queue.Queue[str]) -> None:
    assert main(["view", SAMPLE, SAMPLE, "--port", "0"]) == 0
    assert opened.get_nowait() != opened.get_nowait()


@pytest.mark.parametrize(
    "place",
    [
        ["--step", "#3"],
        ["--step", "1"],
        ["--finding", "1"],
        ["--event", "153"],
        ["--range", "1.5ms:1.6ms"],
        ["--range", "1.5ms:"],
    ],
    ids=lambda words: words[0] + words[1],
)
def test_a_place_is_in_the_link(opened: queue.Queue[str], place: list[str]) -> None:
    assert main(["view", SAMPLE, "--port", "0", *place]) == 0
    found = arguments(opened.get_nowait())
    assert int(found["visStart"]) < int(found["visEnd"])
    assert ("ts" in found) == (place[0] != "--range")


def test_a_label_and_a_position_are_the_same_step(opened: queue.Queue[str]) -> None:
    for step in ("#3", "ProfilerStep#3", "1"):
        assert main(["view", SAMPLE, "--port", "0", "--step", step]) == 0
    first, *others = [{k: v for k, v in arguments(opened.get_nowait()).items() if k != "url"} for _ in range(3)]
    assert others == [first, first]


def test_without_a_browser_the_links_remain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open_new_tab", lambda _: False)
    assert main(["view", SAMPLE, "--port", "0", "--timeout", "0.05"]) == 2
    out, err = capsys.readouterr()
    assert UI_TRACE_LINK in out
    assert "no browser could be opened; open the link yourself" in err
    assert "no request came for 50.0 ms, so the server ended; not fetched: /" in err


@pytest.mark.parametrize("words", [["--no-browser"], ["--no_browser"], ["--json"]])
def test_nothing_is_opened_where_nothing_is_to_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open_new_tab", lambda _: pytest.fail("a browser was opened"))
    assert main(["view", SAMPLE, "--port", "0", "--timeout", "0.05", *words]) == 2
    assert "ui.perfetto.dev" in capsys.readouterr().out


# ---- over ssh


def test_over_ssh_it_prints_the_tunnel_and_links_to_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", SSH)
    monkeypatch.setattr(webbrowser, "open_new_tab", lambda _: pytest.fail("a browser was opened"))
    assert main(["view", SAMPLE, "--port", "0", "--timeout", "0.05"]) == 2
    out = capsys.readouterr().out
    (line,) = [line.strip() for line in out.splitlines() if line.strip().startswith("ssh ")]
    port = int(shlex.split(line)[2].rpartition(":")[2])
    assert port != 9001
    assert f"ssh -L 9001:127.0.0.1:{port} " in line
    assert line.endswith("@10.0.0.2")
    assert "url=http%3A%2F%2F127.0.0.1%3A9001%2F" in out


@pytest.mark.parametrize(
    ("connection", "ends"),
    [
        (SSH, ["me@10.0.0.2"]),
        ("10.0.0.9 50000 10.0.0.2 2222", ["-p", "2222", "me@10.0.0.2"]),
        ("fe80::1%eth0 1 fe80::2%eth0 22", ["me@fe80::2%eth0"]),
        ("", ["me@box; rm -rf"]),
        ("nonsense", ["me@box; rm -rf"]),
    ],
    ids=["plain", "another port", "IPv6", "no ssh", "nonsense"],
)
def test_the_ssh_line_is_one_that_a_shell_takes(
    monkeypatch: pytest.MonkeyPatch, connection: str, ends: list[str]
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    monkeypatch.setattr(socket, "gethostname", lambda: "box; rm -rf")
    line = view.ssh_line(9001, {"SSH_CONNECTION": connection})
    assert shlex.split(line) == ["ssh", "-L", "9001:127.0.0.1:9001", *ends]


def test_a_user_without_a_name_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert view.ssh_line(9001, {"SSH_CONNECTION": SSH}).endswith(" 10.0.0.2")


@pytest.mark.parametrize(
    ("environ", "platform", "there"),
    [
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"DISPLAY": ""}, "linux", False),
        ({}, "linux", False),
        ({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": SSH}, "linux", False),
        ({}, "darwin", True),
        ({"SSH_CONNECTION": SSH}, "darwin", False),
        ({}, "win32", True),
    ],
)
def test_where_a_display_is(environ: dict[str, str], platform: str, there: bool) -> None:
    assert view.has_display(environ, platform) is there


# ---- as a program


def started(*words: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "foretrace", "view", "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )


def test_json_is_there_before_anything_is_served() -> None:
    with started(SAMPLE, "--json", "--event", "153", SSH_CONNECTION=SSH) as process:
        assert process.stdout is not None
        document = json.loads(process.stdout.readline())
        assert document["schema"] == "foretrace.view/1"
        assert document["ssh"].endswith("@10.0.0.2")
        (trace,) = document["traces"]
        assert trace["path"] == SAMPLE
        assert trace["copy"] is None
        assert trace["bytes"] == Path(SAMPLE).stat().st_size
        assert arguments(trace["link"])["url"] == trace["url"]
        assert fetch(trace["url"], document["port"]) == Path(SAMPLE).read_bytes()
        out, err = process.communicate(timeout=ENOUGH_S)
    assert process.returncode == 0
    assert out == ""
    assert "was fetched" in err


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for another process")
def test_ctrl_c_ends_it_as_it_ends_every_command() -> None:
    with started(SAMPLE, "--json") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=ENOUGH_S)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "foretrace: interrupted"
    assert "Traceback" not in err


# ---- what it refuses


def test_a_taken_port_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert main(["view", SAMPLE, "--port", str(other.getsockname()[1])]) == 2
    assert "is taken" in capsys.readouterr().err


def test_another_port_is_said_not_to_work(opened: queue.Queue[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", SAMPLE, "--port", "0"]) == 0
    assert "the Perfetto UI connects to port 9001 only" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-"], "save standard input to a file"),
        ([""], "an empty path"),
        (["missing.json"], "no such file"),
        (["."], "is a directory"),
        ([SAMPLE, "--step", "#9"], "there is no step '#9'; --step takes a position or a label, of: 0"),
        ([SAMPLE, "--finding", "99"], "has no finding 99"),
        ([SAMPLE, "--event", "99999999"], "does not exist"),
        ([SAMPLE, "--range", "1s:2s"], "the range begins at 1.00 s, after"),
        ([SAMPLE, "-o", "x.json"], "-o keeps the copy that --add-findings makes"),
        ([SAMPLE, SAMPLE, "--add-findings", "-o", "x.json"], "view them one by one"),
        ([SAMPLE, "--add-findings", "-o", SAMPLE], "is a file that is read here"),
        ([SAMPLE, "--predicted", SAMPLE], "--predicted draws into the copy that --add-findings makes"),
        ([SAMPLE, "--add-findings", "--predicted", SAMPLE], "is no predicted timeline"),
    ],
    ids=lambda value: " ".join(value).replace(SAMPLE, "T") or "empty" if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_a_sentence(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert says in refused(capsys, *words)


@pytest.mark.parametrize(
    "words",
    [
        ["--step", "0", "--event", "1"],
        ["--finding", "0"],
        ["--event", "-1"],
        ["--event", "²"],
        ["--range", "1ms"],
        ["--range", "2ms:1ms"],
        ["--range", "1ms:1ms"],
        ["--range", "1ms:1h"],
        ["--range", "nan:inf"],
        ["--range", f"1:{'9' * 400}"],
        ["--port", "65536"],
        ["--port", "-1"],
        ["--timeout", "0"],
        ["--timeout", "nan"],
        ["--timeout", "1e9"],
    ],
    ids=lambda words: " ".join(words)[:24],
)
def test_flags_are_checked_by_the_parser(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["view", SAMPLE, *words])
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


# ---- too large


def test_a_trace_too_large_for_the_ui_is_not_opened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], opened: queue.Queue[str]
) -> None:
    limited = opening.refuse_large
    monkeypatch.setattr(opening, "refuse_large", lambda trace: limited(trace, limit=1000))
    sentence = refused(capsys, SAMPLE)
    assert "foretrace slim" in sentence
    assert "trace_processor --httpd" in sentence
    assert main(["view", SAMPLE, "--port", "0", "--force"]) == 0
    assert opened.get_nowait()


# ---- with findings


@pytest.fixture
def annotating(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stands for the room that writes the copy: it adds a key to the document."""
    written: list[Path] = []

    def write_annotated(source: Path, target: Path, *, force: bool = False, predicted: str | None = None) -> Path:
        from foretrace.trace.source import read_source
        from foretrace.trace.writer import write_bytes

        written.append(write_bytes(target, [read_source(source).text, b"\n"], force=force))
        return target

    monkeypatch.setitem(
        sys.modules,
        "foretrace.view.annotate",
        types.SimpleNamespace(write_annotated=write_annotated),  # type: ignore[arg-type]
    )
    return written


def test_a_copy_with_findings_lives_as_long_as_the_server(opened: queue.Queue[str], annotating: list[Path]) -> None:
    assert main(["view", SAMPLE, SAMPLE, "--port", "0", "--add-findings", "--step", "0"]) == 0
    assert [path.name for path in annotating] == ["h200_mlp_eager.findings.json.gz"] * 2
    assert not any(path.parent.parent.exists() for path in annotating)
    found = arguments(opened.get_nowait())
    assert found["url"].endswith("/h200_mlp_eager.findings.json.gz")
    assert "visStart" in found


def test_json_names_the_file_that_was_asked_for_and_the_copy(
    annotating: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", SAMPLE, "--port", "0", "--add-findings", "--json", "--timeout", "0.05"]) == 2
    (trace,) = json.loads(capsys.readouterr().out)["traces"]
    assert trace["path"] == SAMPLE
    assert trace["copy"] == str(annotating[0])


def test_a_copy_can_be_kept(
    tmp_path: Path, opened: queue.Queue[str], annotating: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json.gz"
    assert main(["view", SAMPLE, "--port", "0", "--add-findings", "-o", str(kept)]) == 0
    assert kept.is_file()
    assert f"wrote {kept}" in capsys.readouterr().err
    assert "exists" in refused(capsys, SAMPLE, "--add-findings", "-o", str(kept))
    assert main(["view", SAMPLE, "--port", "0", "--add-findings", "-o", str(kept), "--force"]) == 0
    assert len(annotating) == 2
