"""An operator that torch does not have is never called: ``op aten::itme: calls == 0`` would hold whatever runs."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import Any

from foretrace.model.expectations import Checked, Outcome

__all__ = ["misspelt"]

_NEAR = 0.75  # a name of another version of torch, which this one lacks, is seldom as near to one it has
_ATEN = "aten::"


def misspelt(checked: Checked) -> str | None:
    """The sentence for the first expectation that holds only because no operator has such a name; None for none."""
    for outcome in checked.outcomes:
        wanted = outcome.scope.op
        if wanted is None or outcome.state != "held" or not _never_called(outcome) or set(wanted) & set("*?["):
            continue
        meant = _meant(wanted)
        if meant is not None:
            return (
                f"no operator of torch is called {wanted}, so '{outcome.expectation}' would hold whatever runs; "
                f"did you mean {meant}?"
            )
    return None


def _never_called(outcome: Outcome) -> bool:
    return outcome.quantity == "calls" and all(step.observed == 0 for step in outcome.steps)


def _meant(wanted: str) -> str | None:
    """The operator of torch whose name is nearest; None for one that torch has, or that is not like any of its own."""
    torch: Any = sys.modules.get("torch")  # loaded, for something was recorded
    if torch is None or not wanted.startswith(_ATEN) or hasattr(torch.ops.aten, wanted.removeprefix(_ATEN)):
        return None  # of another library, or there
    listing = getattr(torch._C, "_dispatch_get_all_op_names", None)
    names = {name.partition(".")[0] for name in listing()} if listing is not None else set()
    near = get_close_matches(wanted, sorted(name for name in names if name.startswith(_ATEN)), 1, _NEAR)
    return near[0] if near else None
