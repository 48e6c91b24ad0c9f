"""The screen of a prediction: times with their intervals, the verdict, floors, and what is not known."""

import pytest

from foretrace.prediction.predict import predict_program
from foretrace.report.predict import render_prediction
from foretrace.report.text import width_of
from foretrace.report.view import View
from prediction.programs import H200, Roofline, geglu
from report.samples import mlp_report


def screen(view: View | None = None, *, host_us: float = 3.0, **program: object) -> list[str]:
    prediction = predict_program(geglu(**program), H200, clock=Roofline(memset=True, host_us=host_us))
    return render_prediction(prediction.report(), view).splitlines()


def test_one_screen_says_what_will_run_how_long_and_what_bounds_it():
    lines = screen()
    assert lines[:2] == [
        "foretrace  mlp, eager, forward",
        "PREDICTED for NVIDIA H200 SXM 141GB; nothing ran, nothing was measured",
    ]
    assert lines[3] == "GPU       busy 172 µs a step (166 µs to 189 µs): 5 kernels and 3 memsets, 8 launches"
    assert lines[4] == "CPU       103 µs to dispatch the step, without a profiler"
    assert lines[5] == "VERDICT   compute-bound"
    table = [line.split() for line in lines if line.startswith("  aten::")]
    assert " ".join(table[0]) == "aten::mm gemm 8192×3072×768 TN 2 78.1 78.1–86.0 45.4 77.3 135 MB compute"
    assert [row[1] for row in table] == ["gemm", "gemm", "elementwise", "elementwise", "memset"]
    assert len(lines) < 30


def test_helper_kernels_stand_beside_the_calls_and_what_was_modelled_in_the_title():
    report = predict_program(geglu(modelled=["inputs [64, 128, 768] bf16"]), H200, clock=Roofline()).report()
    assert report.prediction is not None
    report.prediction.groups[0].kernels = 6
    report.prediction.memcpys = 2
    text = render_prediction(report)
    assert "nothing was measured\ninputs [64, 128, 768] bf16\n" in text
    assert "all calls of a step together; +: helper kernels" in text
    assert " 2 +4 " in text
    assert "2 copies" in text


def test_a_step_bound_by_its_launches_says_so():
    text = "\n".join(screen(host_us=50.0))
    assert "VERDICT   overhead-bound\n          • launch-bound at this size: the CPU needs longer" in text


def test_what_could_not_be_predicted_and_what_was_assumed_is_told():
    text = "\n".join(screen(unknown={"aten::foo": "no rule knows its kernels"}, notes=["dropout draws nothing"]))
    assert "GUESSED  so the numbers above are a lower bound\n  • aten::foo: no rule knows its kernels" in text
    assert "Note: dropout draws nothing" in text
    assert "Times rest on: datasheet roofline (98.6 % of the GPU time)" in text


def test_rows_beyond_the_limit_are_counted():
    lines = screen(View(top=2))
    assert sum(line.startswith("  aten::") for line in lines) == 2
    assert any("3 more rows" in line for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(width_of, screen(View(width=width)))) <= width


def test_a_step_without_gpu_work_says_so():
    text = "\n".join(screen(roots=[]))
    assert "nothing is launched" in text
    assert "WHAT WILL RUN" not in text


def test_a_recording_has_no_such_screen():
    with pytest.raises(ValueError, match="not of a predicted trace"):
        render_prediction(mlp_report())
