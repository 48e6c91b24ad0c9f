"""The JSON report: one line, valid UTF-8, null for what is unknown."""

import json
import math

from foretrace.report import to_json
from report.samples import cpu_report, finding, mlp_report, step, trace_info


def test_it_is_one_line_of_the_schema():
    text = to_json(mlp_report())
    assert text.count(b"\n") == 1
    assert text.endswith(b"}\n")
    assert json.loads(text)["schema"] == "foretrace.report/1"


def test_indent_changes_only_the_layout():
    assert json.loads(to_json(mlp_report(), indent=2)) == json.loads(to_json(mlp_report()))
    assert to_json(mlp_report(), indent=2).startswith(b'{\n  "schema"')


def test_unknown_is_null():
    document = json.loads(to_json(cpu_report()))
    assert document["steps"][0]["gpu_busy_us"] is None
    assert set(document["coverage"].values()) == {None}


def test_numbers_json_does_not_have_are_null():
    document = json.loads(to_json(mlp_report(steps=[step(gpu_busy_us=math.nan, gpu_idle_us=math.inf)])))
    assert document["steps"][0]["gpu_busy_us"] is None
    assert document["steps"][0]["gpu_idle_us"] is None


def test_controls_are_escaped_and_survive_the_round_trip():
    title = 'a\x1b[2J\x7f\x9b31m"\\u0041\u202eµ'
    text = to_json(mlp_report(findings=[finding(title=title)]))
    assert not any(byte < 0x20 or byte == 0x7F for byte in text[:-1])
    assert b"\xc2\x9b" not in text
    assert json.loads(text)["findings"][0]["title"] == title


def test_half_a_surrogate_pair_becomes_the_replacement_character():
    text = to_json(mlp_report(trace=trace_info(path="caf\udce9.json")))
    assert json.loads(text)["trace"]["path"].startswith("caf\ufffd")
