"""Compiled code: the graphs that Dynamo and AOT make of it, and what a call of one asks of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from foretrace.errors import InputError
from foretrace.knowledge.gpus import Gpu
from foretrace.knowledge.kineto import FX_GRAPH_CALL
from foretrace.prediction.program.fusion import Kernel, fuse
from foretrace.prediction.program.fx_nodes import Node, read_graph
from foretrace.prediction.program.generated import kernel_rows
from foretrace.prediction.program.loops import realise
from foretrace.prediction.program.observe import GRAPH, Recorder, without_modes
from foretrace.prediction.program.operands import Operand
from foretrace.prediction.program.stand_ins import IN_GRAPHS, AsOnGpu, attend
from foretrace.prediction.work import Operator

__all__ = ["Compiler"]


class Compiler:
    """A backend for ``torch.compile`` that writes graphs down, and runs them without data.

    After `start`, each call of a graph is numbered; `rows` gives what that call asks of a GPU.
    """

    def __init__(self, roads: AsOnGpu, recorder: Recorder, unknown: dict[str, str]) -> None:
        self._roads = roads
        self._notes = roads.notes
        self._recorder = recorder
        self._unknown = unknown
        self._graphs: list[_Graph] = []
        self._calls: list[tuple[_Graph, list[Operand | None], list[Operand | None]]] = []

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``torch.compile`` of a function with this backend."""
        torch._dynamo.reset()
        torch._dynamo.utils.counters["graph_break"].clear()
        return torch.compile(function, backend=self._backend)

    def start(self) -> None:
        """Forget the calls so far: the step that is written down begins."""
        self._calls.clear()
        if not self._graphs:
            self._notes.append("Dynamo compiled nothing of this program, so it is predicted as eager code")
        broken = torch._dynamo.utils.counters["graph_break"]
        if broken:
            reasons = "; ".join(str(reason).splitlines()[0] for reason in broken)
            self._notes.append(f"{sum(broken.values())} graph breaks: {reasons}")

    def rows(self, number: int) -> list[Operator]:
        """The rows of one call of a graph."""
        graph, given, returned = self._calls[number]
        return graph.rows(given, returned, self._recorder.storages.fresh, self._unknown)

    def _backend(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            from torch._dynamo.backends.common import aot_autograd
            from torch._functorch.partitioners import min_cut_rematerialization_partition
            from torch._inductor.decomposition import select_decomp_table
        except ImportError as error:
            raise InputError(
                f"this version of torch ({torch.__version__}) does not offer what --variant compile needs; use eager"
            ) from error
        self._as_on_gpu(module)
        backend = aot_autograd(
            fw_compiler=lambda graph, _: self._compiled(graph, "forward"),
            bw_compiler=lambda graph, _: self._compiled(graph, "backward"),
            inference_compiler=lambda graph, _: self._compiled(graph, "forward"),
            decompositions=select_decomp_table(),
            partition_fn=min_cut_rematerialization_partition,
        )
        with self._roads.within_functions():
            return backend(module, inputs)

    def _as_on_gpu(self, module: torch.fx.GraphModule) -> None:
        """Attention by the implementation a GPU would get."""
        for node in module.graph.nodes:
            called = getattr(node.target, "__name__", "")
            if node.op == "call_function" and called in IN_GRAPHS:
                node.target = IN_GRAPHS[called]
            elif node.op == "call_function" and called == "scaled_dot_product_attention":
                original = node.target
                node.target = self._attention(original)
        module.recompile()

    def _attention(self, original: Callable[..., Any]) -> Callable[..., Any]:
        roads = self._roads
        return lambda *args, **keywords: attend(original, roads.gpu, roads.notes, roads.release, *args, **keywords)

    def _compiled(self, module: torch.fx.GraphModule, phase: str) -> Callable[..., Any]:
        graph = _Graph(len(self._graphs), phase, module, self._roads.gpu, self._roads.release)
        self._graphs.append(graph)

        def call(args: list[Any]) -> Any:
            number = len(self._calls)
            given = [self._operand(item) for item in args]
            with without_modes(), torch.profiler.record_function(f"{GRAPH}{number}"):
                result = module(*args)
            returned = [self._operand(item) for item in result]
            self._calls.append((graph, given, returned))
            args.clear()
            return result

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def _operand(self, item: Any) -> Operand | None:
        return self._recorder.operand(item) if isinstance(item, torch.Tensor) else None


class _Graph:
    def __init__(
        self, number: int, phase: str, module: torch.fx.GraphModule, gpu: Gpu | None, release: tuple[int, int]
    ) -> None:
        self.number = number
        self.phase = phase
        self.nodes: list[Node] = read_graph(module, release)
        self.kernels: list[Kernel] = fuse(realise(self.nodes, gpu), release)

    def rows(
        self,
        given: Sequence[Operand | None],
        returned: Sequence[Operand | None],
        fresh: Callable[[], int],
        unknown: dict[str, str],
    ) -> list[Operator]:
        """One call: the compiled graph's row, and below it a row for each kernel it launches."""
        rows = kernel_rows(self.nodes, self.kernels, given, returned, fresh, unknown, self.phase)
        name = f"{FX_GRAPH_CALL} predicted_{self.number} ##"
        return [Operator(name, (), rows, phase=self.phase, annotation=True)]
