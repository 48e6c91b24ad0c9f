"""Which measured operator stands for which."""

import pytest

from foretrace.knowledge.calibration import calibration_for
from foretrace.knowledge.calibration.stand_ins import ATTENTION_CAUSAL, attention_as, generated_as, measured_as
from foretrace.knowledge.gpus import find

GROUPS = calibration_for(find("H200")).groups


@pytest.mark.parametrize(
    ("op", "kind", "said", "group"),
    [
        ("aten::mul", "elementwise", {"reads": 2}, "aten::mul bf16"),
        ("aten::gelu", "elementwise", {"reads": 1}, "aten::gelu bf16"),
        ("aten::gelu", "elementwise", {"reads": 1, "tanh": True}, "aten::gelu tanh bf16"),
        ("aten::sigmoid", "elementwise", {"reads": 1}, "aten::exp bf16"),
        ("aten::native_layer_norm", "normalization", {"reads": 3}, "aten::layer_norm bf16"),
        ("aten::group_norm", "normalization", {"reads": 3}, "aten::layer_norm bf16"),
        ("aten::prod", "reduction", {"reads": 1}, "aten::sum bf16"),
        ("aten::neg", "elementwise", {"reads": 1}, "aten::relu bf16"),
        ("aten::atan2", "elementwise", {"reads": 2}, "aten::mul bf16"),
        ("aten::addcmul", "elementwise", {"reads": 3}, "aten::mul bf16"),
        ("aten::ones", "elementwise", {"reads": 0}, "aten::fill_ bf16"),
        ("aten::copy_", "copy", {"reads": 1}, "aten::relu bf16"),
        ("aten::copy_", "copy", {"reads": 1, "crossed": True}, "aten::copy_ transposed bf16"),
        ("aten::copy_", "copy", {"reads": 1, "strided": True}, "aten::add broadcast bf16"),
        ("aten::copy_", "copy", {"reads": 1, "source": "fp32"}, "aten::copy_ fp32 to bf16 fp32"),
        ("aten::add", "elementwise", {"reads": 2, "strided": True}, "aten::add broadcast bf16"),
        ("aten::add", "elementwise", {"reads": 1}, "aten::add scalar bf16"),
        ("aten::copy_", "copy", {"reads": 1, "strided": True, "expanded": True}, "aten::copy_ expanded bf16"),
        ("aten::zero_", "memset", {}, "memset bf16"),
        ("aten::copy_", "memcpy", {"reads": 1}, "memcpy bf16"),
    ],
)
def test_operators(op, kind, said, group):
    assert measured_as(op, kind, "bf16", **said) == group
    assert group in GROUPS


@pytest.mark.parametrize(
    ("dtype", "element"), [("fp16", "bf16"), ("bf16", "bf16"), ("fp32", "fp32"), ("int64", "fp32"), ("?", "fp32")]
)
def test_types_go_by_their_width(dtype, element):
    assert measured_as("aten::mul", "elementwise", dtype, reads=2) == f"aten::mul {element}"
    assert generated_as(("mul",), dtype, reads=2) == f"aten::mul {element}"
    assert attention_as("aten::_flash_attention_forward", dtype) == f"attention {element}"


@pytest.mark.parametrize(
    ("parts", "reads", "group"),
    [
        (("mul", "add"), 2, "aten::mul fp32"),
        (("gelu", "mul"), 2, "aten::gelu_backward fp32"),
        (("gelu_backward",), 4, "aten::gelu_backward fp32"),
        (("silu",), 1, "aten::gelu tanh fp32"),
        (("add",), 1, "aten::relu fp32"),
        ((), 0, "aten::fill_ fp32"),
    ],
)
def test_generated_kernels_stream(parts, reads, group):
    assert generated_as(parts, "fp32", reads=reads) == group
    assert group in GROUPS


def test_attention_has_its_direction():
    assert attention_as("aten::_scaled_dot_product_flash_attention_backward", "bf16") == "attention backward bf16"
    assert {attention_as(op, dtype) for op in ATTENTION_CAUSAL for dtype in ("bf16", "fp32")} <= GROUPS


def test_the_place_of_is_causal_is_that_of_torchs_schema():
    torch = pytest.importorskip("torch", reason="the schemas are torch's")
    for op, place in ATTENTION_CAUSAL.items():
        schema = getattr(torch.ops.aten, op.removeprefix("aten::")).default._schema
        assert schema.arguments[place].name == "is_causal", op
