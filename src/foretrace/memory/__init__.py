"""The allocator's memory: snapshots and what torch prints about them, read and explained. Needs no torch."""
