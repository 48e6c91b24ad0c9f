"""Run Triton kernels on the CPU, in Triton's interpreter, in a process of their own.

Triton reads ``TRITON_INTERPRET`` when it is imported, so one process either compiles or interprets. A test file that
wants the interpreter names its checks in a dict and asks for what became of them:

    CASES = {"silu float32": partial(check, "silu", torch.float32), ...}

    @pytest.fixture(scope="module")
    def outcomes() -> dict[str, str]:
        return interpreted(__file__)

    @pytest.mark.parametrize("case", CASES)
    def test_kernel(case: str, outcomes: dict[str, str]) -> None:
        assert outcomes[case] == ""

The child imports the same file and runs every case. Checks import what is under test inside the function: importing it
at the top would load Triton in the parent, compiling. In the interpreter float16 and float32 are right, products of
bfloat16 and float64 are not, and neither Gluon nor inline assembly runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARK = "outcomes of the cases: "


def interpreted(file: str, cases: str = "CASES", names: Iterable[str] | None = None) -> dict[str, str]:
    """Run a test file's cases in the interpreter; return per case its traceback, empty where it passed.

    ``cases``: the name of the dict in the file. ``names``: run only these.
    """
    return run_apart(file, cases, names, {"TRITON_INTERPRET": "1"})


def run_apart(
    file: str, cases: str, names: Iterable[str] | None = None, environment: dict[str, str] | None = None
) -> dict[str, str]:
    """Run a test file's cases in a fresh process with these variables set; return as `interpreted`."""
    path = os.pathsep.join(
        [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "tests" / "fused"), str(Path(file).parent), *sys.path]
    )
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    child = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, file, cases, *(names or ())],
        env={**inherited, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    last = child.stdout.splitlines()[-1] if child.stdout else ""
    if child.returncode or not last.startswith(MARK):
        raise RuntimeError(f"the process for {file} ended with {child.returncode}:\n{child.stderr[-4000:]}")
    outcomes: dict[str, str] = json.loads(last.removeprefix(MARK))
    return outcomes


def _run(file: str, cases: str, names: list[str]) -> dict[str, str]:
    spec = spec_from_file_location(Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    outcomes = {}
    for name, check in getattr(module, cases).items():
        if names and name not in names:
            continue
        try:
            check()
            outcomes[name] = ""
        except Exception:
            outcomes[name] = traceback.format_exc()
    return outcomes


if __name__ == "__main__":
    # The interpreter computes with numpy, which warns of the overflows GPUs do not mention.
    warnings.simplefilter("ignore")
    print(MARK + json.dumps(_run(sys.argv[1], sys.argv[2], sys.argv[3:])))
