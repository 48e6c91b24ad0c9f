"""The page of a prediction: what will run, with intervals, and nowhere a number that looks measured."""

import re

import pytest

from foretrace.analysis.drawn import drawn_of
from foretrace.prediction.predict import predict_program
from foretrace.report.html.predict import predict_page
from prediction.programs import H200, Roofline, geglu
from report.html.test_explain_page import Seen, flat, seen
from report.samples import mlp_report


def predicted(**program: object):
    return predict_program(geglu(**program), H200, clock=Roofline(memset=True))


def page_of(prediction) -> Seen:
    report = prediction.report()
    return seen(predict_page(report, drawn_of(prediction.trace(), report)))


@pytest.fixture(scope="module")
def mlp():
    prediction = predicted(modelled=["inputs [64, 128, 768] bf16"])
    return prediction.info, page_of(prediction)


def test_what_the_screen_says_is_in_the_page(mlp):
    info, page = mlp
    text = flat(page.text)
    for said in (
        "mlp, eager, forward",
        "PREDICTED for NVIDIA H200 SXM 141GB; nothing ran, nothing was measured",
        "inputs [64, 128, 768] bf16",
        "compute-bound",
        "5 kernels and 3 memsets, 8 launches a step",
        "172 µs (166 µs to 189 µs)",
        "103 µs to dispatch the step, without a profiler",
        "8192×3072×768 TN",
        "datasheet roofline (98.6 % of the GPU time)",
        "holds about 80 % of measured calls",
        *info.basis,
        *info.peaks,
    ):
        assert flat(said) in text


def test_every_part_that_could_be_taken_for_a_recording_says_that_it_is_none(mlp):
    titles = [flat(title) for title in re.findall(r"\n\s*\d+ ([^\n]+)\n", mlp[1].text)]
    for title in ("Timeline", "Roofline", "Dispatch chain", "Row by row"):
        assert any(each.endswith("predicted") for each in titles if each.startswith(title)), title
    said, _ = mlp[1].columns("data-timeline")
    assert all(lane["group"].startswith("PREDICTED · ") for lane in said["lanes"])


def test_rows_of_a_group_are_named_by_their_events(mlp):
    info, page = mlp
    said, _ = page.columns("data-predicted")
    assert sorted(event for group in said["groups"] for event in group["events"]) == sorted(
        row.event for row in info.rows
    )
    assert [len(group["events"]) for group in said["groups"]] == [group.kernels for group in info.groups]
    _, columns = page.columns("data-timeline")
    assert {row.event for row in info.rows} <= {int(event) for event in columns["event"]}


def test_an_interval_holds_its_time_and_is_drawn_to_one_scale(mlp):
    info, page = mlp
    said, _ = page.columns("data-predicted")
    most = max(group.high_us for group in info.groups)
    for group, drawn in zip(info.groups, said["groups"], strict=True):
        assert drawn["low"] <= drawn["at"] <= drawn["high"]
        assert drawn["at"] * most == pytest.approx(group.us)
    assert max(drawn["high"] for drawn in said["groups"]) == 1


def test_what_was_guessed_is_told_before_what_will_run():
    page = page_of(predicted(unknown={"aten::foo<b>": "no rule knows its kernels"}, notes=["dropout draws nothing"]))
    ids = [attrs["id"] for attrs in page.all("section")]
    assert ids[:3] == ["section-prediction", "section-guessed", "section-groups"]
    text = flat(page.text)
    assert "aten::foo<b>: no rule knows its kernels" in text
    assert "A lower bound: 1 part of the program is guessed or not followed" in text
    assert "dropout draws nothing" in text


def test_a_program_that_launches_nothing_is_a_page_too(mlp):
    prediction = predicted()
    report = prediction.report()
    report.prediction.rows, report.prediction.groups = [], []
    report.kernels, report.transfers = [], []
    page = seen(predict_page(report, drawn_of(prediction.trace(), report)))
    assert "Nothing is launched: no operator of this step does work on the GPU." in flat(page.text)
    assert page.all("section", id="section-groups") == []


def test_a_recording_is_no_prediction():
    report = mlp_report()
    with pytest.raises(ValueError, match="not of a predicted trace"):
        predict_page(report, drawn_of(predicted().trace(), report))
