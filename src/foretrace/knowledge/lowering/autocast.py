"""Which operators CUDA's autocast runs in which precision.

Source: ``aten/src/ATen/autocast_mode.h`` of torch 2.13 (``AT_FORALL_LOWER_PRECISION_FP``, ``AT_FORALL_FP32``,
``AT_FORALL_FP32_SET_OPT_DTYPE``, ``AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE``, ``AT_FORALL_PROMOTE``). Releases differ
in a few entries; which overloads are really wrapped the installed torch says.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["POLICIES", "Policy"]

# lower: arguments to the type of the autocast. fp32: arguments to fp32. fp32_result: computed and returned in fp32
# unless a type was asked for. promote: arguments to the widest type among them.
Policy = Literal["lower", "fp32", "fp32_result", "promote"]

_TABLE: dict[Policy, str] = {
    "lower": """
        _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution prelu
        addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot
        _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
        _scaled_dot_product_flash_attention scaled_dot_product_attention
    """,
    "fp32": """
        acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm
        native_layer_norm rms_norm group_norm frobenius_norm nuclear_norm cosine_similarity poisson_nll_loss
        cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss
        margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss
        binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d _upsample_nearest_exact1d
        upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d
        upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
    """,
    "fp32_result": """
        prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum norm
    """,
    "promote": """
        addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
    """,
}
POLICIES: dict[str, Policy] = {name: policy for policy, names in _TABLE.items() for name in names.split()}
