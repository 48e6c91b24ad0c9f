"""Files about memory become data: snapshots, whatever wrote them, and what torch prints or exports in sums."""

from foretrace.memory.reading.files import read_snapshot
from foretrace.memory.reading.opening import read_any

__all__ = ["read_any", "read_snapshot"]
