"""Memory copies and fills as the profilers write them: CUPTI's, roctracer's and the runtime's own kernels."""

from __future__ import annotations

import re

from ._base import Found

__all__ = ["match"]

# CUPTI activity: "Memcpy HtoD (Pageable -> Device)"; roctracer: "CopyHostToDevice", "Memcpy HtoD (Host -> Device)".
_CUPTI = re.compile(r"Memcpy ([HDP])to([HDAP])(?: \((\w+) -> (\w+)\))?", re.IGNORECASE)
_ROCM = re.compile(r"(?:hsa_?)?Copy(Host|Device|Peer)To(Host|Device|Peer)(2D)?", re.IGNORECASE)
_MEMSET = re.compile(r"Memset(?: \((\w+)\))?$", re.IGNORECASE)
# Kernels by which the HIP and CUDA runtimes copy or fill when the copy engines are not used.
_RUNTIME = {
    "__amd_rocclr_copyBuffer": "copy",
    "__amd_rocclr_copyBufferAligned": "copy",
    "__amd_rocclr_copyBufferRect": "copy",
    "__amd_rocclr_copyBufferRectAligned": "copy",
    "__amd_rocclr_copyBufferExt": "copy",
    "__amd_rocclr_copyImage": "copy",
    "__amd_rocclr_streamOpsWrite": "other",
    "__amd_rocclr_streamOpsWait": "other",
    "__amd_rocclr_fillBuffer": "fill",
    "__amd_rocclr_fillBufferAligned": "fill",
    "__amd_rocclr_fillBufferAligned2D": "fill",
    "FillBuffer": "fill",
    "CopyBuffer": "copy",
    "CopyBufferRect": "copy",
}
_LETTER = {"H": "host", "D": "device", "P": "peer", "A": "array"}


def match(text: str) -> Found | None:
    """Decode a copy or memset row; ``direction`` is written like ``host→device``, ``memory`` as the profiler says."""
    if found := _CUPTI.match(text):
        source, target = _LETTER[found.group(1).upper()], _LETTER[found.group(2).upper()]
        decoded: dict[str, object] = {"direction": f"{source}→{target}"}
        if found.group(3):
            decoded["memory"] = f"{found.group(3).lower()}→{found.group(4).lower()}"
        short = f"memcpy {found.group(1).upper()}to{found.group(2).upper()}"
        if (found.group(3) or "").lower() == "pageable" or (found.group(4) or "").lower() == "pageable":
            short += " pageable"
        return Found("copy", "memcpy", short, decoded)
    if found := _ROCM.match(text):
        source, target = found.group(1).lower(), found.group(2).lower()
        short = f"memcpy {source[0].upper()}to{target[0].upper()}"
        return Found("copy", "memcpy", short, {"direction": f"{source}→{target}"})
    if found := _MEMSET.match(text):
        return Found("copy", "memset", "memset", {"memory": (found.group(1) or "device").lower()})
    role = _RUNTIME.get(text.removesuffix(".kd"))
    if role == "copy":
        return Found("copy", "memcpy", "runtime copy kernel", {"role": "copy by the runtime's kernel"})
    if role == "fill":
        return Found("copy", "memset", "runtime fill kernel", {"role": "fill by the runtime's kernel"})
    if role:
        return Found("other", "runtime", text, {})
    return None
