"""What a GPU kernel's name says: kind, library, tile, layout, types, fused operators.

One module holds one family of grammar; ``decode`` asks them in order. A part of a name whose meaning is not known stays
in ``Decoded.unknown``; nothing is guessed. Every family reads its names in time linear in their length.
"""

from __future__ import annotations

from foretrace.knowledge.kernels._base import KINDS, Decoded
from foretrace.knowledge.kernels._decode import decode
from foretrace.knowledge.kernels._describe import describe
from foretrace.knowledge.kernels.predicted import is_stand_in

__all__ = ["GENERATED", "INDUCTOR", "KINDS", "Decoded", "decode", "describe", "is_stand_in"]

# Families whose kernels a compiler generates from operators it names.
INDUCTOR = "inductor"
GENERATED = frozenset({INDUCTOR, "triton"})
