"""Two or more traces side by side: alignment by call path, what changed, what stayed the same."""

from foretrace.comparison.compare import compare

__all__ = ["compare"]
