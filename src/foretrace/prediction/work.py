"""What a program asks of the GPU, before anybody knows how long it takes: the predictor's own vocabulary.

`program` writes these records from a module and its inputs (with torch, without a GPU); `clock` reads them and
says which kernels a GPU would run for them and for how long. Neither knows the other.

Sizes are bytes, element types are the names of `foretrace.knowledge.dtypes` (``bf16``, ``fp32``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Access", "Operator", "Product", "Program", "Tensor", "Work"]

Mode = Literal["forward", "train"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor argument as a trace would record it. ``storage`` tells whether two of them share memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    storage: int


@dataclass(frozen=True, slots=True)
class Access:
    """``bytes`` of one storage that a kernel touches; an expanded operand touches what is really there."""

    storage: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Product:
    """``batch`` matrix products ``[m, k] @ [k, n]`` in torch's order; ``layout`` as `GemmShape` spells it (TN, …).

    ``bias``: a bias vector is added in the same library call. ``accumulate``: the call adds to an existing matrix
    (``beta`` not zero), which it therefore reads.
    """

    m: int
    n: int
    k: int
    batch: int
    layout: str
    bias: bool = False
    accumulate: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """One thing a library or generated kernel does for one operator; it may take several kernels.

    ``kind`` is a kernel kind of the report (gemm, elementwise, fused, reduction, copy, …) or ``memset`` and
    ``memcpy``. ``op`` is the operator that asks for it (``aten::mm``), for generated code the name of the kernel
    (``triton_poi_fused_gelu_mul_0``). ``parts``: the operators that a generated kernel does. ``elements``: points
    of its iteration space. ``reduced``: elements that go into one result of a reduction, 1 without one.
    ``vectorised``: whether rows are contiguous, so that eager's wide loads apply; of a reduction: whether the elements
    of one result lie side by side.
    """

    kind: str
    op: str
    dtype: str
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    elements: int
    reduced: int = 1
    parts: tuple[str, ...] = ()
    flops: int | None = None
    product: Product | None = None
    vectorised: bool = True
    generated: bool = False  # by a compiler: Inductor's Triton kernels
    note: str | None = None  # what about this item is a guess
    epilogue: tuple[str, ...] = ()  # of a product: what a fused kernel does with it before it leaves the registers
    beside_hopper: float = 1.0  # times as long as foretrace's Hopper kernel takes for this product and epilogue
    expected_us: float | None = (
        None  # what dispatch expects of that kernel, where it and the Hopper kernel do not compare
    )
    crossed: bool = False  # an operand is contiguous along another dimension than the result: a transposition


@dataclass(slots=True)
class Operator:
    """A node of the dispatch tree: what the CPU does, and the work it launches itself, after that of its children."""

    name: str
    inputs: tuple[Tensor | None, ...] = ()
    children: list[Operator] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    phase: str | None = None  # forward, backward, optimizer
    module: str | None = None  # dotted path of the nn.Module
    annotation: bool = False  # a record_function or profiler row, not an operator
    sequence: int | None = None  # the same number on a forward operator and the backward node it made
    concrete: tuple[str, ...] = ()  # scalar arguments as the profiler writes them, "" for a tensor; () not known


@dataclass(slots=True)
class Program:
    """One step of a program. ``unknown``: operators that no rule knows, each with the reason."""

    name: str
    roots: list[Operator]
    variant: str
    mode: Mode
    persistent: dict[int, int]  # storage → bytes of parameters and inputs: there before the step begins
    unknown: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    modelled: list[str] = field(default_factory=list)  # sizes and types of inputs and parameters, in words

    def work(self) -> list[Work]:
        """All work in the order in which it is launched."""
        return [work for _, work in self.items()]

    def items(self) -> list[tuple[Operator, Work]]:
        """All work with the operator that launches it, in the order in which it is launched."""
        found: list[tuple[Operator, Work]] = []
        pending = [(node, False) for node in reversed(self.roots)]
        while pending:
            node, is_done = pending.pop()
            if is_done or not node.children:
                found.extend((node, work) for work in node.work)
                continue
            pending.append((node, True))
            pending.extend((child, False) for child in reversed(node.children))
        return found
