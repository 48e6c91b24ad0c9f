"""The guide's Python runs as it is written, one snippet after the other, on a machine without a GPU too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the fused modules need the torch extra")

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "fused.md"


def test_the_guide_s_snippets_run(tmp_path: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    program = "\n".join(snippet for snippet in snippets if "from kernels import" not in snippet)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "FORETRACE_CACHE_DIR": str(tmp_path), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "['mlp']" in done.stdout
    assert "8,192 rows, 4,096 → 14,336 → 4,096, bfloat16" in done.stdout
