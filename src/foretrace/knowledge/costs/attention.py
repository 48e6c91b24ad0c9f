"""Attention: two products forward, five backward; causal masks are counted in full.

FLOPs as in ``torch.utils.flop_counter`` (``sdpa_flop_count``, ``sdpa_backward_flop_count``): forward Q·Kᵀ and
P·V; backward recomputes Q·Kᵀ and adds the gradients of V, P, Q and K. A causal mask lets a kernel skip about
half of that; torch's counter does not subtract it and neither does foretrace, which says so in ``note``.
With grouped-query attention the number of query heads counts. Bytes: Q, K, V (and mask) read once, the output
and the log-sum-exp (fp32, one a query row) written; the scores never leave the chip.
"""

from __future__ import annotations

from typing import NamedTuple

from foretrace.knowledge.costs.call import Call, Cost, Operand, Unknown

__all__ = [
    "FORMULAS",
]


class _Form(NamedTuple):
    """Where one attention operator keeps what matters.

    ``heads_first``: tensors are ``[batch, heads, sequence, dim]``, else ``[batch, sequence, heads, dim]``.
    ``first``: position of the query. ``extra``: further tensors read (mask; backward: output, log-sum-exp).
    ``ragged``: positions of cumulative sequence lengths. ``lse``: written always, never, or by a flag.
    """

    heads_first: bool
    causal: int | None
    first: int = 0
    extra: tuple[int, ...] = ()
    ragged: tuple[int, ...] = ()
    lse: bool | int = True


_FORWARD = {
    "scaled_dot_product_attention": _Form(True, 5, extra=(3,), lse=False),
    "_scaled_dot_product_flash_attention": _Form(True, 4),
    "_scaled_dot_product_flash_attention_for_cpu": _Form(True, 4, extra=(5,)),
    "_scaled_dot_product_efficient_attention": _Form(True, 6, extra=(3,), lse=4),
    "_scaled_dot_product_cudnn_attention": _Form(True, 6, extra=(3,), lse=4),
    "_scaled_dot_product_fused_attention_overrideable": _Form(True, 5, extra=(3,)),
    "_cudnn_attention_forward": _Form(True, 10, extra=(3,), ragged=(4, 5), lse=8),
    "_flash_attention_forward": _Form(False, 8, ragged=(3, 4)),
    "_efficient_attention_forward": _Form(False, 9, extra=(3,), ragged=(4, 5), lse=10),
    "flash_attn::_flash_attn_forward": _Form(False, 5),
    "flash_attn_3::_flash_attn_forward": _Form(False, None),
}
_BACKWARD = {
    "_scaled_dot_product_flash_attention_backward": _Form(True, 11, 1, (4, 5)),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _Form(True, 7, 1, (4, 5)),
    "_scaled_dot_product_efficient_attention_backward": _Form(True, 11, 1, (4, 5, 6)),
    "_scaled_dot_product_cudnn_attention_backward": _Form(True, 14, 1, (4, 5, 8), (9, 10)),
    "_cudnn_attention_backward": _Form(True, 14, 1, (4, 5, 8), (9, 10)),
    "_flash_attention_backward": _Form(False, 11, 1, (4, 5), (6, 7)),
    "_efficient_attention_backward": _Form(False, 12, 1, (4, 5, 10), (6, 7)),
    "flash_attn::_flash_attn_backward": _Form(False, 11, 1, (4, 5)),
}


def _attention_flops(batch: int, heads: int, q: int, k: int, dim: int, value_dim: int, backward: bool) -> int:
    """Operations of one attention: ``2·b·h·q·k`` for each unit of head dimension that a product spans."""
    pair = 2 * batch * heads * q * k
    if not backward:
        return pair * (dim + value_dim)
    return pair * (3 * dim + 2 * value_dim)  # scores, dQ, dK span dim; dP and dV span value_dim


def _sizes(call: Call, q: Operand, k: Operand, v: Operand, heads_first: bool) -> tuple[int, ...]:
    if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        if heads_first and len(q.shape) == len(k.shape) == len(v.shape) >= 2:
            # Leading dimensions of the public entry point are all batch; heads are one of them.
            batch = 1
            for size in q.shape[:-2]:
                batch *= size
            return batch, 1, q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]
        raise Unknown(f"{call.name} packs sequences of unequal length; the trace does not record their lengths")
    batch, a, b, dim = q.shape
    heads, rows = (a, b) if heads_first else (b, a)
    columns = k.shape[2] if heads_first else k.shape[1]
    kv_heads = k.shape[1] if heads_first else k.shape[2]
    if k.shape[0] != batch or k.shape[3] != dim or kv_heads == 0 or heads % kv_heads:
        raise Unknown(f"the shapes of {call.name} do not fit: {q.shape}, {k.shape}, {v.shape}")
    return batch, heads, rows, columns, dim, v.shape[3]


def _note(call: Call, form: _Form, rows: int, columns: int) -> str | None:
    if form.causal is None or columns <= 1 or rows <= 1:
        return None
    flag = call.text(form.causal)
    if flag is None:
        return "counted in full; the trace does not record whether the mask is causal"
    # _efficient_attention's custom_mask_type is a number, 0 for none; the other operators have a bool.
    if flag in ("False", "false", "0"):
        return None
    return "causal: counted in full, as torch's flop counter does; about half of it can be skipped"


def _common(call: Call, form: _Form) -> tuple[Operand, Operand, Operand, tuple[int, ...]]:
    q = call.need(form.first, "query")
    k = call.need(form.first + 1, "key")
    v = call.need(form.first + 2, "value")
    for index in form.ragged:
        # Dense calls hand an undefined or empty tensor over.
        lengths = call.tensor(index)
        if lengths is not None and lengths.numel > 1:
            raise Unknown(f"{call.name} packs sequences of unequal length; the trace does not record their lengths")
    return q, k, v, _sizes(call, q, k, v, form.heads_first)


def _forward(call: Call) -> Cost:
    form = _FORWARD[call.base]
    q, k, v, (batch, heads, rows, columns, dim, value_dim) = _common(call, form)
    read = q.bytes + k.bytes + v.bytes + _extra(call, form)
    written = batch * heads * rows * value_dim * q.dtype.itemsize
    stored = form.lse if isinstance(form.lse, bool) else call.boolean(form.lse)
    if stored:
        written += 4 * batch * heads * rows
    flops = _attention_flops(batch, heads, rows, columns, dim, value_dim, backward=False)
    return Cost(flops, read + written, note=_note(call, form, rows, columns))


def _backward(call: Call) -> Cost:
    form = _BACKWARD[call.base]
    grad = call.need(0, "gradient")
    q, k, v, (batch, heads, rows, columns, dim, value_dim) = _common(call, form)
    read = grad.bytes + q.bytes + k.bytes + v.bytes + _extra(call, form)
    written = q.result_bytes + k.result_bytes + v.result_bytes
    flops = _attention_flops(batch, heads, rows, columns, dim, value_dim, backward=True)
    return Cost(flops, read + written, note=_note(call, form, rows, columns))


def _extra(call: Call, form: _Form) -> int:
    return sum(t.bytes for t in map(call.tensor, form.extra) if t is not None)


FORMULAS = {**dict.fromkeys(_FORWARD, _forward), **dict.fromkeys(_BACKWARD, _backward)}
