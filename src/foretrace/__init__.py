"""foretrace: say what a PyTorch program should do on the hardware, look at what it did, explain the difference.

The public names are loaded on first use, so that ``import foretrace`` costs nothing and needs no torch::

    import foretrace

    trace = foretrace.load("trace.json.gz")   # a Trace; reads any Kineto file
    report = foretrace.explain(trace)         # a Report; plain data, `report.verdict`, `report.findings`, …

    with foretrace.profile("traces/mlp") as recording:   # needs torch
        for _ in recording.steps():
            model(x)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foretrace.version import __version__

if TYPE_CHECKING:
    from foretrace.analysis import explain
    from foretrace.capture import profile
    from foretrace.capture.predicting import predict
    from foretrace.comparison import compare
    from foretrace.errors import (
        CaptureError,
        ForetraceError,
        InputError,
        MissingExtraError,
        TraceReadError,
    )
    from foretrace.model.expectations import Checked, Expectation
    from foretrace.model.report import Report
    from foretrace.prediction.expect import check, expect
    from foretrace.prediction.predict import Prediction
    from foretrace.trace import Trace, load

__all__ = [
    "CaptureError",
    "Checked",
    "Expectation",
    "ForetraceError",
    "InputError",
    "MissingExtraError",
    "Prediction",
    "Report",
    "Trace",
    "TraceReadError",
    "__version__",
    "check",
    "compare",
    "expect",
    "explain",
    "load",
    "predict",
    "profile",
]

_HOME = {
    "CaptureError": "foretrace.errors",
    "Checked": "foretrace.model.expectations",
    "Expectation": "foretrace.model.expectations",
    "ForetraceError": "foretrace.errors",
    "InputError": "foretrace.errors",
    "MissingExtraError": "foretrace.errors",
    "Prediction": "foretrace.prediction.predict",
    "Report": "foretrace.model.report",
    "Trace": "foretrace.trace",
    "TraceReadError": "foretrace.errors",
    "check": "foretrace.prediction.expect",
    "compare": "foretrace.comparison",
    "expect": "foretrace.prediction.expect",
    "explain": "foretrace.analysis",
    "load": "foretrace.trace",
    "predict": "foretrace.capture.predicting",
    "profile": "foretrace.capture",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'foretrace' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext foretrace`` in a notebook: brings the cell magic ``%%foretrace``."""
    magic = import_module("foretrace.integrations.notebook.magic")
    shell.register_magics(magic.ForetraceMagics)
