"""What the predictor asks of the fused modules, as plain data: it stands below them and imports none of them.

`foretrace.capture.predicting` answers, with their own dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FusedModules", "FusedPlan", "FusedProblem"]


@dataclass(frozen=True, slots=True)
class FusedProblem:
    """One call of a fused layer; fields and words are those of `foretrace.fused.plan.Problem`.

    ``operation``: gated_mlp, mlp or linear_act. ``m`` rows, ``k`` input, ``n`` intermediate and ``out`` output
    features (0: there is no second product). ``dtype`` as torch calls it, ``bfloat16``.
    """

    operation: str
    m: int
    n: int
    k: int
    out: int
    dtype: str
    activation: str
    training: bool
    bias: bool
    packing: str
    aligned: bool
    precision: str


@dataclass(frozen=True, slots=True)
class FusedPlan:
    """The implementations of a call's steps by name, and what its forward keeps. ``source``: where that is known from.

    ``expand``: input to hidden. ``project``: hidden to output. ``backward``: gradient of the pre-activations.
    ``beside_hopper``: by step, how many times as long its kernel takes as the Hopper kernel, whose times the clock
    knows; 1 for a step that is not in it. ``expected_us``: by step, what dispatch expects of its kernel, where the two
    do not compare.
    """

    expand: str
    project: str
    backward: str
    save: str
    source: str
    beside_hopper: Mapping[str, float] = field(default_factory=dict)
    expected_us: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether PyTorch's own operators do it all."""
        return self.expand == self.project == self.backward == "plain"


@dataclass(frozen=True, slots=True)
class FusedModules:
    """``plan``: what serves a call on the GPU. ``swap``: a program with its MLPs replaced, what was replaced, what not.

    ``assumed``: what the plans rest on, as a sentence.
    """

    plan: Callable[[FusedProblem], FusedPlan]
    swap: Callable[[Callable[..., Any]], tuple[Callable[..., Any], str | None]]
    assumed: str
