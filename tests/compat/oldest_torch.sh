#!/bin/sh
# Run the scenarios with the real profiler on the oldest torch that foretrace records with.
#
#   tests/compat/oldest_torch.sh [FOLDER]     FOLDER: where the environment is made (default .venv-torch24)
#
# Downloads about 2.5 GB the first time: torch 2.4.0 has no CPU-only wheel on PyPI. Needs Python 3.11 or 3.12.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${1:-$root/.venv-torch24}
if [ ! -x "$venv/bin/pytest" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet "torch==2.4.0" "numpy<2" pytest hypothesis msgspec rich isal setuptools
fi
cd "$root"
FORETRACE_TEST_TORCH_PYTHON="$venv/bin/python" "${PYTHON:-python3}" -m pytest -q tests/capture/test_real_profiler.py
