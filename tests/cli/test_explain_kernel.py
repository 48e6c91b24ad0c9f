"""``foretrace explain-kernel``: names in, words or JSON lines out."""

from __future__ import annotations

import io
import json

import pytest

from foretrace.cli import main

NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
TRITON = "triton_poi_fused__unsafe_view_gelu_mul_0"


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


def test_words_say_what_a_kernel_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-kernel", NVJET, TRITON]) == 0

    out = capsys.readouterr().out
    assert "a matrix multiplication of cuBLAS" in out
    assert "operators gelu, mul; views view; pointwise template" in out


def test_json_lines_hold_exactly_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-kernel", "--json", NVJET, TRITON]) == 0

    captured = capsys.readouterr()
    lines = [json.loads(line) for line in captured.out.splitlines()]
    assert [list(line) for line in lines] == [["name", "kind", "family", "decoded", "unknown"]] * 2
    assert [line["name"] for line in lines] == [NVJET, TRITON]
    assert [line["kind"] for line in lines] == ["gemm", "fused"]
    assert captured.err == ""


@pytest.mark.parametrize("arguments", [["-"], []])
def test_names_come_one_a_line_from_standard_input(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe(monkeypatch, f"{NVJET}\r\n\n   \n{TRITON}\n".encode())

    assert main(["explain-kernel", "--json", *arguments]) == 0
    assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == [NVJET, TRITON]


def test_bytes_that_are_no_text_do_not_stop_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe(monkeypatch, b"volta_sgemm_\xff\xfe\n" + TRITON.encode())

    assert main(["explain-kernel", "--json"]) == 0
    assert len([json.loads(line) for line in capsys.readouterr().out.splitlines()]) == 2


def test_the_operator_may_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-kernel", "--json", "--op", "aten::mm", "mystery"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "gemm"


def test_no_name_is_one_sentence_and_exit_code_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe(monkeypatch, b"\n")

    assert main(["explain-kernel"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("foretrace: No kernel name was given")
    assert captured.err.count("\n") == 1


def test_an_argument_that_is_no_text_has_a_hole_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-kernel", "--json", "--op", "aten::\udcfe", "bad\udcff"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["name"] == "bad\ufffd"
    assert "\udcff" not in str(line)


def test_a_terminal_gets_nothing_to_obey(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-kernel", "a\x1b[31mb\x07\u202e"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a\\x1b[31mb\\x07\\u202e"
    assert all(line.isprintable() for line in lines)
