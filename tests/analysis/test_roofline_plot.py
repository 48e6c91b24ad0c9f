"""The roofline plot: roofs from datasheets, and every kernel placed or left out with its reason."""

import numpy as np
import pytest

from foretrace.analysis.explain import explain
from foretrace.analysis.roofline_plot import roofline_of
from foretrace.model.report import Gpu, Has
from foretrace.model.roofline import BANDWIDTH_STRIP, NOT_PLOTTED, PLANE
from report import samples

MLP = "tests/data/traces/mlp_eager.json.gz"


def test_the_mlp_of_an_h200_has_its_products_in_the_plane_and_its_pointwise_kernels_on_the_strip():
    report = explain(MLP)
    plot = roofline_of(report)
    kinds = [kernel.kind for kernel in report.kernels]
    assert [int(place) for place in plot.place] == [PLANE if k == "gemm" else BANDWIDTH_STRIP for k in kinds]
    first = report.kernels[0]
    assert plot.intensity[0] == first.flops / first.bytes
    assert np.isnan(plot.intensity[kinds.index("elementwise")])
    assert plot.left_out == []


def test_the_roofs_are_the_datasheets_rates_under_the_names_that_kernels_give_them():
    report = explain(MLP)
    roofs = {roof.label: (roof.gbps, roof.tflops) for roof in roofline_of(report).roofs}
    assert roofs == {
        "memory bandwidth, NVIDIA H200 SXM 141GB datasheet": (4800.0, None),
        "bf16 tensor, dense, H200 datasheet": (None, 989.4),
    }
    assert {kernel.peak for kernel in report.kernels} == set(roofs)


def test_a_rate_that_no_kernel_is_held_against_is_no_roof():
    report = samples.mlp_report()
    report.kernels = [samples.kernel(peak=None, of_peak=None)]
    assert [roof.tflops for roof in roofline_of(report).roofs] == [None]


def test_without_a_datasheet_there_are_no_roofs_but_places():
    report = samples.mlp_report()
    report.kernels = [samples.kernel(peak=None, of_peak=None, flops=10, bytes=5, achieved_tflops=1.0)]
    report.trace.gpus = [Gpu(id=0, name="a GPU of tomorrow")]
    plot = roofline_of(report)
    assert plot.roofs == []
    assert (plot.on_plane, plot.on_strip) == (1, 0)
    assert plot.intensity.tolist() == [2.0]


NOTHING = {"flops": None, "bytes": None, "achieved_tflops": None, "achieved_gbps": None}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "neither FLOPs nor bytes follow"),
        ({"duration_us": 0.0, "flops": 10, "bytes": 10}, "without a duration"),
        ({"flops": 10}, "the bytes that go with its FLOPs"),
        ({"op": None, "graph": True}, "replayed by a CUDA graph"),
        ({"op": None}, "the operator that launched it is not known"),
    ],
)
def test_a_kernel_that_is_not_plotted_says_why(changes, reason):
    report = samples.mlp_report()
    report.kernels = [samples.kernel(**(NOTHING | changes))]
    plot = roofline_of(report)
    assert plot.place.tolist() == [NOT_PLOTTED]
    (left,) = plot.left_out
    assert reason in left.reason
    assert (left.kernels, left.kinds) == (1, (report.kernels[0].kind,))


def test_shapes_that_were_not_recorded_are_the_reason():
    report = samples.mlp_report()
    report.trace.has = Has(shapes=False, stacks=False, gpu=True, memory=False, graphs=False)
    report.kernels = [samples.kernel(**NOTHING)]
    assert "record_shapes=True" in roofline_of(report).left_out[0].reason


def test_every_kernel_is_on_the_plot_or_counted_as_left_out():
    report = explain("tests/data/traces/mlp_cudagraph.json.gz")
    plot = roofline_of(report)
    assert plot.on_plane + plot.on_strip + sum(left.kernels for left in plot.left_out) == len(report.kernels)
    assert len(report.kernels) > 0
