"""What the operator that launched a kernel says about it, for kernels whose own name does not say."""

from __future__ import annotations

__all__ = ["kind_of_operator"]

_BY_KIND = {
    "gemm": (
        "mm addmm bmm baddbmm addbmm mv addmv addmv_ dot vdot matmul linear _scaled_mm _int_mm "
        "_addmm_activation _grouped_mm _scaled_grouped_mm _weight_int4pack_mm _weight_int8pack_mm addr ger "
        "outer inner"
    ),
    "convolution": (
        "convolution _convolution cudnn_convolution cudnn_convolution_transpose cudnn_convolution_relu "
        "cudnn_convolution_add_relu miopen_convolution miopen_convolution_transpose "
        "miopen_depthwise_convolution convolution_backward convolution_overrideable "
        "cudnn_convolution_backward cudnn_convolution_backward_input cudnn_convolution_backward_weight conv1d "
        "conv2d conv3d conv_transpose2d slow_conv_transpose2d _slow_conv2d_forward _slow_conv2d_backward "
        "thnn_conv2d _conv_depthwise2d conv_depthwise3d"
    ),
    "attention": (
        "scaled_dot_product_attention _flash_attention_forward _flash_attention_backward "
        "_efficient_attention_forward _efficient_attention_backward _scaled_dot_product_flash_attention "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
        "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
        "_scaled_dot_product_cudnn_attention_backward _cudnn_attention_forward _cudnn_attention_backward "
        "_transformer_encoder_layer_fwd"
    ),
    "normalization": (
        "native_layer_norm native_layer_norm_backward layer_norm native_group_norm native_group_norm_backward "
        "group_norm native_batch_norm native_batch_norm_backward batch_norm cudnn_batch_norm "
        "cudnn_batch_norm_backward miopen_batch_norm miopen_batch_norm_backward batch_norm_stats "
        "batch_norm_elemt batch_norm_backward_reduce batch_norm_backward_elemt "
        "batch_norm_gather_stats_with_counts instance_norm rms_norm _fused_rms_norm _fused_rms_norm_backward "
        "_weight_norm_interface"
    ),
    "softmax": (
        "softmax _softmax _softmax_backward_data log_softmax _log_softmax _log_softmax_backward_data "
        "_masked_softmax _safe_softmax"
    ),
    "reduction": (
        "sum mean amax amin max min argmax argmin prod norm linalg_vector_norm var std var_mean std_mean all "
        "any cumsum cumprod logsumexp nll_loss_forward nll_loss2d_forward max_pool2d_with_indices avg_pool2d "
        "adaptive_avg_pool2d _adaptive_avg_pool2d count_nonzero"
    ),
    "embedding": (
        "embedding embedding_dense_backward _embedding_bag _embedding_bag_dense_backward embedding_bag "
        "embedding_backward"
    ),
    "sort": ("sort topk argsort msort kthvalue unique _unique2 unique_consecutive"),
    "copy": (
        "copy_ _to_copy clone contiguous cat stack _foreach_copy_ constant_pad_nd repeat gather index "
        "index_put_ _index_put_impl_ scatter scatter_ masked_select flip roll"
    ),
    "elementwise": (
        "add add_ sub sub_ mul mul_ div div_ gelu gelu_backward silu silu_backward relu relu_ tanh sigmoid "
        "exp log sqrt rsqrt pow neg abs clamp clamp_ where masked_fill_ fill_ zero_ eq ne lt gt le ge "
        "native_dropout threshold_backward sin cos normal_ uniform_ bernoulli_ random_"
    ),
    "optimizer": ("_fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_"),
}
_NAMESPACES = {"c10d": "communication", "nccl": "communication"}
_OPERATORS: dict[str, str] = {}


def kind_of_operator(op: str) -> str | None:
    """The kind of work an operator's name stands for, or ``None`` when it does not decide it."""
    if not _OPERATORS:
        for kind, names in _BY_KIND.items():
            for name in names.split():
                _OPERATORS[name] = kind
    namespace, separator, name = op.partition("::")
    if not separator:
        namespace, name = "aten", op
    if namespace in _NAMESPACES or op == "record_param_comms" or op.startswith("nccl:"):
        return "communication"
    if namespace == "aten":
        return _OPERATORS.get(name)
    # An operator of a library (`vllm::rms_norm`) names its work in words, like a kernel.
    from .words import kind_by_words

    return kind_by_words(name)
