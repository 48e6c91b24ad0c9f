"""The fused modules as a repository of Hugging Face `kernels`, written from the sources of this package.

``python -m foretrace.fused.hub FOLDER`` writes it; `build_repository` does the same for a program. Needs no torch.
"""

from __future__ import annotations

from foretrace.fused.hub.build import BACKENDS, build_repository

__all__ = ["BACKENDS", "build_repository"]
