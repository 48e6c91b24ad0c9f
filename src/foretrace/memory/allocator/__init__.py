"""PyTorch's caching allocator, simulated on a recorded state: would a request succeed, and from where."""

from foretrace.memory.allocator.request import simulate

__all__ = ["simulate"]
