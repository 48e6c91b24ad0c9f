"""cuDNN's kernels other than the GEMM-like ones: direct, FFT and Winograd convolutions, layouts, batch norm, RNN.

Attention kernels that cuDNN generates (``cudnn_generated_fort_native_sdpa_…``) are read in ``attention.py``.
"""

from __future__ import annotations

import re
from typing import Any

from ._base import Found, dtype_of
from .cpp import CppName
from .words import kind_by_words

__all__ = ["match"]

# Words of a cuDNN identifier, the first that is found decides: kind, what it is.
_RULES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind, role)
    for pattern, kind, role in (
        (
            r"nchw_?to_?nhwc|nhwc_?to_?nchw|nchw2nhwc|nhwc2nchw|tensor_?transform|transpose|nhwcAddPadding",
            "copy",
            "change of the tensor's memory layout",
        ),
        (r"convertTensor|cvtTensor|convert_dq|cast", "copy", "conversion of the element type"),
        (r"bn_fw_inf|bn_fw_tr|bn_fw", "normalization", "batch norm, forward"),
        (r"bn_bw|bn_backward", "normalization", "batch norm, backward"),
        (
            r"layernorm|layer_norm|ln_fwd|ln_bwd|rmsnorm|rms_norm|normfwd|normbwd|batchnorm|instance_?norm",
            "normalization",
            "normalization",
        ),
        (r"softmax", "softmax", "softmax"),
        (r"pooling|maxpool|avgpool", "reduction", "pooling"),
        (r"LSTM|GRU|RNN|elemWiseRNN|persist", "fused", "recurrent cell"),
        (r"sdpa|fmha|flash|mha|dot_do_o|attention", "attention", "attention"),
        (r"computeOffsets|computeBOffsets|computeWgrad\w*Offsets", "convolution", "address table"),
        (r"winograd", "convolution", "Winograd convolution"),
        (r"fft|flip_filter|r2c|c2r", "convolution", "FFT convolution"),
        (r"dgrad", "convolution", "convolution, gradient of the input"),
        (r"wgrad", "convolution", "convolution, gradient of the weight"),
        (r"conv|fprop|im2col|depthwise|_dw_|scudnn|explicit_|implicit_", "convolution", "convolution"),
        (r"init_device_workspace|scale(?:Packed)?_?Tensor|setTensor", "convolution", "set or scale a tensor"),
        (
            r"op_?tensor|add_?tensor|activation|pointwise|op_generic_tensor|dropout|elementWise|bilinear_sampler",
            "elementwise",
            "pointwise operation",
        ),
        (r"reduce", "reduction", "reduction"),
        (r"ctc", "reduction", "CTC loss"),
        (r"gemm|matmul", "gemm", "matrix multiplication"),
    )
)
_NAMES = re.compile(
    r"(?:cudnn|cask|tensorTransformGeneric|convolveNd|GENERIC_elementWise|implicit_convolve|explicit_convolve|precomputed_convolve|wgrad_alg|wgrad2d|dgrad_|dgrad2d|dgrad_alg"
    r"|wgrad_engine|fft[12]d_|fft1d|flip_filter|nchwToNhwc|nhwcToNchw|winograd|bn_fw|bn_bw|conv2d_grouped_direct"
    r"|conv2d_c1_k1|convolve_common|dgrad_engine|im2col4d|conv_depthwise2d_cudnn|elemWiseRNN|LSTM_elementWise"
    r"|GRU_elementWise|RNN_|persistRNN|RNN_blockPersist|pooling_fw|pooling_bw|softmax_fw|softmax_bw|op_generic_tensor"
    r"|OpTensor|add_tensor|scalePackedTensor|setTensor|calc_bias_diff|dwconv|xmma_cudnn)"
)
_DIRECTION = ((r"dgrad", "backward data"), (r"wgrad|bias_diff", "backward weight"), (r"_bw_|bwd|bprop", "backward"))
_GENERATED = re.compile(r"cudnn_generated_(?:fort_native_|oneshot_native_|\w*?native_)?(\w+)")


def match(parsed: CppName) -> Found | None:
    """Decode a cuDNN name, or ``None``."""
    qualified = parsed.qualified
    if not _NAMES.match(qualified) and "cudnn" not in qualified[:60]:
        return None
    if qualified.startswith(("cudnn_generated", "cudnn_generated_fort")):
        return _generated(parsed)
    decoded: dict[str, Any] = {}
    subject = parsed.base if parsed.base != "kernel" else qualified
    for text in (subject, qualified[-200:]):
        for pattern, kind, role in _RULES:
            if pattern.search(text):
                return _found(parsed, kind, role, decoded)
    kind = kind_by_words(subject) or "convolution"
    return _found(parsed, kind, "", decoded, weak=True)


def _found(parsed: CppName, kind: str, role: str, decoded: dict[str, Any], weak: bool = False) -> Found:
    if role:
        decoded["role"] = role
    types = [dtype for argument in parsed.arguments if (dtype := dtype_of(argument)) and dtype != "int32"]
    if types:
        decoded["dtype"] = types[0]
    if kind == "convolution":
        for pattern, direction in _DIRECTION:
            if re.search(pattern, parsed.base):
                decoded["direction"] = direction
                break
    elif kind == "normalization":
        decoded["direction"] = "backward" if re.search(r"bw", parsed.base) else "forward"
    unknown = [] if role else [parsed.base]
    return Found(kind, "cudnn", parsed.base, decoded, unknown, weak)


def _generated(parsed: CppName) -> Found | None:
    found = _GENERATED.match(parsed.qualified)
    if not found:
        return None
    rest = found[1]
    kind = kind_by_words(rest) or "fused"
    return Found(kind, "cudnn", "cudnn " + rest, {"generated": True}, [], weak=kind == "fused", complete=True)
