"""Pure passes from a ``Trace`` to the parts of a ``Report``; one topic a file."""

from foretrace.analysis.explain import explain

__all__ = ["explain"]
