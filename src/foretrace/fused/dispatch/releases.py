"""Which releases come together: the Triton that a release of torch brings."""

from __future__ import annotations

from typing import Final

__all__ = ["LATER_TRITON", "TRITON_OF_TORCH"]

# The Triton that a release of torch for CUDA depends on (Requires-Dist in the metadata of its Linux wheels).
TRITON_OF_TORCH: Final[dict[tuple[int, int], tuple[int, int]]] = {
    (2, 4): (3, 0),
    (2, 5): (3, 1),
    (2, 6): (3, 2),
    (2, 7): (3, 3),
    (2, 8): (3, 4),
    (2, 9): (3, 5),
    (2, 10): (3, 6),
    (2, 11): (3, 6),
    (2, 12): (3, 7),
    (2, 13): (3, 7),
}
# Of a later torch all that matters is that its Triton is later, too.
LATER_TRITON: Final = (3, 8)
