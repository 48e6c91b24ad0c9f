"""Recording: the only room that starts a profiler.

Importing it costs no torch; the first recording does. The public name is :func:`profile`; everything else
here serves ``foretrace run`` and ``foretrace doctor``.
"""

from __future__ import annotations

from foretrace.capture.entry import profile
from foretrace.capture.plan import CaptureWarning, Plan
from foretrace.capture.recording import Recording

__all__ = ["CaptureWarning", "Plan", "Recording", "profile"]
