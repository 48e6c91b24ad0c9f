"""Copies: hidden ones, casts, graph inputs, gradient buckets, host transfers."""

from __future__ import annotations

import pytest
from timelines import BF16, CAST, FP32, Program, of_trace, pointwise

COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast"
    "<at::native::direct_copy_kernel_cuda>>"
)
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 4>"
X = [4, 1024, 16, 64]


def test_a_reshape_that_had_to_copy() -> None:
    program = Program().step().run("aten::copy_", X, X, kernel=COPY, inside=("aten::reshape", "aten::clone"))
    (finding,) = program.findings("hidden_copy")
    assert finding.title == "1 hidden copy a step: reshape → clone → copy_ (10.0 µs)"
    assert finding.saving_us == pytest.approx(10)
    assert finding.upper_bound, "a layout that saves the copy may cost something elsewhere"
    assert "Produce the tensor in the layout" in (finding.suggestion or "")


@pytest.mark.parametrize(
    ("inside", "advice"),
    [
        (("autograd::engine::evaluate_function: SliceBackward0", "aten::slice_backward"), "split, chunk or unbind"),
        (("aten::pad", "aten::constant_pad_nd"), "padded size"),
        (("aten::pow",), "rms_norm"),
        (("aten::mm", "aten::clone"), "A loss that is no plain sum"),
        (
            ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::contiguous", "aten::clone"),
            "channels_last",
        ),
        (("aten::linear", "aten::reshape", "aten::clone"), "Produce the tensor in the layout"),
        (("aten::layer_norm", "aten::contiguous", "aten::clone"), "If it is the layout"),
    ],
)
def test_the_advice_fits_what_made_the_copy(inside: tuple[str, ...], advice: str) -> None:
    program = Program().step().run("aten::copy_", X, X, kernel=COPY, inside=inside)
    (finding,) = program.findings("hidden_copy")
    assert advice in (finding.suggestion or "")


def test_a_long_path_keeps_its_two_ends_in_the_title() -> None:
    inside = ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::contiguous", "aten::clone")
    (finding,) = Program().step().run("aten::copy_", X, X, kernel=COPY, inside=inside).findings("hidden_copy")
    assert finding.title == "1 hidden copy a step: conv2d → convolution → _convolution (10.0 µs)"
    assert "contiguous → clone → copy_" in finding.explanation


def test_places_that_are_told_together_get_the_advice_of_each() -> None:
    program = Program().step()
    for us, name in enumerate(("slice_backward", "reshape", "mm", "pow", "constant_pad_nd")):
        program.run("aten::copy_", X, X, kernel=COPY, us=20 - us, inside=(f"aten::{name}",))
    together, *single = program.findings("hidden_copy")  # what saves most first
    assert len(single) == 3
    assert together.title == "2 hidden copies a step: pow and constant_pad_nd (33.0 µs)"
    assert "pow → copy_, constant_pad_nd → copy_" in together.explanation
    assert "rms_norm" in (together.suggestion or "")
    assert "padded size" in (together.suggestion or "")


def test_many_causes_told_together_get_no_advice_that_fits_only_one() -> None:
    program = Program().step()
    for name in ("slice_backward", "reshape", "mm", "pow", "constant_pad_nd", "_convolution"):
        program.run("aten::copy_", X, X, kernel=COPY, inside=(f"aten::{name}",))
    together = program.findings("hidden_copy")[0]
    assert together.title.startswith("3 hidden copies a step: ")
    assert (together.suggestion or "").startswith("If it is the layout")


@pytest.mark.parametrize("asked", [(), ("aten::clone",), ("aten::contiguous", "aten::clone")])
def test_a_copy_that_was_asked_for_is_not_hidden(asked: tuple[str, ...]) -> None:
    program = Program().step().run("aten::copy_", X, X, kernel=COPY, inside=asked)
    assert not program.findings("hidden_copy")


def test_joining_one_tensor_with_an_empty_one_is_a_copy() -> None:
    program = Program().step()
    program.run("aten::cat", [[0], X], [], kernel=CAT, dtypes=["TensorList", "Scalar"])  # type: ignore[list-item]
    (finding,) = program.findings("hidden_copy")
    assert "cat of one tensor" in finding.title
    assert "use_cache=False" in (finding.suggestion or "")


def test_joining_two_tensors_is_what_cat_is_for() -> None:
    program = Program().step()
    program.run("aten::cat", [X, X], [], kernel=CAT, dtypes=["TensorList", "Scalar"])  # type: ignore[list-item]
    assert not program.findings("hidden_copy")


def test_casts_are_counted_apart_by_their_types() -> None:
    program = Program().step()
    program.run("aten::copy_", X, X, dtypes=[FP32, BF16], kernel=CAST, inside=("aten::to", "aten::_to_copy"))
    report = program.report()
    (finding,) = [f for f in report.findings if f.rule == "dtype_casts"]
    assert "bf16 → fp32 ×1" in finding.explanation
    assert finding.saving_us is None
    assert not [f for f in report.findings if f.rule == "hidden_copy"]


def test_a_cuda_graph_copies_its_static_input() -> None:
    (finding,) = of_trace("mlp_cudagraph", "graph_input_copy")
    assert finding.count == 3
    assert finding.saving_us == pytest.approx(17, abs=0.1)


def test_a_copy_long_before_a_graph_is_no_input_of_it() -> None:
    program = Program().step().run("aten::copy_", X, X, kernel=COPY)
    program.run("aten::gelu", X, kernel=pointwise("GeluCUDAKernelImpl"))
    graph = program.build.call("cudaGraphLaunch", program.now, 10)
    program.build.kernel("some_kernel", program.gpu, 10, launch=graph)
    program.now += 20
    assert not program.findings("graph_input_copy")


def test_ddp_copies_its_buckets_back() -> None:
    (finding,) = of_trace("ddp_rank0", "ddp_bucket_copies")
    assert finding.title.startswith("DistributedDataParallel copies 39 gradients a step")
    assert "gradient_as_bucket_view" in (finding.suggestion or "")


def test_pageable_copies_are_a_warning_where_they_take_time() -> None:
    program = Program().step()
    program.run("aten::copy_", X, X, memcpy="Memcpy HtoD (Pageable -> Device)", us=60, inside=("aten::to",))
    (finding,) = program.findings("pageable_transfers")
    assert finding.severity == "warning"
    assert "from the host to the GPU" in finding.title


def test_pinned_copies_are_only_mentioned() -> None:
    program = Program().step().run("aten::copy_", X, X, memcpy="Memcpy HtoD (Pinned -> Device)", us=60)
    assert program.findings("host_transfers")
    assert not program.findings("pageable_transfers")


def test_reading_one_value_is_a_matter_of_waiting_not_of_copying() -> None:
    program = Program().step()
    copy = "Memcpy DtoH (Device -> Pageable)"
    program.run("aten::_local_scalar_dense", [], memcpy=copy, us=60, inside=("aten::item",))
    report = program.report()
    assert not [f for f in report.findings if f.rule in ("host_transfers", "pageable_transfers")]
