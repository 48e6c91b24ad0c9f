"""When free memory counts as fragmented, and from where on it is worth a word; the words are in ``rules_snapshot.py``.

The three kinds are those of meta-pytorch/torchrec#4584: *hard* (free memory between live blocks, which nothing but
freeing these brings back), *soft* (free memory in whole segments, which the allocator can return and ask for anew) and
*stream* (free memory that belongs to another stream or private pool, which is never lent).
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "LEAST_BYTES",
    "LEAST_SHARE",
    "MOSTLY_FREE",
    "ROUNDING_SHARE",
    "SMALL_PART",
]

# Less than this is never worth a finding: one segment of the large pool has 20 MiB.
LEAST_BYTES: Final = 64 << 20
# A tenth of what is reserved is what a batch or a layer more would take.
LEAST_SHARE: Final = 0.10
# Rounding to 512 B and whole remainders cost 1 to 2 % with usual tensor sizes; with `roundup_power2_divisions` or many
# sizes just above 1 MiB it is far more.
ROUNDING_SHARE: Final = 0.05
# A block below this part of its segment is small in it; a segment with less than half in use is mostly free.
SMALL_PART: Final = 0.10
MOSTLY_FREE: Final = 0.5
