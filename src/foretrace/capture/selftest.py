"""Record one kernel and say what came of it: ``python -m foretrace.capture.selftest`` prints one JSON object.

``foretrace doctor`` runs this in a process of its own, since a driver or a profiling library that is broken
can take its process with it.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from foretrace.capture.backend import Settings
from foretrace.capture.files import count_rows
from foretrace.capture.torch_backend import TorchBackend, import_torch

__all__ = ["main", "run"]


def run() -> dict[str, Any]:
    """Profile one small addition, on the GPU if there is one."""
    torch = import_torch()
    on_gpu = bool(torch.cuda.is_available())
    device = "cuda" if on_gpu else "cpu"
    session = TorchBackend().session(Settings())
    session.start()
    x = torch.ones(1024, device=device)
    (x + x).sum().item()
    session.stop()
    with tempfile.TemporaryDirectory(prefix="foretrace-") as folder:
        file = Path(folder) / "selftest.json"
        session.export(file)
        rows = count_rows(file)
        found = re.search(r'"cupti_version":\s*(\d+)', file.read_text(errors="replace"))
    return {
        "device": device,
        "operators": rows.operators,
        "kernels": rows.kernels,
        "launches": rows.launches,
        "cupti_version": int(found.group(1)) if found else None,
        "cupti_library": _loaded("libcupti"),
    }


def _loaded(name: str, maps: Path = Path("/proc/self/maps")) -> str | None:
    """Path of a shared library this process has loaded, if the system tells."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return None
    return next((line.split(maxsplit=5)[-1] for line in lines if f"/{name}" in line), None)


def main() -> int:
    """Print the result, or ``{"error": …}``."""
    try:
        result = run()
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
