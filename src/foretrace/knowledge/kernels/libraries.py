"""Hand-written kernels of serving and training libraries: told by namespace or prefix, then by their words."""

from __future__ import annotations

import re
from typing import Any

from . import serving
from ._base import Found, dtype_of
from .cpp import CppName
from .triton import signature_free
from .words import activation_words, kind_by_words, words_of

__all__ = ["match"]

# Namespace or name prefix → library. Source: the repositories of the libraries named.
_LIBRARIES = tuple(
    (re.compile(pattern), library)
    for pattern, library in (
        (r"vllm::|wvSplitK", "vllm"),
        (r"sgl_|sglang|sgl::", "sglang"),
        (r"aiter::|ck_tile_aiter|aiter_", "aiter"),
        (r"flashinfer::", "flashinfer"),
        (
            r"fbgemm_gpu|split_embedding|fbgemm::|bounds_check_indices|linearize_index|linearize_cache|lru_cache|lxu_cache"
            r"|jagged_|permute_2D|permute_1D|block_bucketize|delinearize",
            "fbgemm",
        ),
        (r"transformer_engine|nvte_", "transformer_engine"),
        (
            r"layer_norm::|cuApplyLayerNorm|cuComputeGradInput|cuComputePartGrad|scaled_masked_softmax|scaled_upper_triang"
            r"|fused_rope|apex|multi_tensor|fused_weight_gradient",
            "apex",
        ),
        (r"tensorrt_llm|trtllm|moe::dev|batchedGemm|bmm_|gemm_M|gemm_B", "trtllm"),
        (r"deep_gemm|dpsk::|fp8_gemm|DeepGemm", "deepgemm"),
        (r"marlin|Marlin|machete", "marlin"),
        (r"awq|gptq", "awq_gptq"),
        (r"exllama|gemm_half_q_half", "exllama"),
        (r"(?:^|::)k(?:gemm_4bit|Quantize|Dequantize|Optimizer|PreconditionOptimizer|Int8|gemm_)", "bitsandbytes"),
        (r"ggml|mul_mat|quantize_q8_1|dequantize_block", "ggml"),
        (r"causal_conv1d", "causal_conv1d"),
        (r"selective_scan|_chunk_scan|_chunk_state|_state_passing|_bmm_chunk|_selective", "mamba"),
        (
            r"chunk_\w*(?:delta|gla|kda|fwd_kernel_[oh]|bwd_kernel)|fused_recurrent|chunk_local_cumsum|recompute_w_u"
            r"|solve_tril|chunk_scaled_dot",
            "fla",
        ),
        (r"^_?(?:DWf_DW_dfg|fg|(?:exact|approx)_(?:forward|backward))_kernel$", "unsloth"),
        (r"xformers|fmha_", "xformers"),
        (r"megatron|fused_bias_swiglu", "megatron"),
        (r"natten", "natten"),
        (r"spconv|cumm", "spconv"),
        (r"torchao", "torchao"),
        (
            r"_matmul_ogs|_topk_forward|_topk_backward|_combined_routing|_sum_bitmatrix|_p_matmul|_routing_|_expt_data"
            r"|_swiglu_fn|_reduce_grouped|_bitmatrix_metadata|_ragged_tensor",
            "triton_kernels",
        ),
        (r"magma_", "magma"),
        (
            r"cusolver|getrf|getf2|getrs|potrf|geqr|gesvd|syevj|syevd|larf|orm[qt]|orgqr|batched_geqrf|heevj|laswp|ipiv"
            r"|sytrd|steqr|stedc|gebal|(?:^|_)svd_|lansy|lascl|lacpy|xxtrf|sytrf|pivot|pivinfo|colperm|lowerA",
            "cusolver",
        ),
        (r"cusparse|csrmv|csrmm|spmm", "cusparse"),
        (
            r"regular_fft|vector_fft|multi_bluestein|bluestein|fft_|cufft|real_post|rocfft|composite_2way|__half_fft"
            r"|postprocess_kernel|preprocess_kernel",
            "cufft",
        ),
        (r"tvm|tir_|tilelang", "tilelang"),
        (r"kernel_cutlass_|quack", "cute_dsl"),
        (r"torchvision|vision::", "torchvision"),
        (r"_helion", "helion"),
        (r"oneflow|paddle|phi::", "other_framework"),
    )
)
# Kernels whose own name says too little, or something else.
_NAMED = {
    "compute_cuda_kernel": "copy",
    "create_flashinfer_kv_indices_triton": "copy",
    "create_flashmla_kv_indices_triton": "copy",
    "get_num_kv_splits_triton": "elementwise",
    "assign_req_to_token_pool": "copy",
    "_combined_routing_compute": "sort",
    "_combined_routing_memset": "sort",
    "_sum_bitmatrix_rows": "reduction",
    "reduce_segments": "attention",
    "get_fused_mapping": "sort",
    "resolve_future_token_ids_kernel": "elementwise",
    "fill_tensormaps_kernel": "gemm",
    "_compute_FP8_quantize_cuda_kernel": "elementwise",
    "_get_FP8_qparam_cuda_kernel": "reduction",
    "magma_sgemmEx_kernel": "gemm",
    "_block_bucketize_sparse_features_cuda_kernel1": "sort",
    "_block_bucketize_sparse_features_cuda_kernel2": "sort",
    "permute_2D_data_kernel": "copy",
    "permute_1D_data_kernel": "copy",
    "moe_sum_kernel": "reduction",
    "_selective_scan_update_kernel": "reduction",
    "transpose_readWrite_alignment_kernel": "copy",
    "solve_tril_16x16_kernel": "attention",
    "chunk_local_cumsum_scalar_kernel": "reduction",
    "chunk_local_cumsum_vector_kernel": "reduction",
}
# Gated activations of Unsloth, named by their tensors: e and g forward; DW, f, dfg backward. Source: its kernels.
_GATED = {
    "_fg_kernel": "silu",
    "_DWf_DW_dfg_kernel": "silu",
    "_exact_forward_kernel": "gelu",
    "_exact_backward_kernel": "gelu",
    "_approx_forward_kernel": "gelu",
    "_approx_backward_kernel": "gelu",
}
_MATMUL_OGS = re.compile(r"_p?_?matmul_ogs_([NT]{2,3})_(\w+?)x(\w+?)x(\w+?)_(\d+)x(\d+)x(\d+)x(\d+)(?:_(\w+))?$")
_TRTLLM_GEMM = re.compile(
    r"(?:bmm|gemm)_(?P<types>\w+?)_t(?P<tile>\d+x\d+x\d+)(?:u\d+)?_s(?P<stages>\d+)_(?P<rest>\w+)$"
)
_PRODUCTS = re.compile(r"gemm|gemv|trsm|trmm|syrk|herk|symm")


