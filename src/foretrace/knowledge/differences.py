"""Why a trace holds more or fewer of something than people expect: the facts behind a broken expectation.

Each text explains one mechanism in general; the numbers and names of a trace are put in front of it by the checker
(``prediction/expect/``). ``findings`` names the rules of a report that tell the same of the same events, in full.
"""

from __future__ import annotations

import msgspec

from foretrace.knowledge.lowering.cublas import TILE_COUNTER

__all__ = ["DIFFERENCES", "NO_QUERY_FAMILIES", "TRITON_FAMILIES", "Difference"]

# Families of GEMM kernels whose library plans a launch without asking the driver for the occupancy.
NO_QUERY_FAMILIES = frozenset({"nvjet"})
# Families of GEMM kernels written in Triton, whose names have none of its marks.
TRITON_FAMILIES = frozenset({"foretrace"})


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One mechanism; ``source`` says where the fact comes from."""

    why: str
    source: str
    findings: tuple[str, ...] = ()


_MEASURED = "traces of torch 2.11 (CUDA 13) on an H200"

DIFFERENCES: dict[str, Difference] = {
    # more kernels
    "split_k": Difference(
        why="The library split the reduction dimension K over several blocks because the result has too few tiles to "
        "fill the GPU; each part writes its own sum, and a second kernel adds them up. It is one product in two "
        "kernels.",
        source="cuBLAS documentation, split-K reduction schemes; the kernel's name",
    ),
    "bias_apart": Difference(
        why="The bias is added by a kernel of its own, not in the GEMM's epilogue: the product and the addition are "
        "separate operators, or the input is not contiguous.",
        source="aten/src/ATen/native/Linear.cpp and Convolution.cpp",
        findings=("epilogue_lost", "convolution_bias"),
    ),
    "cast": Difference(
        why="The kernel only changes the element type: .to(), autocast, or an operator that computes in FP32.",
        source="input types recorded with aten::copy_",
        findings=("dtype_casts",),
    ),
    "graph_input": Difference(
        why="A CUDA graph reads its inputs at fixed addresses, so every call copies them there first; the copy is not "
        "part of the graph.",
        source="torch/_inductor/cudagraph_trees.py",
        findings=("graph_input_copy",),
    ),
    "requested_copy": Difference(
        why="The program asks for this copy by the operator it calls.",
        source="the operators around the launch",
    ),
    "hidden_copy": Difference(
        why="No copy was asked for by name; an operator works on a copy of its input.",
        source="the operators around the launch",
        findings=("hidden_copy",),
    ),
    "fill": Difference(
        why="A tensor is filled with one value: zeros, ones, or the 1 with which a backward pass begins. It computes "
        "nothing and still is a kernel.",
        source="the operators around the launch",
    ),
    "gradient_sum": Difference(
        why="Autograd adds a new gradient to one that is there already: a parameter used twice, or .grad kept from "
        "the step before (zero_grad(set_to_none=True) avoids the latter).",
        source="torch/csrc/autograd/functions/accumulate_grad.h",
    ),
    "backward": Difference(
        why="It belongs to the backward pass, which runs about two products for each one of the forward pass, and the "
        "derivative of each pointwise operator.",
        source="autograd's rows around the launch",
    ),
    "optimizer": Difference(
        why="It belongs to the optimizer's step.",
        source="the Optimizer.step row around the launch",
        findings=("for_loop_optimizer", "foreach_optimizer"),
    ),
    "communication": Difference(
        why="It moves data between GPUs and belongs to torch.distributed, not to the model's arithmetic.",
        source="the kernel's name",
        findings=("exposed_communication", "hidden_communication"),
    ),
    "several_kernels": Difference(
        why="One call of an operator may launch several kernels: it prepares its operands, works in stages, or is "
        "made of several operators.",
        source="the operator around the launches",
    ),
    "of_operator": Difference(
        why="It was launched by the operator named, inside the chain shown.",
        source="the launch's correlation id and the operators around it",
    ),
    # fewer kernels
    "fused": Difference(
        why="One generated or hand-written kernel does the work of several operators: their results stay in registers "
        "and no kernel of their own is left. It counts as fused, not as elementwise.",
        source="the operators its name lists",
    ),
    "epilogue": Difference(
        why="The GEMM does it in its epilogue, before the result is written: it takes no kernel of its own.",
        source="the kernel's name, or the operator that was called",
        findings=("bias_in_epilogue",),
    ),
    "fused_attention": Difference(
        why="A fused attention kernel holds both products and the softmax between them; they count as one kernel of "
        "kind attention.",
        source="the kernel's name",
    ),
    "not_fused": Difference(
        why="Eager PyTorch runs each pointwise operator as a kernel of its own; only torch.compile, a fused operator "
        "or a hand-written kernel joins them.",
        source="the operators around the launches",
        findings=("hbm_round_trip",),
    ),
    "nothing_to_fuse": Difference(
        why="Compiled code holds a fused kernel only where two or more pointwise operators meet; with fewer there is "
        "nothing to fuse.",
        source="the compiled region's kernels",
    ),
    "near_miss": Difference(
        why="Only kernels that have every field of the pattern count. Which tile, layout and stages a library takes "
        "depends on the shape, the dtype, its version and the GPU.",
        source="decoded kernel names",
    ),
    "other_kinds": Difference(
        why="A kernel is of the kind of its dominant operator: a product with an epilogue is a gemm, pointwise work of "
        "two or more operators in one kernel is fused.",
        source="docs/concepts/expectations.md, kinds",
    ),
    # copies and memsets
    "seeded_output": Difference(
        why="The output is first filled with the addend by a copy on the device, and the product then adds to it "
        "(beta = 1): a matrix addend always goes this way, a vector bias only where the library has no epilogue for "
        "it.",
        source="aten/src/ATen/native/cuda/Blas.cpp, addmm_out_cuda_impl",
        findings=("epilogue_lost",),
    ),
    "host_copy": Difference(
        why="Data crosses the bus between host and GPU inside the step.",
        source="the copy's memory kinds",
        findings=("host_transfers", "pageable_transfers"),
    ),
    "scalar_read": Difference(
        why="The program reads one value back (.item(), float(), a branch on a tensor): a small copy, and the host "
        "waits for it.",
        source="aten::_local_scalar_dense around the copy",
        findings=("synchronization", "synchronization_end", "synchronization_free"),
    ),
    "copies_as_kernels": Difference(
        why="A copy on the device between tensors of different layout or type is a kernel, not a memcpy row; only one "
        "between contiguous blocks of memory is.",
        source="aten/src/ATen/native/cuda/Copy.cu",
    ),
    "library_memset": Difference(
        why=f"A library clears memory that its kernel counts or accumulates in: {TILE_COUNTER}; split sums clear "
        "more. It belongs to the operator, not to the program.",
        source=f"memsets inside operators that launch a kernel as well; {_MEASURED}",
        findings=("library_memsets",),
    ),
    "graph_memset": Difference(
        why="It was recorded when the graph was captured and is replayed with it; which operator issued it is not in "
        "the trace.",
        source="CUDA graph replay",
        findings=("library_memsets", "cuda_graph"),
    ),
    "fill_memset": Difference(
        why="The program, or a library it calls, clears memory with the driver's own call; it launches no kernel.",
        source="the operator around the call, or none",
    ),
    "fills_as_kernels": Difference(
        why="PyTorch fills a tensor with a kernel of its own; memset rows come from the driver's call.",
        source="the operators around the launches",
    ),
    # calls
    "no_query_by_design": Difference(
        why="On Hopper and later cuBLAS launches its nvjet kernels through cuLaunchKernelEx with a grid and clusters "
        "that it works out itself; it asks the driver no occupancy question. The query in front of a GEMM belongs to "
        "its older kernels, launched with cudaLaunchKernel.",
        source=f"nvjet launches in {_MEASURED}",
    ),
    "no_query_triton": Difference(
        why="A kernel written in Triton is launched with the grid that its Python code gives; no library asks the "
        "driver how many of its blocks fit.",
        source=f"foretrace's launches in {_MEASURED}",
    ),
    "no_query_plain": Difference(
        why="Only libraries that adapt their launch to the GPU ask how many blocks fit on a multiprocessor; pointwise, "
        "reduction and Triton kernels are launched with a grid that follows from the tensor's size.",
        source="the launches without a query in front of them",
    ),
    "no_query_library": Difference(
        why="Asking is the library's choice: it may know the answer from an earlier call, or work out the launch "
        "itself, as newer versions of cuBLAS and cuDNN do.",
        source="launches of GEMM kernels with and without a query, torch 1.12 to 2.11 on A100, H100 and H200",
    ),
    "queries_at_capture": Difference(
        why="A CUDA graph was planned when it was captured; its replay asks nothing and launches once.",
        source="CUDA graphs share one correlation id among all nodes of a launch",
        findings=("cuda_graph",),
    ),
    "queries": Difference(
        why="A library asks how many blocks fit on a multiprocessor to plan a launch; the call itself puts nothing on "
        "the GPU.",
        source="CUDA Runtime API, occupancy",
        findings=("occupancy_queries",),
    ),
    "graph_launch": Difference(
        why="One graph launch call puts all the work of the captured graph on the GPU: kernels without launches of "
        "their own.",
        source="CUDA graphs share one correlation id among all nodes of a launch",
        findings=("cuda_graph",),
    ),
    "launch_kinds": Difference(
        why="Every copy and memset has a launch call of its own, as a kernel has.",
        source="the API calls of the step",
    ),
    "waits": Difference(
        why="The call returns only when the GPU has done what was queued before it.",
        source="API synchronization behavior, CUDA Runtime API",
        findings=("synchronization", "synchronization_end", "synchronization_free", "synchronization_library"),
    ),
    # torch.compile
    "compilation": Difference(
        why="A guard failed (another shape, stride, dtype, grad mode or Python value), or this was the first call: the "
        "step holds compile time, not run time.",
        source="torch._dynamo compile events and region ids (frame/compilation)",
        findings=("recompile",),
    ),
    "frames": Difference(
        why="After a graph break the rest of a function is compiled as a frame of its own; functions compiled apart "
        "look the same.",
        source="region ids are frame/compilation (torch._dynamo)",
        findings=("graph_break",),
    ),
    "views": Difference(
        why="A view changes sizes and strides and moves no data. Compiled code has none: its strides are worked out "
        "once, when it is compiled.",
        source="the alias annotations of native_functions.yaml",
        findings=("metadata_only",),
    ),
    "calls_made": Difference(
        why="A call is counted wherever it is made. Where operators stand in front of it, the program called the first "
        "of them, and they made this call.",
        source="the operators around the rows",
    ),
    "calls_left": Difference(
        why="These are all the calls of it; the others that were expected did not run in this step.",
        source="the operators around the rows",
    ),
    "taken_apart": Difference(
        why="The fused operator was not called, so what it does in one pass is done in several: on a GPU the product "
        "has no epilogue, and its result goes to memory and back. They may run for another reason as well.",
        source="native_functions.yaml; the names of the step's rows",
        findings=("epilogue_lost",),
    ),
    "done_elsewhere": Difference(
        why="A fused operator does the work of several operators under its own name: those it stands for are not "
        "called.",
        source="the operators that the kernel's name lists",
    ),
    "not_there": Difference(
        why="No row of this place accounts for it: the code that would do it did not run here, or the work is done "
        "under another name, such as that of a fused operator.",
        source="the rows of the step",
    ),
    "no_such_place": Difference(
        why="A clause about a place that the trace does not have cannot hold: the name is misspelt, or the code did "
        "not run. That something does not run is asked with calls == 0.",
        source="the names of the trace's rows",
    ),
    # times and amounts
    "time_of_kernels": Difference(
        why="These kernels take most of the time.",
        source="durations of the kernel rows",
    ),
    "time_of_host": Difference(
        why="These rows take most of the CPU time; the profiler lengthens it.",
        source="durations of the CPU rows",
    ),
    "shares_of_host": Difference(
        why="The profiler lengthens every call, so the recorded times do not add up to the time looked at: read them "
        "as shares.",
        source="durations of the CPU rows",
    ),
    "recorded_apart": Difference(
        why="The recorded step was another kind of step than the one that was timed: cold (first calls), or disturbed "
        "by a busy machine. What its rows take says nothing of the timed one.",
        source="durations of the CPU rows; the side file's unprofiled timing",
    ),
    "idle_causes": Difference(
        why="GPU idle time of the step, put down to what surrounds each gap.",
        source="docs/concepts/steps.md, where idle time goes",
        findings=("cpu_starved", "cpu_wait_unproven", "cpu_wait_whole", "synchronization", "data_loading"),
    ),
    "unprofiled_rest": Difference(
        why="Kernels take about as long without the profiler as with it; what is left of the unprofiled step the GPU "
        "waits for the CPU.",
        source="the side file's unprofiled timing; durations of the kernel rows",
    ),
    "cold_step": Difference(
        why="First calls load kernels, ask libraries for their choice and fill caches; the first recorded one also "
        "pays for the profiler's start.",
        source="lazy loading of CUDA modules, cuBLAS and cuDNN initialization",
        findings=("cold_first_step",),
    ),
    "amounts": Difference(
        why="These kernels hold most of it, counted from the recorded shapes (each operand read once, each result "
        "written once).",
        source="the operators' shapes",
    ),
    "peak": Difference(
        why="The peak was reached by this request to PyTorch's allocator.",
        source="the allocator's rows (profile_memory=True)",
    ),
    # words
    "bound_reasons": Difference(why="", source="the report's verdict; docs/concepts/bounds.md"),
    "order_differs": Difference(
        why="Kernels are ordered by their start on the GPU; those of kinds that the order does not name are passed "
        "over.",
        source="starts of the kernel rows",
    ),
    "other_kernels": Difference(
        why="Kernels of one name are the same code with the same settings. A library picks another one for another "
        "shape, layout, dtype, version or GPU; torch.compile writes its own.",
        source="kernel names of both traces",
    ),
}
