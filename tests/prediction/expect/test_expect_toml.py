"""Expectation files: what they say, and that every mistake is told with its line."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace import expect
from foretrace.errors import InputError
from foretrace.knowledge.expectations import PREDICTED_HEADING
from foretrace.prediction.expect import parse_line, parse_toml, read_toml
from foretrace.prediction.expect.toml_lines import Lines

DOCS = Path(__file__).parents[3] / "docs" / "concepts" / "expectations.md"
EXAMPLE = Path(__file__).parents[3] / "examples" / "expectations.toml"


def test_a_file_says_what_python_says():
    text = """
    kernels = 5
    gemm = [">= 2", "<= 4"]

    [[kernel]]
    tile = "256x128"
    count = 2

    [region.mlp_fwd]
    gpu_busy_us = "<= 250"
    kernel = { epilogue = ["bias"], count = 1 }

    [step."#3".op."aten::mm"]
    calls = 3
    """
    assert set(parse_toml(text).clauses) == set(
        expect(
            expect("gemm >= 2", "gemm <= 4", kernels=5, kernel={"tile": "256x128", "count": 2}),
            expect(region="mlp_fwd", gpu_busy_us="<= 250", kernel={"epilogue": "bias", "count": 1}),
            expect(step="#3", op="aten::mm", calls=3),
        ).clauses
    )


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("kernels = 5\ngemmm = 3", 2, "gemmm is no quantity; did you mean gemm?"),
        ("kernels = 5\n\n# so\ngemm = 6", 4, "6 gemm cannot be among 5 kernels"),
        ("a = 1\nkernels = 5\n[regoin.x]\ngemm=1", 1, "a is no quantity"),
        ("kernels = 5\n[regoin.x]\ngemm=1", 2, "did you mean region"),
        ("[region]\ngemm = 3", 2, "stands in no named region"),
        ("region = 'x'", 1, "write a table"),
        ("kernels = 5\nop = 3", 2, "write a table"),
        ("[op.x]\nkernels = 1\n[op.x.op.y]\nkernels = 1", 3, "one op inside another"),
        ("[[kernel]]\ntile = 'a'\n\n[[kernel]]\ncount = 2\ntle = 'b'", 6, "tle is no field of a kernel; did you mean"),
        ("[[kernel]]\ncount = 2", 1, "needs a field"),
        ("[[kernel]]\nname = '/(/'", 2, "no regular expression"),
        ("kernel = 3", 1, "is a pattern"),
        ("gemm = 1\nkernels = true", 2, "true is no number"),
        ("order = [\n  'gemm',\n  'gelu',\n]\n", 1, "gelu is no kind"),
        ("gpu_busy_us = 236", 1, "write '236 us ± 10%'"),
        ("x = [1,\n2", 2, "no TOML"),
        ("gemm = 3\ngemm = 4", 2, "no TOML"),
        ("gemm = nan", 1, "finite"),
        ('"""\nkernels', 1, "no TOML"),
        ("gemm = 1979-05-27", 1, "is no number"),
        ("same_kernels_as = { trce = 'b' }", 1, "takes trace and kind"),
        ("", None, "holds no expectation"),
        ("[region.x]", None, "holds no expectation"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, line: int | None, said: str):
    with pytest.raises(InputError) as raised:
        parse_toml(text, name="e.toml")
    place = f"e.toml:{line}: " if line else "e.toml "
    assert str(raised.value).startswith(place), str(raised.value)
    assert said in str(raised.value)


def test_lines_are_found_behind_long_strings_and_arrays():
    text = (
        'a = """\n[b]\nc = 1\n"""\nd = [\n  "#",\n  "]",\n]  # [e]\n[f."g.h"]\ni.j = { k = 1 }\n[[l]]\n[[l]]\nm = 1\n'
    )
    lines = Lines(text)
    found = {
        path: lines.of(path) for path in [("a",), ("d",), ("f", "g.h"), ("f", "g.h", "i", "j", "k"), ("l", 1, "m")]
    }
    assert list(found.values()) == [1, 5, 9, 10, 13]
    assert lines.of(("b",)) is None
    assert lines.of(("f", "g.h", "not there")) == 9


@given(text=st.text(alphabet="ab=.[]{}\"'\n# ,1\\", max_size=60))
def test_no_text_ends_in_anything_but_a_sentence(text: str):
    with pytest.raises(InputError):
        parse_toml(text)


def test_a_file_that_cannot_be_read_is_said_to_be_so(tmp_path: Path):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for path, said in (
        (tmp_path / "none.toml", "does not exist"),
        (tmp_path, "is a directory"),
        (tmp_path / "binary.toml", "no text in UTF-8"),
    ):
        with pytest.raises(InputError, match=said):
            read_toml(path)


def test_a_file_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("gemm = 3\n"))
    assert read_toml("-") == expect(gemm=3)


def test_another_trace_is_looked_for_beside_the_file(tmp_path: Path):
    (tmp_path / "e.toml").write_text("same_kernels_as = 'b.json'", encoding="utf-8")
    assert read_toml(tmp_path / "e.toml").clauses[0].words == (str(tmp_path / "b.json"),)


def test_a_byte_order_mark_and_windows_lines_do_no_harm(tmp_path: Path):
    (tmp_path / "e.toml").write_bytes(b"\xef\xbb\xbfkernels = 5\r\n\r\ngemmm = 3\r\n")
    with pytest.raises(InputError, match=r"e\.toml:3: gemmm"):
        read_toml(tmp_path / "e.toml")


# ---- what the documentation shows ----


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


def test_the_documented_files_and_lines_can_be_read():
    files, lines = _blocks("toml"), [line for block in _blocks("text") for line in block.splitlines()]
    assert len(files) == 1
    assert len(lines) > 8
    for text in files:
        assert len(parse_toml(text)) > 8
    for line in lines:
        parse_line(line)


def test_the_documented_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    traces = Path(__file__).parents[2] / "data" / "traces"
    (tmp_path / "trace.json.gz").write_bytes((traces / "mlp_eager.json.gz").read_bytes())
    monkeypatch.chdir(tmp_path)
    (code,) = _blocks("python")
    exec(code, {})


def test_every_quantity_is_documented():
    from foretrace.knowledge.kernels import KINDS
    from foretrace.prediction.expect.quantities import QUANTITIES

    page = DOCS.read_text(encoding="utf-8")
    kind_times = {f"{kind}_us" for kind in KINDS}
    named = {name for name in QUANTITIES if name not in kind_times and name != "kernel"}
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []


def test_the_heading_of_a_predicted_file_quotes_the_documented_figures():
    page = DOCS.with_name("prediction.md").read_text(encoding="utf-8")
    for row in (
        "programs whose number of kernels is exactly right",
        "programs whose number of memsets is exactly right",
        "measured steps inside the predicted interval",
        "measured kernels inside their intervals",
    ):
        (share,) = re.findall(rf"\| {row} \| (\d+ %) \|", page)
        assert share in PREDICTED_HEADING, row


def test_the_example_file_can_be_read():
    assert len(read_toml(EXAMPLE)) > 4
