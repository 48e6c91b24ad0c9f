"""``foretrace share`` as somebody uses it, against a Hub on this machine (``view/sharing/fake_hub.py``)."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest

from foretrace.cli import main
from foretrace.errors import InputError
from foretrace.knowledge import sharing as facts
from view.sharing.fake_hub import TOKEN, USER, Bucket, FakeHub, environment_of, hub

__all__ = ["hub"]  # the fixture

TRACE = {
    "schemaVersion": 1,
    "traceName": "/home/zoltan/projectx/t.json",
    "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}],
}
EAGER = "traces/03_simple_mlp/64_128 eager#1.json"
COMPILED = "traces/03_simple_mlp/64_128_compile.json.gz"
TABLE = "traces/03_simple_mlp/64_128.txt"


@pytest.fixture
def ctrl_c_arrives() -> Iterator[None]:
    """Whoever runs the tests in the background has the signal ignored in them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "run"
    (root / EAGER).parent.mkdir(parents=True)
    (root / EAGER).write_text(json.dumps(TRACE))
    (root / COMPILED).write_bytes(gzip.compress(json.dumps(TRACE | {"rank": 0}).encode()))
    (root / TABLE).write_text("Name  Self CPU %\n")
    (root / "notes.txt").write_text("secret")
    return root


def share(folder: Path, *words: str, bucket: str = "b", yes: bool = True) -> int:
    return main(["share", str(folder), "--bucket", bucket, *(["--yes"] if yes else []), *words])


def files(hub: FakeHub, bucket: str = "ada/b") -> list[str]:
    return sorted(hub.buckets[bucket].files)


class Terminal(io.StringIO):
    """Standard input at a terminal."""

    def isatty(self) -> bool:
        return True


