"""Reports as files: read back, or refused in one sentence."""

import json
from pathlib import Path

import pytest

import foretrace
from foretrace.errors import InputError
from foretrace.model.reportfile import read_report
from foretrace.report import to_json

SAMPLE = Path(foretrace.__file__).parent / "cli" / "samples" / "h200_mlp_eager.trace.json.gz"


@pytest.fixture(scope="module")
def text() -> str:
    return to_json(foretrace.explain(SAMPLE)).decode()


def test_a_report_is_read_back(tmp_path: Path, text: str):
    path = tmp_path / "report.json"
    path.write_text(text)
    report = read_report(path)
    assert report is not None
    assert to_json(report).decode() == text


def test_any_other_file_is_none():
    assert read_report(SAMPLE) is None
    assert read_report("no such file") is None


def test_a_damaged_one_is_refused(tmp_path: Path, text: str):
    document = json.loads(text)
    document["kernels"][0]["decoded"]["epilogue"] = 7
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document, separators=(",", ":")))
    with pytest.raises(InputError, match="cannot be read"):
        read_report(path)
