"""A file becomes a ``Trace``: reading, repairs, columns, op forest, launch links, steps."""

from foretrace.trace.load import load
from foretrace.trace.table import Lane, Trace

__all__ = ["Lane", "Trace", "load"]
