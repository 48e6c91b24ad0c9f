"""Names of work are not names of people: whoever is called like a kernel does not change what a trace says."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from foretrace.errors import InputError
from foretrace.knowledge.sharing import Category
from foretrace.view.sharing import collect, redacted
from foretrace.view.sharing.checking import difference
from foretrace.view.sharing.copies import Redacted
from foretrace.view.sharing.redaction import Redactor
from foretrace.view.sharing.trade import known_keys, trade_words

DATA = Path(__file__).parents[2] / "data"
EAGER = DATA / "traces" / "mlp_eager.json.gz"
WORDS = ("hopper", "ampere", "dims", "dur", "bfloat16", "correlation", "profilerstep", "nvjet", "vectorized")


def shared(tmp_path: Path, document: Any, *names: str) -> tuple[Any, Redacted]:
    traces, copies = tmp_path / "traces", tmp_path / "copies"
    traces.mkdir()
    copies.mkdir()
    (traces / "t.json").write_text(json.dumps(document))
    made = redacted(collect(traces), list(Category), copies, names=(names, names))
    return json.loads(made.plan.items[0].source.read_text()), made


def row(**more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {}} | more


@pytest.mark.parametrize("name", WORDS)
def test_who_is_called_like_a_word_of_traces_changes_no_event(name: str, tmp_path: Path):
    document = json.loads(gzip.decompress(EAGER.read_bytes()))
    document["where"] = f"/home/{name}/proj/x.py"

    copy, made = shared(tmp_path, document, name)

    assert copy["traceEvents"] == document["traceEvents"]
    assert copy["where"] == "x.py"
    assert made.doubtful == [name]


def test_a_doubtful_name_goes_from_paths(tmp_path: Path):
    redactor = Redactor([Category.USERS], users=("hopper",))

    assert redactor.redact("/opt/hopper/x of hopper") == "/opt/user/x of hopper"
    assert redactor.redact("/home/hopper/x") == "/home/user/x"


def test_no_account_that_everybody_has_is_spoken_of():
    assert Redactor([Category.USERS], users=("root", "ubuntu"), hosts=("localhost",)).doubtful == []


def test_kernels_and_operators_keep_their_names_and_lose_paths(tmp_path: Path):
    events = [
        row(name="ampere_kimberly_sgemm_128x64_tn"),
        row(name="f<lambda at /home/kimberly/proj/x.cu:12>"),
        row(cat="cpu_op", name="kimberly::scale"),
        row(cat="cpu_op", name="triton_poi_fused_kimberly_0"),
        row(cat="user_annotation", name="kimberly's step"),
        row(cat="gpu_user_annotation", name="kimberly's step"),
        row(cat="cpu_op", name="step of kimberly", args={"kimberly": "by kimberly", "Input type": ["kimberly"]}),
    ]

    copy, _ = shared(tmp_path, {"traceEvents": events}, "kimberly")

    assert [event["name"] for event in copy["traceEvents"]] == [
        "ampere_kimberly_sgemm_128x64_tn",
        "f<lambda at x.cu:12>",
        "kimberly::scale",
        "triton_poi_fused_kimberly_0",
        "user's step",
        "user's step",
        "step of user",
    ]
    assert copy["traceEvents"][-1]["args"] == {"user": "by user", "Input type": ["kimberly"]}


def test_known_keys_stay_whoever_is_called_so(tmp_path: Path):
    event = row(cat="cpu_op", args=dict.fromkeys(sorted(known_keys() - {"name"}), 1))
    names = {word for key in known_keys() for word in key.split()}

    copy, _ = shared(tmp_path, {"traceEvents": [event]}, *sorted(names))

    assert copy["traceEvents"] == [event]


def test_the_words_are_read_from_the_grammars():
    assert {"nvjet", "hopper", "ampere", "vectorized", "gelucudakernelimpl", "profilerstep", "sgemm"} <= trade_words()
    assert trade_words().isdisjoint({"kimberly", "zoltan", "grace", "alice", "mark", "will", "bill"})


def test_a_category_that_is_named_twice_hides_nothing(tmp_path: Path):
    traces, copies = tmp_path / "traces", tmp_path / "copies"
    traces.mkdir()
    copies.mkdir()
    (traces / "t.json").write_text('{"traceEvents": [{"cat": "kernel", "cat": "cpu_op", "name": "by kimberly"}]}')

    made = redacted(collect(traces), list(Category), copies, names=(("kimberly",), ()))

    assert "kimberly" not in made.plan.items[0].source.read_text()


def changed(tmp_path: Path, old: str, new: str) -> Path:
    copy = tmp_path / "copy.json"
    text = gzip.decompress(EAGER.read_bytes()).decode()
    assert old in text
    copy.write_text(text.replace(old, new))
    return copy


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("nvjet_", "user_", "its kernels"),
        ('"Input Dims"', '"Input user"', "its kernels"),
        ("ProfilerStep#", "user#", "its kernels"),
        ('"schemaVersion"', '"user"', None),
    ],
)
def test_what_would_be_explained_otherwise_is_told(old: str, new: str, what: str | None, tmp_path: Path):
    assert difference(EAGER, changed(tmp_path, old, new), str) == what


def test_a_trace_that_would_be_explained_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    traces, copies = tmp_path / "traces", tmp_path / "copies"
    traces.mkdir()
    copies.mkdir()
    shutil.copy(EAGER, traces)
    monkeypatch.setattr("foretrace.view.sharing.copies.difference", lambda *_, **__: "its kernels")

    with pytest.raises(InputError, match=r"redaction would change its kernels .*mlp_eager.*leave the file out"):
        redacted(collect(traces), list(Category), copies, names=((), ()))


def test_what_cannot_be_explained_has_nothing_to_lose(tmp_path: Path):
    (tmp_path / "t.json").write_text('{"traceEvents": []}')

    assert difference(tmp_path / "t.json", tmp_path / "t.json", str) is None
