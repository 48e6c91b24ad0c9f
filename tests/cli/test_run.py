"""``foretrace run``: workloads, factories and scripts from the command line.

What the command itself decides is tested in this process, with the recording replaced; whole runs are in
``test_run_for_real.py``.
"""

from __future__ import annotations

import argparse
import errno
import json
from pathlib import Path
from typing import Any

import pytest

from foretrace.capture import runner, script
from foretrace.capture.files import Rows, make_folder
from foretrace.capture.runner import Outcome, Request
from foretrace.capture.script import ScriptOutcome
from foretrace.capture.workloads import WORKLOADS
from foretrace.cli import main, run
from foretrace.cli.subject import SIZES
from foretrace.errors import CaptureError, InputError
from foretrace.model.sidefile import SideFile


class Recorder:
    """Takes the place of what records: notes what was asked for, and writes an empty file."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.variants: list[str] = []
        self.paths: list[Path] = []
        self.fails: set[str] = set()

    def __call__(self, request: Request, variant: str, path: Path, **_: Any) -> Outcome:
        if variant in self.fails:
            raise CaptureError(f"{variant} fails")
        self.requests.append(request)
        self.variants.append(variant)
        self.paths.append(path)
        make_folder(path.parent)
        path.touch()
        return Outcome(path, Rows(operators=1), SideFile(workload=request.workload, variant=variant))


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "show_trace", lambda path: print(f"explained {path.name}"))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(runner, "record_variant", recorder)
    monkeypatch.setattr(runner, "pick_device", lambda wanted: wanted or "cuda")
    return recorder


def names(recorder: Recorder) -> list[str]:
    return [str(path) for path in recorder.paths]


# ---- flags ----


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("flag", ["--in-dim", "--out-dim", "--warm-calls", "--no-shapes", "--no-explain"])
def test_dashes_and_underscores_both_work(flag: str) -> None:
    value = [] if flag.startswith("--no") else ["3"]
    underscored = "--" + flag[2:].replace("-", "_")
    assert parse("linear", flag, *value) == parse("linear", underscored, *value)


def test_flags_may_stand_on_either_side_of_the_workload() -> None:
    assert parse("--batch", "4", "mlp", "--seq", "8") == parse("mlp", "--batch", "4", "--seq", "8")


def test_compile_is_short_for_a_variant() -> None:
    assert parse("mlp", "--compile").variant == ["compile"]
    assert parse("mlp", "--variant", "eager", "--compile").variant == ["eager", "compile"]


def test_what_follows_two_dashes_is_the_script_s() -> None:
    args = parse("--stacks", "--", "train.py", "--lr", "3", "--compile", "--")
    assert args.script == ["train.py", "--lr", "3", "--compile", "--"]
    assert (args.stacks, args.variant, args.target) == (True, None, [])


def test_the_help_says_of_each_size_what_it_is_and_whose() -> None:
    assert set(SIZES) == {name for workload in WORKLOADS.values() for name in workload.defaults}
    for name, help_text in SIZES.items():
        for workload in WORKLOADS.values():
            assert (f"of {workload.name}:" in help_text) == (name in workload.defaults)
            if name in workload.defaults:
                part = help_text.partition(f"of {workload.name}:")[2].partition("; of ")[0]
                assert f"({workload.defaults[name]}" in part
    assert len(set(SIZES.values())) == len(SIZES)


# ---- names ----


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["mlp"], "mlp/64_128_768_3072_eager"),
        (["mlp", "--compile"], "mlp/64_128_768_3072_compile"),
        (["mlp", "--dtype", "fp32", "--mode", "train"], "mlp/64_128_768_3072_fp32_train_eager"),
        (["linear", "--in_dim", "8"], "linear/1024_8_64_eager"),
        (["matmul-add", "--size", "4096", "--warm-calls", "0"], "matmul-add/4096_eager_cold"),
        (["mlp", "--device", "cpu"], "mlp/4_128_768_3072_fp32_eager_cpu"),
        (["mlp", "--label", "my try/2"], "mlp/64_128_768_3072_eager_my-try-2"),
        (["mlp", "--tag", "x"], "mlp/x"),
    ],
)
def test_files_are_named_by_sizes_and_variant(recorder: Recorder, words: list[str], path: str) -> None:
    assert main(["run", *words]) == 0
    assert names(recorder) == [f"traces/{path}.trace.json.gz"]


def test_a_taken_name_gives_the_next_free_one(recorder: Recorder) -> None:
    main(["run", "linear"])
    main(["run", "linear"])
    assert names(recorder)[1].endswith("1024_32_64_eager.2.trace.json.gz")


def test_output_names_the_file(recorder: Recorder) -> None:
    main(["run", "linear", "-o", "a/b"])
    assert names(recorder) == ["a/b.trace.json.gz"]


def test_output_is_refused_when_taken(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.json").write_text("precious")
    assert main(["run", "linear", "-o", "x.json"]) == 2
    assert "x.json exists" in capsys.readouterr().err
    assert recorder.paths == []
    assert main(["run", "linear", "-o", "x.json", "--force"]) == 0


def test_several_variants_go_to_a_folder(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["run", "linear", "--variant", "eager", "--variant", "compile", "--variant", "eager"]
    assert main([*both, "-o", "out/"]) == 0
    assert names(recorder) == [f"out/1024_32_64_{variant}.trace.json.gz" for variant in ("eager", "compile")]
    assert main([*both, "-o", "x.json"]) == 2
    assert "give a folder" in capsys.readouterr().err


# ---- what is recorded ----


def test_what_was_asked_for_reaches_the_recording(recorder: Recorder) -> None:
    words = ["--wait", "0", "--warmup", "2", "--active", "5", "--no-shapes", "--stacks", "--memory"]
    main(["run", "mlp", *words, "--seed", "7", "--mode", "train", "--label", "try"])
    (request,) = recorder.requests
    assert (request.plan.wait, request.plan.warmup, request.plan.active) == (0, 2, 5)
    assert (request.shapes, request.stacks, request.memory) == (False, True, True)
    assert (request.seed, request.mode, request.label) == (7, "train", "try")
    assert request.parameters == {"batch": 64, "seq": 128, "dim": 768, "hidden": 3072, "dtype": "bf16"}


def test_the_default_is_one_one_three_with_shapes(recorder: Recorder) -> None:
    main(["run", "mlp"])
    (request,) = recorder.requests
    assert (request.plan.wait, request.plan.warmup, request.plan.active) == (1, 1, 3)
    assert (request.shapes, request.stacks, request.memory) == (True, False, False)


def test_smaller_defaults_on_a_cpu_are_said(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "mlp", "--device", "cpu"])
    assert "defaults for a CPU: batch 4 instead of 64, fp32 instead of bf16" in capsys.readouterr().err
    main(["run", "mlp", "--device", "cpu", "--batch", "64", "--dtype", "bf16"])
    assert "defaults for a CPU" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mlpp"], "mlpp is no workload: give one of matmul-add, linear, mlp"),
        (["matmul-add", "--batch", "3"], "matmul-add has no --batch; it has --size, --dtype"),
        (["mlp", "--seq", "0"], "--seq must be at least 1"),
        (["mlp", "--active", "0"], "active must be at least 1"),
        (["mlp", "--warm-calls", "-1"], "--warm-calls must not be negative"),
        (["mlp", "--seed", str(2**64)], f"--seed {2**64} is too large: it must fit into 64 bits"),
        (["mlp", "linear"], "one thing at a time"),
        (["absent.py:make"], "absent.py does not exist"),
        (["--", "absent.py"], "absent.py does not exist"),
        ([], "nothing to run was given"),
        (["--"], "after -- goes a script"),
        (["mlp", "--", "train.py"], "one thing at a time"),
        (["there.py"], "as in foretrace run there.py:make, or the whole script: foretrace run -- there.py\n"),
        (
            ["there.py", "--epochs", "1"],
            "foretrace run there.py:make, or the whole script: foretrace run -- there.py ARGS",
        ),
        (["python", "there.py"], "the whole script: foretrace run -- there.py\n"),
        (["absent.py"], "absent.py does not exist"),
        (["-m", "package.module"], "foretrace run -- -m package.module"),
        (["--", "python", "-u", "there.py"], "its flag -u cannot be passed on; write foretrace run -- "),
        (["--", "python3"], "it needs a script to run; write foretrace run -- "),
        (["--", "torchrun", "there.py"], "torchrun is no Python script"),
        (["--", "/usr/bin/python3", "there.py"], "/usr/bin/python3 is no Python script"),
        (["--", "-m"], "-m needs the name of a module"),
        (["--batch", "3", "--", "train.py"], "--batch does not go with a script"),
        (["--compile", "--", "train.py"], "--variant does not go with a script"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    recorder: Recorder, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    Path("there.py").touch()
    assert main(["run", *words]) == 2
    output = capsys.readouterr()
    assert said in output.err
    assert "Traceback" not in output.err
    assert output.out == ""
    assert recorder.paths == []


# ---- what is printed ----


def test_each_trace_is_explained_and_named(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "linear"])
    output = capsys.readouterr().out
    assert output == (
        "explained 1024_32_64_eager.trace.json.gz\n\ntrace: traces/linear/1024_32_64_eager.trace.json.gz\n"
    )
    main(["run", "linear", "--no-explain"])
    assert capsys.readouterr().out == "trace: traces/linear/1024_32_64_eager.2.trace.json.gz\n"


@pytest.mark.parametrize("more", [[], ["--no-explain"]])
def test_each_variant_ends_with_the_path_of_its_trace(
    recorder: Recorder, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    main(["run", "linear", "--variant", "eager", "--variant", "compile", *more])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("trace: ")] == [f"trace: {name}" for name in names(recorder)]
    assert lines[-1] == f"trace: {names(recorder)[-1]}"


def test_a_trace_that_cannot_be_explained_is_named_all_the_same(
    recorder: Recorder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise InputError("it cannot be explained")

    monkeypatch.setattr(run, "show_trace", fail)
    assert main(["run", "linear", "--variant", "eager", "--variant", "compile"]) == 2
    output = capsys.readouterr()
    assert len(recorder.paths) == 2
    assert output.out.splitlines()[-1] == f"trace: {names(recorder)[-1]}"
    assert output.err.count("it cannot be explained") == 2


def test_where_standard_output_fails_the_trace_is_named_on_standard_error(
    recorder: Recorder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run, "show_trace", fail)
    assert main(["run", "linear"]) == 2
    err = capsys.readouterr().err
    assert f"foretrace: trace: {names(recorder)[0]}\n" in err
    assert err.endswith("standard output cannot be written: No space left on device\n")


def test_json_is_one_document_and_nothing_else(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "linear", "--json", "--variant", "eager", "--variant", "compile"])
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "foretrace.run/1"
    assert [item["side"]["variant"] for item in document["recordings"]] == ["eager", "compile"]
    assert document["recordings"][0]["side_file"].endswith("1024_32_64_eager.trace.side.json")


def test_a_variant_that_fails_does_not_hide_those_before_it(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder.fails = {"compile"}
    assert main(["run", "linear", "--json", "--variant", "eager", "--variant", "compile"]) == 2
    output = capsys.readouterr()
    assert [item["side"]["variant"] for item in json.loads(output.out)["recordings"]] == ["eager"]
    assert "compile fails" in output.err


def test_record_workload_returns_what_it_wrote(recorder: Recorder) -> None:
    assert run.record_workload("linear", output=Path("x.json")) == [Path("x.json")]
    with pytest.raises(InputError):
        run.record_workload("nothing")


# ---- scripts ----


@pytest.mark.parametrize("code", [0, 3, 139])
def test_a_script_s_exit_code_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    Path("train.py").touch()
    asked: dict[str, Any] = {}

    def record(words: list[str], path: Path, **options: Any) -> ScriptOutcome:
        asked.update(options, words=words, path=path)
        return ScriptOutcome(code, path, ["something to know"], None)

    monkeypatch.setattr(script, "record_script", record)
    assert main(["run", "--stacks", "--seed", "3", "--", "train.py", "--json", "-o", "x"]) == code
    assert asked["words"] == ["train.py", "--json", "-o", "x"]
    assert (asked["stacks"], asked["shapes"], asked["seed"]) == (True, True, 3)
    assert asked["path"] == Path.cwd() / "traces/train/script.trace.json.gz"
    output = capsys.readouterr()
    assert "trace: traces/train/script.trace.json.gz" in output.out
    assert "warning: something to know" in output.err


def test_a_script_that_left_no_trace_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").touch()
    monkeypatch.setattr(script, "record_script", lambda *_, **__: ScriptOutcome(5, None, [], "nothing was recorded"))
    assert main(["run", "--", "train.py"]) == 5
    output = capsys.readouterr()
    assert output.out == ""
    assert "nothing was recorded" in output.err
