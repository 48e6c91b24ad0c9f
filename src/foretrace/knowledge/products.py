"""Which units a product runs on, as far as its kernel's name says.

Sources: cuBLAS and cuDNN name their FP32 kernels for the vector units ``sgemm`` and ``scudnn`` and give no matrix
instruction; CUTLASS writes ``simt`` and xmma ``ffma`` (decoded as ``unit``). TF32 kernels carry their type.
"""

from __future__ import annotations

from foretrace.knowledge.kernels import Decoded

__all__ = ["on_vector_units"]

_NAMED_BY_TYPE = frozenset({"cublas", "cudnn"})


def on_vector_units(decoded: Decoded) -> bool:
    """Whether a name says FP32 arithmetic on the vector units; False where it does not say."""
    fields = decoded.decoded
    if fields.get("dtype") != "fp32":
        return False
    if "unit" in fields:
        return bool(fields["unit"] == "SIMT")
    return decoded.family in _NAMED_BY_TYPE and "instruction" not in fields and "tile" in fields
