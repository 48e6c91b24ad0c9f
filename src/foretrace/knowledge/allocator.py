"""How PyTorch's CUDA caching allocator reckons: the sizes it rounds to, and the names of its settings.

Source: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h of PyTorch 2.1 to 2.13. The sizes have been the
same in all of them, but that newer versions have a setting, ``large_segment_size_mb``, for what was fixed at 20 MiB.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ADDRESS_SPACE_BYTES",
    "ALLOC_CONF",
    "LARGE_SEGMENT_BYTES",
    "MIB",
    "MIN_BLOCK_BYTES",
    "MIN_OWN_SEGMENT_BYTES",
    "MOST_REQUEST_BYTES",
    "NON_SPLIT_ROUNDING_BYTES",
    "ROUNDUP_BUCKETS",
    "ROUND_SEGMENT_BYTES",
    "SMALL_REQUEST_BYTES",
    "SMALL_SEGMENT_BYTES",
]

MIB: Final = 1 << 20

# Every block is a multiple of this (kMinBlockSize).
MIN_BLOCK_BYTES: Final = 512
# Requests up to this, rounded, come from the small pool (kSmallSize). In the large pool it is also the largest
# remainder that is not split off.
SMALL_REQUEST_BYTES: Final = 1 * MIB
# A segment of the small pool, and a page of its expandable segments (kSmallBuffer).
SMALL_SEGMENT_BYTES: Final = 2 * MIB
# A segment for requests of the large pool below MIN_OWN_SEGMENT_BYTES, and a page of its expandable segments
# (kLargeBuffer, later large_segment_size).
LARGE_SEGMENT_BYTES: Final = 20 * MIB
# From this on a request gets a segment of its own size (kMinLargeAlloc), rounded up to the next (kRoundLarge).
MIN_OWN_SEGMENT_BYTES: Final = 10 * MIB
ROUND_SEGMENT_BYTES: Final = 2 * MIB
# An oversize block (of max_split_size or more) serves a request that is smaller by less than this
# (max_non_split_rounding_size).
NON_SPLIT_ROUNDING_BYTES: Final = 20 * MIB
# `roundup_power2_divisions` holds one number for each power of two from 1 MiB on (kRoundUpPowerOfTwoIntervals);
# smaller sizes use the first, larger ones the last.
ROUNDUP_BUCKETS: Final = 16
# Sizes are signed 64-bit in snapshots and in the allocator's statistics.
MOST_REQUEST_BYTES: Final = (1 << 63) - 1
# An expandable segment reserves addresses for 9/8 of the device's memory. A snapshot does not say how much that is;
# this is more than any GPU has, and only comparisons with it matter.
ADDRESS_SPACE_BYTES: Final = 1 << 42

# How the recorded settings' names of the configuration string end: PYTORCH_CUDA_ALLOC_CONF, PYTORCH_ALLOC_CONF, …
ALLOC_CONF: Final = "ALLOC_CONF"
