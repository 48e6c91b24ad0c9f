"""The allocator's settings, and the sizes that follow from them: what a request is rounded to, what is asked for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from foretrace.knowledge import allocator as known

__all__ = ["Settings", "options_of", "up"]


def up(size: int, unit: int) -> int:
    """The next multiple of ``unit`` that is not below ``size``."""
    return -(-size // unit) * unit


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that decide where memory comes from; sizes in bytes.

    ``max_split``: blocks of this size or more are never split; None: all may be. ``roundup``: divisions of each power
    of two from 1 MiB on, 0 for none. ``collect_above``: the share of the limit from which idle segments are given back
    (`garbage_collection_threshold`), 0 for never. ``expandable``: None where it was not recorded.
    """

    max_split: int | None = None
    non_split_rounding: int = known.NON_SPLIT_ROUNDING_BYTES
    large_segment: int = known.LARGE_SEGMENT_BYTES
    roundup: tuple[int, ...] = (0,) * known.ROUNDUP_BUCKETS
    collect_above: float = 0.0
    expandable: bool | None = None

    @classmethod
    def read(cls, recorded: Mapping[str, object]) -> Settings:
        """The settings of a snapshot (`Snapshot.settings`).

        What is recorded by itself counts; what is not (`large_segment_size_mb`, `max_non_split_rounding_mb`, and
        everything in versions that record only the configuration string) is taken from that string.
        """
        conf: dict[str, str] = {}
        for name, value in recorded.items():
            if name.endswith(known.ALLOC_CONF) and isinstance(value, str):
                conf.update(options_of(value))
        plain = cls()
        split = _integer(recorded.get("max_split_size"))
        if split is None:
            split = _mib(conf.get("max_split_size_mb"))
        expandable = recorded.get("expandable_segments")
        if not isinstance(expandable, bool):
            expandable = conf["expandable_segments"] == "True" if "expandable_segments" in conf else None
        threshold = recorded.get("garbage_collection_threshold", _number(conf.get("garbage_collection_threshold")))
        return cls(
            max_split=split if split is not None and split > 0 else None,
            non_split_rounding=_mib(conf.get("max_non_split_rounding_mb")) or plain.non_split_rounding,
            large_segment=_mib(conf.get("large_segment_size_mb")) or plain.large_segment,
            roundup=_roundup(recorded.get("roundup_power2_divisions"), conf.get("roundup_power2_divisions", "")),
            collect_above=_share(threshold),
            expandable=expandable,
        )

    def recorded(self) -> dict[str, object]:
        """As PyTorch records them in a snapshot."""
        conf = [f"large_segment_size_mb:{self.large_segment // known.MIB}"] * (
            self.large_segment != known.LARGE_SEGMENT_BYTES
        ) + [f"max_non_split_rounding_mb:{self.non_split_rounding // known.MIB}"] * (
            self.non_split_rounding != known.NON_SPLIT_ROUNDING_BYTES
        )
        return {
            "PYTORCH_CUDA_ALLOC_CONF": ",".join(conf),
            "max_split_size": -1 if self.max_split is None else self.max_split,
            "garbage_collection_threshold": self.collect_above,
            "expandable_segments": bool(self.expandable),
            "roundup_power2_divisions": {str(1 << at): divisions for at, divisions in enumerate(self.roundup)},
        }

    def rounded(self, size: int) -> int:
        """The block that a request of ``size`` bytes needs (round_size)."""
        if size < known.MIN_BLOCK_BYTES:
            return known.MIN_BLOCK_BYTES
        bucket = size.bit_length() - known.MIB.bit_length()
        divisions = self.roundup[min(max(bucket, 0), known.ROUNDUP_BUCKETS - 1)]
        if divisions > 1 and size > known.MIN_BLOCK_BYTES * divisions:
            power = 1 << (size.bit_length() - 1)
            return up(size, power >> (divisions.bit_length() - 1))
        return up(size, known.MIN_BLOCK_BYTES)

    def segment_bytes(self, rounded: int) -> int:
        """What is asked of the device where no cached block fits (get_allocation_size)."""
        if rounded <= known.SMALL_REQUEST_BYTES:
            return known.SMALL_SEGMENT_BYTES
        if rounded < known.MIN_OWN_SEGMENT_BYTES:
            # No version asks for less than it needs; a `large_segment_size_mb` below 10 could.
            return max(self.large_segment, up(rounded, known.ROUND_SEGMENT_BYTES))
        return up(rounded, known.ROUND_SEGMENT_BYTES)

    def page_bytes(self, small: bool) -> int:
        """In what pieces an expandable segment is mapped."""
        return known.SMALL_SEGMENT_BYTES if small else self.large_segment

    def oversize(self, size: int) -> bool:
        """Whether a block of this size is never split."""
        return self.max_split is not None and size >= self.max_split

    def splits(self, block: int, rounded: int, small: bool) -> bool:
        """Whether what a block has above the request stays free, as a block of its own (should_split)."""
        rest = block - rounded
        if small or self.expandable:
            return rest >= known.MIN_BLOCK_BYTES
        return not self.oversize(rounded) and rest > known.SMALL_REQUEST_BYTES


def options_of(conf: str) -> dict[str, str]:
    """The options in a configuration string (PYTORCH_CUDA_ALLOC_CONF), as they stand there."""
    # A value may be a list in brackets that holds commas and colons itself.
    return dict(re.findall(r"([a-z0-9_]+):(\[[^\]]*\]|[^,]*)", re.sub(r"\s", "", conf)))


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _mib(text: str | None) -> int | None:
    """The bytes of a number of MiB; None also for more than any request has, which limits nothing."""
    size = _digits(text or "")
    return None if size is None or size * known.MIB > known.MOST_REQUEST_BYTES else size * known.MIB


def _digits(text: str) -> int | None:
    """A number of up to 64 bits."""
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _share(value: object) -> float:
    """A part of a whole; 0, which is what the allocator takes for "never", where it is none."""
    return float(value) if isinstance(value, int | float) and 0 < value < 1 else 0.0


def _roundup(recorded: object, conf: str) -> tuple[int, ...]:
    """Divisions of each bucket, from the recorded table {"1": 0, "2": 0, …} by MiB, or from the string."""
    buckets = [0] * known.ROUNDUP_BUCKETS
    if isinstance(recorded, Mapping):
        for at in range(known.ROUNDUP_BUCKETS):
            buckets[at] = _integer(recorded.get(str(1 << at))) or 0
    elif (everywhere := _digits(conf)) is not None:
        buckets = [everywhere] * known.ROUNDUP_BUCKETS
    else:
        # "[256:1,512:2,>:4]": the first counts for everything below it too, ">" for everything above the one before.
        last = 0
        for place, (power, written) in enumerate(re.findall(r"(\d+|>):(\d+)", conf)):
            divisions = _digits(written) or 0
            if power == ">":
                buckets[last:] = [divisions] * (known.ROUNDUP_BUCKETS - last)
                continue
            last = min(max((_digits(power) or 1 << 64).bit_length() - 1, 0), known.ROUNDUP_BUCKETS - 1)
            if place == 0:
                buckets[:last] = [divisions] * last
            buckets[last] = divisions
    return tuple(buckets)