def match(parsed: CppName) -> Found | None:
    """Decode a kernel by its library and the words of its name, or ``None`` when neither is known."""
    text = signature_free(parsed.text) if "<" not in parsed.text and "(" not in parsed.text else parsed.text
    base = signature_free(parsed.base)
    if found := _MATMUL_OGS.match(text):
        return _matmul_ogs(found)
    if found := _TRTLLM_GEMM.match(text):
        return _trtllm_gemm(found)
    library = next((name for pattern, name in _LIBRARIES if pattern.search(parsed.qualified[:200])), None)
    kind = "fused" if base in _GATED else _NAMED.get(base)
    weak = False
    if kind is None and library == "fbgemm" and "embedding" in base:
        kind = "embedding"
    if kind is None and library in ("cufft", "cusolver"):
        # Transforms and factorizations have no kind of their own.
        kind, weak = ("gemm" if _PRODUCTS.search(base) else "other"), True
    if kind is None:
        kind = kind_by_words(base)
    if kind is None and base in ("device_kernel", "kernel", "Kernel", "kernel_entry", "run", "operator_call"):
        kind = kind_by_words(parsed.template[:300])
    if kind is None and parsed.scope:
        # A general name such as `forward_kernel` in a namespace that tells what of.
        kind, weak = kind_by_words(parsed.scope.rpartition("::")[2]), True
    if kind is None and library in ("magma", "cusparse"):
        kind, weak = "gemm", True
    if kind is None and library is None:
        return None
    return _found(parsed, base, library, kind, weak or kind is None)