def at_terminal(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{answer}\n" for answer in answers)))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_a_folder_is_up_with_one_command(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    assert share(folder) == 0

    out, err = capsys.readouterr()
    assert files(hub) == sorted([TABLE, COMPILED, EAGER])
    assert hub.content("ada/b", COMPILED) == (folder / COMPILED).read_bytes()
    assert "a new bucket, public: everybody can read it" in out
    assert "UPLOAD  3 files" in out
    assert "notes.txt: no table of the profiler" in out
    assert "3 uploaded" in out
    assert TOKEN not in out + err


def test_each_trace_gets_a_link_that_leads_to_it(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    share(folder)

    links = [line.strip() for line in capsys.readouterr().out.splitlines() if "ui.perfetto.dev" in line]
    addresses = [parse_qs(link.partition("#!/?")[2])["url"][0] for link in links]
    base = f"{hub.url}/buckets/ada/b/resolve/"
    assert [unquote(address) for address in addresses] == [base + EAGER, base + COMPILED]
    assert all(" " not in address and "#" not in address for address in addresses)


def test_a_private_bucket_has_no_links_and_says_what_to_do(
    hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]
):
    assert share(folder, "--private") == 0

    out = capsys.readouterr().out
    assert hub.buckets["ada/b"].private
    assert "ui.perfetto.dev" not in out
    assert "foretrace view" in out


def test_a_public_bucket_is_not_taken_for_a_private_one(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    hub.buckets["ada/b"] = Bucket(private=False)

    assert share(folder, "--private") == 2

    assert "exists and is public" in capsys.readouterr().err
    assert files(hub) == []


def test_a_bucket_that_turns_out_public_gets_nothing(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    def race() -> None:
        hub.buckets["ada/b"] = Bucket(private=False)

    hub.fail("/api/buckets/ada/b", 404, headers={"X-Error-Code": "RepoNotFound"}, times=1, before=race)

    assert share(folder, "--private") == 2
    assert "is public although it was to be private" in capsys.readouterr().err
    assert files(hub) == []


def test_doing_it_again_uploads_nothing(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    share(folder)
    hub.requests.clear()

    assert share(folder) == 0

    assert "3 unchanged" in capsys.readouterr().out
    assert hub.asked("/batch") == []


def test_nothing_is_deleted_or_replaced_unless_asked(
    hub: FakeHub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    hub.buckets["ada/b"] = Bucket(private=False)
    hub.put("ada/b", "theirs.json", b"theirs", tmp_path)
    hub.put("ada/b", TABLE, b"another table", tmp_path)

    assert share(folder) == 2

    out, err = capsys.readouterr()
    assert "there with another content, stays as it is" in out
    assert "1 file with another content stays as it is in the bucket; --force replaces it" in err
    assert hub.content("ada/b", TABLE) == b"another table"
    assert "theirs.json" in files(hub)
    assert EAGER in files(hub)  # the others are up all the same

    assert share(folder, "--force") == 0
    assert hub.content("ada/b", TABLE) == (folder / TABLE).read_bytes()
    assert "theirs.json" in files(hub)


def test_delete_lists_and_deletes_only_what_the_folder_has_not(
    hub: FakeHub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    hub.buckets["ada/b"] = Bucket(private=False)
    for path in ("theirs.json", "notes.txt", "p/old.json"):
        hub.put("ada/b", path, b"x", tmp_path)

    assert share(folder, "--delete", "--prefix", "p") == 0
    assert "theirs.json" in files(hub)
    assert "p/old.json" not in files(hub)

    assert share(folder, "--delete", "--exclude", "*.gz") == 0
    assert "notes.txt" in files(hub)  # it is in the folder, only not shared
    assert "theirs.json" not in files(hub)
    assert "  theirs.json" in capsys.readouterr().out.splitlines()


def test_delete_spares_what_it_cannot_know(
    hub: FakeHub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    hub.buckets["ada/b"] = Bucket(private=False)
    there = ("linked/t.json.gz", "venv/v.json.gz", ".h/h.json.gz", "theirs.json")
    for path in there:
        hub.put("ada/b", path, b"x", tmp_path)
    for place in ("elsewhere", "run/venv", "run/.h"):
        (tmp_path / place).mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")

    assert share(folder, "--delete") == 0

    assert set(there) & set(files(hub)) == set(there) - {"theirs.json"}
    out = capsys.readouterr().out
    assert (
        "SPARED  2 files of ada/b: they are below a folder that was not looked into (a hidden folder or a cache)" in out
    )
    assert "SPARED  1 file of ada/b: they are below a folder that was not looked into (a link to a folder)" in out


def test_a_circle_of_links_is_no_defect(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "loop.json").symlink_to(folder / "loop.json")

    assert share(folder) == 0

    assert "loop.json: a link that leads in a circle" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="names of other systems are always text")
@pytest.mark.parametrize("there", [False, True])
def test_a_folder_whose_name_is_no_text_is_one_right_sentence(
    there: bool, hub: FakeHub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    if there:
        hub.buckets["ada/b"] = Bucket(private=False)
        hub.put("ada/b", TABLE, (folder / TABLE).read_bytes(), tmp_path)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    folder.rename(odd)

    assert share(odd) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert "the name of this folder is not valid UTF-8" in line
    assert hub.asked("xet-write-token") == []

    (tmp_path / "plain").symlink_to(odd)
    assert share(tmp_path / "plain") == 0  # what the sentence says to do
    assert share(odd, "--redact", "all", "--prefix", "copies") == 0  # copies lie elsewhere


def test_names_that_are_words_are_spoken_of(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "more.json").write_text(json.dumps(TRACE | {"traceName": "/home/hopper/x.json"}))

    assert share(folder, "--redact", "users") == 0

    (note,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("NOTE")]
    assert "words of traces as well" in note
    assert "hopper" in note


@pytest.mark.parametrize("how", ["fails", "interrupted"])
def test_copies_are_gone_afterwards(
    how: str, hub: FakeHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[Path] = []

    def stop(*_: object) -> None:
        seen.extend(tmp_path.glob("foretrace-share-*"))
        raise SystemExit(143) if how == "interrupted" else InputError("no")

    monkeypatch.setattr("foretrace.view.sharing.Hub.compare", stop)
    hub.buckets["ada/b"] = Bucket(private=False)

    if how == "interrupted":
        with pytest.raises(SystemExit):
            share(folder, "--redact", "all")
    else:
        assert share(folder, "--redact", "all") == 2

    assert len(seen) == 1
    assert list(tmp_path.glob("foretrace-share-*")) == []


def test_deleting_is_asked_for_by_itself(
    hub: FakeHub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    hub.buckets["ada/b"] = Bucket(private=False)
    hub.put("ada/b", "theirs.json", b"x", tmp_path)
    at_terminal(monkeypatch, "y", "n")

    assert share(folder, "--delete", yes=False) == 0

    err = capsys.readouterr().err
    assert "Upload 3 files to ada/b? [y/N]" in err
    assert "Delete 1 file from ada/b, for good? [y/N]" in err
    assert "theirs.json" in files(hub)


def test_no_is_the_answer_unless_yes_is_said(hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch):
    at_terminal(monkeypatch, "")

    assert share(folder, yes=False) == 2
    assert "ada/b" not in hub.buckets


def test_without_a_terminal_yes_is_needed(
    hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    assert share(folder, yes=False) == 2

    assert "add --yes" in capsys.readouterr().err
    assert hub.buckets == {}


def test_a_dry_run_changes_nothing(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    assert share(folder, "--dry-run", yes=False) == 0

    assert "UPLOAD  3 files" in capsys.readouterr().out
    assert hub.buckets == {}
    assert hub.asked("POST") == []


def test_a_dry_run_needs_neither_token_nor_network(
    hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("HF_TOKEN")

    assert share(folder, "--dry-run", "--redact", "all", yes=False) == 0

    out, err = capsys.readouterr()
    assert "a bucket that was not looked at" in out
    assert "there is no token" in err


def test_redacted_files_are_what_arrives(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    assert share(folder, "--redact", "paths,users") == 0

    assert "REDACTED  pieces replaced: paths 2, users" in capsys.readouterr().out
    for path in files(hub):
        data = hub.content("ada/b", path)
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        assert b"zoltan" not in text
        assert b"projectx" not in text
    # Nor was it in anything else that was sent to the store.
    assert not any(b"zoltan" in chunk for xorb in hub.xorbs.values() for chunk in xorb)
    assert b"zoltan" in (folder / EAGER).read_bytes()

    hub.requests.clear()
    assert share(folder, "--redact", "paths,users") == 0
    assert hub.asked("/batch") == []  # the same copies, byte by byte


def test_redaction_refuses_what_it_cannot_do(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "report.html").write_text("<title>foretrace</title>")

    assert share(folder, "--redact", "all") == 2
    assert "report.html (HTML report) cannot be redacted" in capsys.readouterr().err
    assert hub.requests == []

    assert share(folder, "--redact", "all", "--exclude", "*.html") == 0


@pytest.mark.parametrize("words", ["path", "paths,", "everything"])
def test_an_unknown_thing_to_redact_is_refused(
    words: str, hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]
):
    assert share(folder, "--redact", words) == 2

    assert "it takes paths, users, commands, stacks, or all" in capsys.readouterr().err
    assert hub.requests == []


def test_an_empty_folder_says_what_would_be_shared(hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert share(tmp_path) == 2

    assert "holds nothing that is shared" in capsys.readouterr().err


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_json_is_all_there_is_on_standard_output(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    assert share(folder, "--json", "--redact", "stacks") == 0

    said = document(capsys)
    assert said["schema"] == "foretrace.share/1"
    assert (said["bucket"], said["private"], said["created"], said["error"]) == ("ada/b", False, True, None)
    assert {file["path"]: file["state"] for file in said["files"]} == dict.fromkeys(
        (EAGER, COMPILED, TABLE), "uploaded"
    )
    assert {file["path"] for file in said["files"] if file["perfetto"]} == {EAGER, COMPILED}
    assert said["redacted"] == {"stacks": 0}
    assert said["left_out"] == [{"path": "notes.txt", "reason": "no table of the profiler; --include takes it"}]


@pytest.mark.skipif(sys.platform != "linux", reason="names of other systems are always text")
def test_json_names_a_folder_whose_name_is_no_text(
    hub: FakeHub, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    folder.rename(odd)

    assert share(odd, "--dry-run", "--json") == 0

    said = document(capsys)
    assert "odd" in said["folder"]
    assert "\ufffd" in said["folder"]
    assert len(said["files"]) == 3


@pytest.mark.parametrize("status", [403, 413, 500, 409])
def test_a_failure_says_what_is_up_and_a_second_run_goes_on(
    status: int, hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(facts, "BATCH_FILES", 1)
    hub.fail("/batch", status, after=1)

    assert share(folder, "--json") == 2

    out, err = capsys.readouterr()
    said = json.loads(out)
    (sentence,) = [line for line in err.splitlines() if line.startswith("foretrace: ")]
    assert "(1 of 3 files are up; the same command goes on where it ended)" in sentence
    assert said["error"] == sentence.removeprefix("foretrace: ")
    assert sorted(file["state"] for file in said["files"]) == ["uploaded", "waiting", "waiting"]

    hub.rules.clear()
    assert share(folder, "--json") == 0
    assert sorted(file["state"] for file in document(capsys)["files"]) == ["unchanged", "uploaded", "uploaded"]


@pytest.mark.usefixtures("ctrl_c_arrives")
def test_ctrl_c_says_what_is_up(
    hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(facts, "BATCH_FILES", 1)
    pause = time.monotonic

    def interrupt() -> None:
        # To the thread that waits for the answer, as a terminal's does that has one thread to go to.
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        until = pause() + 0.3  # the answer comes after the signal
        while pause() < until:
            pass

    hub.fail("/batch", 500, after=1, before=interrupt)

    assert share(folder) == 130

    assert "interrupted (1 of 3 files are up" in capsys.readouterr().err
    assert len(files(hub)) == 1


def test_no_token_is_one_sentence(
    hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("HF_TOKEN")

    assert share(folder) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "foretrace: there is no token for the Hub; log in with `hf auth login`, or set HF_TOKEN to a token that may "
        "write (huggingface.co/settings/tokens)\n"
    )


def test_without_huggingface_hub_it_names_the_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    assert share(folder) == 2
    assert "pip install 'foretrace[share]'" in capsys.readouterr().err


def test_as_a_process_with_nothing_but_the_hubs_own_variables(hub: FakeHub, folder: Path, tmp_path: Path):
    environment = os.environ | environment_of(tmp_path) | {"HF_ENDPOINT": hub.url}

    done = subprocess.run(
        [sys.executable, "-m", "foretrace", "share", folder, "-b", f"{USER}/c", "--yes"],
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert len(files(hub, "ada/c")) == 3
    assert "https://ui.perfetto.dev/#!/?url=" in done.stdout


def test_names_cannot_steer_the_terminal(hub: FakeHub, folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "evil\x1b[2J.json").write_text(json.dumps(TRACE))

    assert share(folder) == 0
    assert "\x1b" not in capsys.readouterr().out
