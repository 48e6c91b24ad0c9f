"""What must not be in a redacted copy, and what must still be in it."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.analysis import explain
from foretrace.errors import InputError
from foretrace.knowledge.sharing import Category
from foretrace.trace import load
from foretrace.view.sharing import collect, redacted
from foretrace.view.sharing.redaction import Redactor
from foretrace.view.sharing.rewriting import rewrite_json
from foretrace.view.sharing.trade import known_keys, trade_words

ALL = tuple(Category)
NOBODY: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
DATA = Path(__file__).parents[2] / "data"


def copied(
    folder: Path,
    document: Any,
    categories: tuple[Category, ...] = ALL,
    *,
    name: str = "t.json",
    names: tuple[tuple[str, ...], tuple[str, ...]] = NOBODY,
) -> str:
    """The text of the redacted copy of a document, or of text as it stands, in a folder of its own."""
    text = document if isinstance(document, str) else json.dumps(document)
    traces, copies = folder / "traces", folder / "copies"
    for place in (traces, copies):
        place.mkdir(parents=True, exist_ok=True)
    data = text.encode("utf-8", "surrogateescape")
    (traces / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (item,) = redacted(collect(traces), categories, copies, names=names).plan.items
    made = item.source.read_bytes()
    item.source.unlink()
    assert made[:2] != b"\x1f\x8b" or name.endswith(".gz")
    return (gzip.decompress(made) if name.endswith(".gz") else made).decode("utf-8", "surrogateescape")


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(letter):04X}" for letter in text)


def event(**more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.25, "dur": 2.5} | more


def trace(*events: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, **meta, "traceEvents": [event(), *events]}


# One secret, in every place where it can stand. The path gives the user's name away.
SECRET_PATH = "/home/zoltan/projectx/train.py"
PLACES = {
    "an operator's name": trace(event(name=f"{SECRET_PATH}(12): forward")),
    "args": trace(event(args={"kernel_file": SECRET_PATH})),
    "nested args": trace(event(args={"a": [{"b": {"c": [[SECRET_PATH]]}}]})),
    "deep": trace(event(args={"a": {"b": {"c": {"d": {"e": {"f": SECRET_PATH}}}}}})),
    "a key": trace(event(args={SECRET_PATH: 1})),
    "metadata before": trace(traceName=SECRET_PATH),
    "metadata after": {**trace(event()), "z": {"deep": [SECRET_PATH]}},
    "a process name": trace(
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": f"python {SECRET_PATH} -x"}}
    ),
    "a Python row": trace(event(cat="python_function", name=f"{SECRET_PATH}(12): forward")),
    "a call stack": trace(event(args={"Call stack": f"a.py(1): f;{SECRET_PATH}(2): g"})),
    "JSON in a string": trace(config=json.dumps({"path": json.dumps({"p": SECRET_PATH})})),
    "a URL": trace(event(args={"at": "file:///home/zoltan/projectx/train.py"})),
    "a quoted URL": trace(event(args={"at": "x%2Fhome%2Fzoltan%2Fprojectx%2Ftrain.py"})),
    "a flag": trace(event(args={"flags": "-I/home/zoltan/projectx/include -O2"})),
    "a path upwards": trace(event(args={"p": "../../zoltan/projectx/train.py"}), traceName=SECRET_PATH),
    "a user's folder": trace(event(args={"p": "~zoltan/projectx/x.py"})),
    "spaces": trace(event(args={"p": "/home/zoltan/my projectx files/train.py"})),
    "Windows": trace(event(args={"p": "C:\\Users\\zoltan\\projectx\\train.py"})),
    "a share": trace(event(args={"p": "\\\\zoltan\\projectx\\train.py"}), traceName=SECRET_PATH),
    "a bare list": [event(name=SECRET_PATH), event()],
    "inductor's cache": trace(event(args={"f": "/tmp/torchinductor_zoltan/projectx/k.py"})),
    "another case": trace(event(name="ZOLTAN's step"), traceName=SECRET_PATH),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("spelling", ["plain", "escaped", "packed", "wide"])
def test_a_secret_is_nowhere_in_the_copy(place: str, spelling: str, tmp_path: Path):
    text = json.dumps(PLACES[place])
    assert "zoltan" in text.lower()
    if spelling == "escaped":
        for word in ("zoltan", "projectx", "/home"):
            text = text.replace(word, escaped(word))
        assert "zoltan" not in text
    if spelling == "wide":
        (tmp_path / "traces").mkdir()
        (tmp_path / "traces" / "t.json").write_bytes(text.encode("utf-16"))
        (tmp_path / "copies").mkdir()
        made = redacted(collect(tmp_path / "traces"), ALL, tmp_path / "copies", names=NOBODY)
        text = made.plan.items[0].source.read_text("utf-8")
    else:
        text = copied(tmp_path, text, name="t.json.gz" if spelling == "packed" else "t.json")

    # As it is written, and as every reader of JSON sees it.
    for said in (text, json.dumps(json.loads(text), ensure_ascii=False), json.dumps(json.loads(text)).lower()):
        assert "zoltan" not in said.lower()
        assert "projectx" not in said


MARK = "THESECRET"
NAMED = {
    "names": trace(event(name=f"step of {MARK}"), note=MARK, traceName=f"/home/{MARK}/x.json"),
    "args": trace(event(args={"note": f"by {MARK}, at night"}), traceName=f"/home/{MARK}/x.json"),
    "nested": trace(event(args={"x": [{"y": [f"({MARK})"]}]}), traceName=f"/home/{MARK}/x.json"),
    "key": trace(event(args={MARK: 1}), traceName=f"/home/{MARK}/x.json"),
}
NAMES = st.text(st.characters(codec="utf-8", categories=("L",), exclude_characters="ßſKİı"), min_size=4, max_size=12)


def is_told_apart(name: str) -> bool:
    """Neither a word that foretrace keeps, nor one that the document holds anyway."""
    return name.lower() not in trade_words() | known_keys() and name.lower() not in json.dumps(NAMED).lower()


@given(
    secret=NAMES.filter(is_told_apart),
    place=st.sampled_from(sorted(NAMED)),
    write=st.sampled_from([str, escaped, lambda text: text.replace("/", "\\/")]),
)
@settings(max_examples=60)
def test_whatever_a_user_is_called_the_name_is_gone(
    secret: str, place: str, write: Any, tmp_path_factory: pytest.TempPathFactory
):
    document = json.dumps(NAMED[place]).replace(MARK, write(secret))

    made = copied(tmp_path_factory.mktemp("x"), document, (Category.USERS,))

    kept = json.loads(made)
    assert secret.lower() not in json.dumps(kept, ensure_ascii=False).lower()
    assert secret.lower() not in made.lower()


def test_command_lines_and_environments_go_whole(tmp_path: Path):
    made = copied(
        tmp_path,
        trace(
            event(name="torchrun --nproc 8 train.py --key hunter2"),
            event(args={"note": "ran: python3 -m pkg --lr hunter2"}),
            command=["python", "train.py", "--password", "hunter2"],
            env={"API": {"KEY": ["hunter2"]}},
            token="hf_" + "a1" * 12,
        ),
        (Category.COMMANDS,),
    )

    assert "hunter2" not in made
    assert "a1a1" not in made
    assert json.loads(made)["command"] == ["command removed"] * 4


def test_machines_are_not_named(tmp_path: Path):
    document = trace(
        event(args={"hostname": "gpu-17", "note": "tcp://10.1.2.3:29500"}),
        event(name="all_reduce on GPU-17"),
        mail="ada@gpu-18.example.org",
        note="seen on gpu-18.example.org",
        versions="12.8.4.1",
    )

    made = copied(tmp_path, document, (Category.USERS,))

    assert not any(word in made.lower() for word in ("gpu-17", "gpu-18", "10.1.2.3", "ada@"))
    assert "12.8.4.1" in made  # four numbers alone are a version


def test_names_that_are_words_of_the_trade_go_only_where_they_are_names(tmp_path: Path):
    kernel = "triton_red_fused_max_0"
    document = trace(event(name=kernel), device="NVIDIA H200", username="max", hostname="h200", f="/home/max/x.py")

    made = json.loads(copied(tmp_path, document, (Category.USERS,), names=(("max",), ("h200",))))

    assert (made["traceEvents"][1]["name"], made["device"]) == (kernel, "NVIDIA H200")
    assert (made["username"], made["hostname"], made["f"]) == ("user", "host", "/home/user/x.py")


def test_the_machine_that_shares_is_not_named_either(tmp_path: Path):
    made = copied(tmp_path, trace(event(name="on box9 by grace")), (Category.USERS,), names=(("grace",), ("box9",)))

    assert "on host by user" in made


def test_a_tensorboard_file_does_not_name_its_machine(tmp_path: Path):
    traces, copies = tmp_path / "traces", tmp_path / "copies"
    traces.mkdir()
    copies.mkdir()
    for rank in (1, 2):
        (traces / f"node-7_{rank}.99.pt.trace.json").write_text(json.dumps(trace(event(name="node-7 says"))))

    made = redacted(collect(traces), (Category.USERS,), copies, names=NOBODY)

    assert [item.path for item in made.plan.items] == ["host_1.99.pt.trace.json", "host_2.99.pt.trace.json"]
    assert "node-7" not in made.plan.items[0].source.read_text()


def test_names_that_become_the_same_get_a_number(tmp_path: Path):
    traces, copies = tmp_path / "traces", tmp_path / "copies"
    traces.mkdir()
    copies.mkdir()
    for user in ("grace", "heidi"):
        (traces / f"{user}.json").write_text(json.dumps(trace(traceName=f"/home/{user}/x")))

    made = redacted(collect(traces), ALL, copies, names=NOBODY)

    assert [item.path for item in made.plan.items] == ["user.json", "user-2.json"]


def test_only_what_was_asked_for_is_taken_out(tmp_path: Path):
    document = trace(event(cat="python_function", name="/opt/app/x.py(1): f"), command="python /opt/app/x.py")

    assert json.loads(copied(tmp_path, document, (Category.PATHS,)))["command"] == "python x.py"
    stacks = json.loads(copied(tmp_path, document, (Category.STACKS,)))
    assert [row["name"] for row in stacks["traceEvents"]] == ["aten::mm", "frame removed"]
    assert stacks["traceEvents"][1] == event(cat="python_function", name="frame removed")
    assert stacks["command"] == "python /opt/app/x.py"


@pytest.mark.parametrize(
    "text",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(a / b)>(int)",
        "Torch-Compiled Region: 0/0",
        "triton_poi_fused_gelu_mul_0",
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
        "ProfilerStep#3",
        "## Call CompiledFxGraph fabc ##",
        "nccl:all_reduce",
        "a ~5 % share / of 3",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "[[1, 2], []]",
        "text/plain",
    ],
)
def test_what_names_work_stays_as_it_is(text: str):
    redactor = Redactor(ALL, users=("alice",), hosts=("box9",))

    assert redactor.redact(text) == text
    assert not redactor.counts


def test_a_python_row_says_nothing_but_when_it_ran(tmp_path: Path):
    row = event(
        cat="python_function", name="secret.py(1): f", args={"Python id": 3, "Python module": ["secret", {"a": "x"}]}
    )

    made = json.loads(copied(tmp_path, trace(row), (Category.STACKS,)))

    gone = "frame removed"
    args = {"Python id": 3, "Python module": [gone, {"a": gone}]}
    assert made["traceEvents"][1] == event(cat="python_function", name=gone, args=args)


def test_it_says_how_much_it_took(tmp_path: Path):
    traces, copies = tmp_path / "traces", tmp_path / "copies"
    traces.mkdir()
    copies.mkdir()
    rows = [event(cat="python_function", name="x.py(1): f"), event(args={"f": "/opt/a/b.py"}), event(name="erin")]
    (traces / "t.json").write_text(json.dumps(trace(*rows, user="erin", command="make all")))

    made = redacted(collect(traces), ALL, copies, names=NOBODY)

    assert dict(made.counts) == {Category.STACKS: 1, Category.PATHS: 1, Category.USERS: 2, Category.COMMANDS: 1}


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


@given(JSON)
@settings(max_examples=60)
def test_json_stays_json_and_doing_it_again_changes_nothing(value: Any):
    document = json.dumps(
        {"before": value, "traceEvents": [{"ph": "X", "args": {"x": value}}, value], "after": [value]}
    )
    once, twice = io.StringIO(), io.StringIO()

    rewrite_json(io.StringIO(document), once, Redactor(ALL))
    redactor = Redactor(ALL)
    rewrite_json(io.StringIO(once.getvalue()), twice, redactor)

    json.loads(once.getvalue())
    assert twice.getvalue() == once.getvalue()


@pytest.mark.parametrize("cut", [60, 200, -6, -20])
def test_a_file_that_is_no_whole_json_is_refused(cut: int, tmp_path: Path):
    text = json.dumps(trace(*[event(name=f"op{number}") for number in range(5)]))[:cut]

    with pytest.raises(InputError, match=r"t\.json cannot be redacted safely: .*--exclude"):
        copied(tmp_path, text)


@pytest.mark.parametrize("text", ['{"traceEvents": [{"ph": "X", name: alice}]}', '{"a": alice, "traceEvents": []}'])
def test_words_outside_strings_are_refused(text: str, tmp_path: Path):
    with pytest.raises(InputError, match="it is not valid JSON"):
        copied(tmp_path, text)


def test_a_cut_off_gzip_is_refused(tmp_path: Path):
    traces = tmp_path / "traces"
    traces.mkdir()
    events = [event(name=f"operator {number}", ts=number * 7919 % 1013) for number in range(20_000)]
    (traces / "t.json.gz").write_bytes(gzip.compress(json.dumps(trace(*events)).encode())[:-2000])

    with pytest.raises(InputError, match=r"t\.json\.gz cannot be redacted safely: its gzip stream is cut off"):
        redacted(collect(traces), ALL, tmp_path, names=NOBODY)


def test_large_files_go_through_in_pieces(tmp_path: Path):
    events = [event(name="op /home/mallory/x.py", args={"n": number, "fill": "-" * 8_000}) for number in range(300)]
    text = json.dumps(trace(*events))
    assert len(text) > 2 << 20  # bytes: more than two pieces

    made = json.loads(copied(tmp_path, text))

    assert len(made["traceEvents"]) == 301
    assert made["traceEvents"][300] == event(name="op x.py", args={"n": 299, "fill": "-" * 8_000})


def test_tables_are_redacted_line_by_line(tmp_path: Path):
    made = copied(tmp_path, "Name  Self CPU %\n/home/trent/a/x.py(3): f  5 %\r\nby trent\n", name="t.txt", names=NOBODY)

    assert made == "Name  Self CPU %\nframe removed  5 %\r\nby user\n"


@pytest.mark.parametrize(
    ("name", "content"), [("report.html", b"foretrace"), ("x.snapshot.pickle", b"\x80\x04}\x8c\x08segments")]
)
def test_what_cannot_be_redacted_is_refused(name: str, content: bytes, tmp_path: Path):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InputError, match=rf"{name} \(.*\) cannot be redacted.*--exclude"):
        redacted(collect(tmp_path, snapshots=True), ALL, tmp_path, names=NOBODY)


@pytest.mark.parametrize("name", ["traces/mlp_eager", "traces/mlp_compile", "traces_memory/llama_train"])
def test_a_redacted_trace_is_explained_alike(name: str, tmp_path: Path):
    path = DATA / f"{name}.json.gz"
    traces, copies = tmp_path / "traces", tmp_path / "copies"
    traces.mkdir()
    copies.mkdir()
    (traces / path.name).write_bytes(path.read_bytes())
    before = path.read_bytes()

    made = redacted(collect(traces), ALL, copies)
    was, now = explain(load(path)), explain(load(made.plan.items[0].source))

    def kernels(report: Any) -> list[Any]:
        return [(k.name, k.start_us, k.duration_us, k.kind, k.op, k.flops, k.bytes, k.step) for k in report.kernels]

    assert kernels(was)
    assert kernels(now) == kernels(was)
    # Which Python frame an idle gap lies in goes with the frames.
    assert [(s.label, s.wall_us, s.gpu_busy_us, s.gpu_idle_us, s.launches) for s in now.steps] == [
        (s.label, s.wall_us, s.gpu_busy_us, s.gpu_idle_us, s.launches) for s in was.steps
    ]
    assert now.verdict.bound == was.verdict.bound
    assert now.trace.has == was.trace.has
    assert [finding.rule for finding in now.findings] == [finding.rule for finding in was.findings]
    assert path.read_bytes() == before
    assert (traces / path.name).read_bytes() == before


LEAKS = {
    "a nested env with a list": '{"env": [["K", "hunter2"]], "traceEvents": []}',
    "a second list of events": '{"traceEvents": [], "more": {"traceEvents": [{"name": "/home/hunter2/x.py"}]}}',
    "an event that is a word": '{"traceEvents": ["/home/hunter2/x.py", {"ph": "X"}]}',
    "a single quote in a path": '{"traceEvents": [{"ph": "X", "name": "a \'/home/hunter2/x.py\' b"}]}',
    "a mail address": '{"traceEvents": [{"ph": "X", "name": "hunter2@example.org"}]}',
    "an escape JSON has not": '{"traceEvents": [{"ph": "X", "name": "C:\\Users\\hunter2\\x.py"}]}',
    "a traceback": '{"traceEvents": [{"ph": "X", "args": {"e": "File \\"/home/hunter2/x.py\\", line 3, in f"}}]}',
    "a key with an escape": '{"traceEvents": [{"ph": "X", "args": {"\\u0063ommand": "make hunter2"}}]}',
    "an escaped category": '{"traceEvents": [{"ph": "X", "cat": "python\\u005ffunction", "name": "hunter2"}]}',
    "two documents": '{"traceEvents": []}\n{"traceEvents": [{"ph": "X", "name": "/home/hunter2/x.py"}]}',
    "a byte order mark": '\ufeff{"traceEvents": [{"ph": "X", "name": "/home/hunter2/x.py"}]}',
    "invalid UTF-8": '{"traceEvents": [{"ph": "X", "name": "/home/hunter2/\udcff.py"}]}',
    "a control character": '{"traceEvents": [{"ph": "X", "name": "/home/hunter2/\x01.py"}]}',
}


@pytest.mark.parametrize("case", LEAKS)
def test_ways_in_which_a_secret_could_slip_through(case: str, tmp_path: Path):
    assert "hunter2" not in copied(tmp_path, LEAKS[case])