def _found(parsed: CppName, base: str, library: str | None, kind: str | None, weak: bool) -> Found:
    decoded: dict[str, Any] = {}
    types: list[str] = []
    for argument in parsed.arguments[:6]:
        if (dtype := dtype_of(argument)) and dtype not in ("bool", "int32", "int64", "uint32", "uint64"):
            types.append(dtype)
    if types:
        decoded["dtype"] = types[0]
    words = words_of(base)
    if "backward" in words or "bwd" in words:
        decoded["direction"] = "backward"
    elif "forward" in words or "fwd" in words:
        decoded["direction"] = "forward"
    if kind == "fused":
        decoded["ops"] = [_GATED[base], "mul"] if base in _GATED else _fused_operators(base, parsed.template)
        decoded["view_ops"] = []
    family = library or ("triton" if "<" not in parsed.text and "(" not in parsed.text else "unknown")
    short = base.removesuffix("_kernel").strip("_") or base
    if library and library not in short:
        short = f"{library} {short}"
    unknown = ([] if kind else [base]) + serving.read(library, parsed, decoded)
    return Found(kind or "other", family, short, decoded, unknown, weak)


def _fused_operators(base: str, template: str) -> list[str]:
    """What a hand-written pointwise kernel computes, in PyTorch's operator names, as far as its words say."""
    squeezed = "".join(words_of(base))
    operators: list[str] = []
    if "rotary" in squeezed or "rope" in squeezed:
        operators.append("rotary_embedding")
    if "swiglu" in squeezed:
        operators += ["silu", "mul"]
    elif "geglu" in squeezed:
        operators += ["gelu", "mul"]
    elif "reglu" in squeezed:
        operators += ["relu", "mul"]
    else:
        operators += activation_words(base) or activation_words(template[:200])[:1]
        if "mul" in words_of(base) or "glu" in words_of(base):
            operators.append("mul")
    if "bias" in squeezed:
        operators.insert(0, "add")
    if "dropout" in squeezed:
        operators.append("native_dropout")
    if "quant" in squeezed or "casttofp8" in squeezed:
        operators.append("quantize")
    return list(dict.fromkeys(operators))


def _matmul_ogs(found: re.Match[str]) -> Found:
    """Triton's ``triton_kernels`` matmul: operand layouts, types of output, left and right operand, tile."""
    decoded: dict[str, Any] = {"layout": found[1][:2]}
    for key, token in (("dtype", found[2]), ("b_dtype", found[4])):
        if dtype := dtype_of(token):
            decoded[key] = dtype
    decoded |= {"tile": f"{found[5]}x{found[6]}", "tile_k": int(found[7]), "splitk": int(found[8]) > 1}
    if found[9]:
        decoded["epilogue"] = [found[9]]
    short = f"matmul_ogs {decoded['tile']}x{found[7]}" + (f" {found[9]}" if found[9] else "")
    return Found("gemm", "triton_kernels", short, decoded, complete=True)


def _trtllm_gemm(found: re.Match[str]) -> Found:
    """TensorRT-LLM's generated batched GEMMs: ``bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et…``."""
    m, n, k = found["tile"].split("x")
    decoded: dict[str, Any] = {"tile": f"{m}x{n}", "tile_k": int(k), "stages": int(found["stages"])}
    unknown: list[str] = []
    types = found["types"].split("_")
    if dtype := dtype_of(types[-1].lower()):
        decoded["acc_dtype"] = dtype
    decoded["operand_types"] = types[:-1]
    for name, key in (
        ("MxE2m1", "mxfp4"),
        ("E2m1", "fp4_e2m1"),
        ("MxE4m3", "mxfp8_e4m3"),
        ("E4m3", "fp8_e4m3"),
        ("Bfloat16", "bf16"),
        ("Fp16", "fp16"),
    ):
        if len(types) > 1 and types[1].startswith(name):
            decoded["dtype"] = key
            break
    for token in found["rest"].split("_"):
        if token.startswith("cga"):
            decoded["cluster"] = token[3:]
        elif token.startswith("sm"):
            decoded["arch"] = token
        elif token == "TN":
            decoded["layout"] = token
        elif token == "swiGlu":
            decoded["epilogue"] = ["swiglu"]
        elif re.fullmatch(r"m\d+x\d+x\d+", token):
            decoded["instruction"] = token[1:]
        else:
            unknown.append(token)
    short = f"trtllm bmm {decoded['tile']}x{k}" + (" swiglu" if decoded.get("epilogue") else "")
    return Found("gemm", "trtllm", short, decoded, unknown, complete=True)
