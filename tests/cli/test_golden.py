"""Golden reports of small real traces, text and JSON: any change of a number or a word shows here.

``pytest tests/cli/test_golden.py --regolden`` writes them anew. They are reviewed like code: read the diff,
and commit it only when every changed number is understood.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from foretrace.analysis import explain
from foretrace.model.report import Report
from foretrace.report import View, render, to_json
from schemas import validator

DATA = Path(__file__).parents[1] / "data"
NAMES = [
    "matmul_add_eager",
    "linear_eager",
    "linear_compile",
    "mlp_eager",
    "mlp_compile",
    "mlp_liger",
    "mlp_cudagraph",
    "mlp_train_eager",
]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    # A relative path, so that the report does not hold this machine's folders.
    monkeypatch.chdir(DATA / "traces")
    return str(request.param)


def test_text(name: str, regolden: bool):
    text = render(explain(f"{name}.json.gz"), View(everything=True))
    golden = DATA / "golden" / f"{name}.txt"
    if regolden:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_json(name: str, regolden: bool):
    text = to_json(explain(f"{name}.json.gz"), indent=2)
    golden = DATA / "golden" / f"{name}.json"
    if regolden:
        golden.write_bytes(text)
    assert _close(json.loads(text), json.loads(golden.read_bytes()))
    validator(Report).validate(json.loads(text))


def test_the_first_screen_fits(name: str):
    assert len(render(explain(f"{name}.json.gz")).splitlines()) <= 45


def _close(one: Any, other: Any) -> bool:
    """Equal, with room for the last bits of a float, which libraries and processors may round differently."""
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-9, abs=1e-12)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    return bool(one == other)
