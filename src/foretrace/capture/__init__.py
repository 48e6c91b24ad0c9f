"""Recording: the only room that starts a profiler.

Importing it costs no torch; the first recording does. The public name is :class:`profile`; everything else
here serves ``foretrace run`` and ``foretrace doctor``.
"""

from __future__ import annotations

from foretrace.capture.plan import CaptureWarning, Plan
from foretrace.capture.recording import profile

__all__ = ["CaptureWarning", "Plan", "profile"]
