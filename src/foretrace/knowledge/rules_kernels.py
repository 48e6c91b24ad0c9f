"""Texts of the findings about single kernels and what they hand to one another.

``{each}`` is `` a step``, `` in 2 steps`` where a step's number would be broken, or empty for a trace without steps;
``{time}`` and ``{total}`` are times a step.
"""

from __future__ import annotations

from foretrace.knowledge.lowering.cublas import TILE_COUNTER
from foretrace.knowledge.rule import Rule

__all__ = ["EPILOGUE_LOST", "HIDDEN_COPY", "HIDDEN_COPY_OPERATORS", "KERNEL_RULES", "MEMSET_ORIGIN"]

_INFERRED = "That one kernel takes the result of the other is inferred from shapes and order."

# How a bias came to be added outside the GEMM: (why, what to do).
EPILOGUE_LOST = {
    "added": (
        "The product and the addition are separate operators; addmm, which nn.Linear uses for contiguous input, "
        "takes a vector bias into the GEMM's epilogue before the result is written.",
        "Use nn.Linear or torch.addmm with a vector bias.",
    ),
    "linear": (
        "aten::linear takes the bias into the GEMM only where it can view its input as a matrix; for a "
        "non-contiguous input it multiplies first and then adds in place.",
        "Make the input contiguous where it is produced, or let torch.compile choose its layout.",
    ),
    "seeded": (
        "The output is first filled with the addend and the GEMM then adds to it (beta = 1), so the addend crosses "
        "memory twice more than in an epilogue. A matrix addend always goes this way; a vector bias only where the "
        "library has no epilogue for this product.",
        "For a matrix, keep the product and the addition apart so that the addition can join its neighbours.",
    ),
}

# How a copy came about that no one asked for by name: (why, what to do). ``other`` is said where no cause is known.
HIDDEN_COPY = {
    "layout": (
        "reshape returns a view where the layout of its input allows one and copies where not, as after a transpose "
        "or an expand.",
        "Produce the tensor in the layout its consumer needs, or let torch.compile fold the copy into its neighbours.",
    ),
    "slice_gradient": (
        "The gradient of a slice or a selection has the size of the whole input: it is filled with zeros and the "
        "gradient copied into its place. No layout removes this copy.",
        "Take all parts at once with split, chunk or unbind, whose gradient joins them in one pass, or let "
        "torch.compile write the padded gradient where it is computed.",
    ),
    "padding": (
        "Padding allocates the larger tensor, fills it and copies the input into it. No layout removes this copy.",
        "Make the data in its padded size, or let torch.compile pad where the tensor is computed.",
    ),
    "cat_of_one": (
        "cat copies its one tensor that holds data whole, the others being empty: the first update of a key/value "
        "cache does this.",
        "Leave empty tensors out of the cat. Where it is a key/value cache and nothing is generated, as in training, "
        "turn the cache off (use_cache=False in transformers).",
    ),
    "power": (
        "pow with the exponent 1 is a copy, and the gradient of pow(x, 2) takes pow(x, 1). No layout removes it.",
        "For the power, a fused operator, such as torch.nn.functional.rms_norm where it is part of a norm, or "
        "torch.compile.",
    ),
    "product": (
        "The library multiplies matrices whose rows or columns are contiguous; an operand that has neither, such as "
        "an expanded gradient (that of out.sum() is one), is copied first.",
        "Make the operand contiguous where it is produced. A loss that is no plain sum has no expanded gradient.",
    ),
    "convolution": (
        "The library takes the input, the weights and the gradient in one memory format and copies what comes in "
        "another.",
        "Bring the model and its input to the same memory format: .to(memory_format=torch.channels_last) on both.",
    ),
    "other": (
        "The operator works on a copy of its own, or its input has a layout it cannot use.",
        "If it is the layout, produce the tensor in the one its consumer needs; else torch.compile may fold the copy "
        "into its neighbours.",
    ),
}
# ATen's operators (without ``aten::``) → the cause of a copy right inside them, by what each one's source does.
HIDDEN_COPY_OPERATORS = {
    "reshape": "layout",
    "flatten": "layout",
    "slice_backward": "slice_gradient",
    "select_backward": "slice_gradient",
    "diagonal_backward": "slice_gradient",
    "unfold_backward": "slice_gradient",
    "constant_pad_nd": "padding",
    "pad": "padding",
    "cat": "cat_of_one",
    "pow": "power",
    "mm": "product",
    "bmm": "product",
    "addmm": "product",
    "baddbmm": "product",
    "addbmm": "product",
    "mv": "product",
    "addmv": "product",
    "_convolution": "convolution",
    "convolution": "convolution",
    "cudnn_convolution": "convolution",
    "miopen_convolution": "convolution",
    "convolution_backward": "convolution",
}

_CLEARED = (
    "They belong to the operator that also launches the kernel beside them, not to the program: a library clears "
    "memory that its kernel counts or accumulates in"
)
# What is known of a library's memsets, by where they were found.
MEMSET_ORIGIN = {
    "operator": f"{_CLEARED}.",
    "counter": f"They belong to the operator, not to the program: {TILE_COUNTER}.",
    "some_counters": f"{_CLEARED}. Those of products: {TILE_COUNTER}.",
    "graph": "They were recorded when the graph was captured and are replayed with it; which operator issued them is "
    "not in this trace.",
}

KERNEL_RULES: dict[str, Rule] = {
    "hbm_round_trip": Rule(
        severity="note",
        title="{chain}{others}: {megabytes} of memory round trips{each}",
        explanation="Each of these kernels reads its inputs from memory and writes its result back, and the next "
        "one reads it again. Run as one kernel the intermediates would stay in registers: {megabytes} less "
        f"traffic, at the {{rate}} these kernels reach {{saving}}.{{parts}} {_INFERRED}{{kept}}",
        suggestion="torch.compile, or a fused kernel, joins pointwise operators like these into one.",
        source="bytes counted from the recorded shapes, each operand read once and each result written once",
    ),
    "gemm_then_pointwise": Rule(
        upper_bound=True,
        severity="note",
        title="{pair}{others}: an epilogue could do it",
        explanation="A GEMM writes its result and pointwise work reads it again ({number}{each}). Done in the "
        "GEMM's epilogue, before the result leaves the registers, {megabytes} of traffic would go, and with it up "
        "to {saving} of pointwise time. That bounds what vanishes, with the products as they are: the kernel that "
        "takes it in may be faster or slower at the products themselves, which this trace cannot "
        f"tell.{{parts}}{{additional}} {_INFERRED}",
        suggestion='A GEMM with a fused epilogue: torch.compile(mode="max-autotune") tries Triton templates that '
        "take one, and fused linear + activation or gate/up kernels exist for MLPs.",
        source="bytes of the GEMM's result at the rate the pointwise kernels reach, capped at their time",
    ),
    "bias_in_epilogue": Rule(
        severity="info",
        title="The bias of {operator} ({number}{each}) is added inside the GEMM",
        explanation="One kernel does the product and the bias: the addition happens in the epilogue, before the "
        "result is written, and costs no kernel and no traffic of its own. That is why there is no aten::add.",
    ),
    "epilogue_lost": Rule(
        upper_bound=True,  # an epilogue takes a little time too, and a matrix addend it cannot take
        severity="note",
        title="Epilogue lost: the bias of {operator} ({number}{each}) runs apart, {time}",
        explanation="{why} Here the addition costs {total}.",
        suggestion="{advice}",
    ),
    "convolution_bias": Rule(
        upper_bound=True,
        severity="note",
        title="The bias of convolutions ({number}{each}) is added by extra kernels, {time}",
        explanation="aten::_convolution calls the library for the product and adds the bias with aten::add_ "
        "afterwards, which reads and writes the whole output once more: {total}.",
        suggestion="Before a normalisation drop the bias (bias=False); else torch.compile joins it with the "
        "activation that follows, and for inference torch.cudnn_convolution_relu takes both into the epilogue.",
    ),
    "metadata_only": Rule(
        severity="info",
        title="{number} view operators{each} launch nothing ({time} of CPU time, {how})",
        explanation="They change sizes and strides and move no data: {names}. Their CPU time matters only where "
        "the GPU waits for the CPU.{layout}",
    ),
    "occupancy_queries": Rule(
        severity="info",
        title="{number} occupancy {queries}{each} for {names} (CPU, {time})",
        explanation="A library asks how many blocks fit on a multiprocessor to plan a launch. The call puts nothing "
        "on the GPU; it marks kernels that adapt their launch, such as GEMMs and convolutions, and is absent "
        "before plain pointwise kernels and cuBLAS's nvjet kernels.",
    ),
    "library_memsets": Rule(
        severity="info",
        title="{memsets} by {names} ({time})",
        explanation="{origin} They are counted as memsets, not as kernels.",
    ),
    "hidden_copy": Rule(
        upper_bound=True,
        severity="note",
        title="{number} hidden {copies}{each}: {where} ({time})",
        explanation="No copy was asked for by name; an operator made it in {paths}. {why} Without it, up to {total} "
        "would be saved.",
        suggestion="{advice}",
    ),
    "graph_input_copy": Rule(
        severity="note",
        title="{number} {copies}{each} of inputs into a CUDA graph's static buffers ({time})",
        explanation="A CUDA graph reads its inputs at fixed addresses, so every call copies them there before "
        "cudaGraphLaunch. The copy has its own launch and is not part of the graph.",
        suggestion="Write the input straight into the static tensor, or mark one that stays where it is with "
        "torch._dynamo.mark_static_address.",
    ),
    "ddp_bucket_copies": Rule(
        severity="note",
        title="DistributedDataParallel copies {number} gradients{each} back out of its buckets ({time})",
        explanation="Gradients are reduced in buckets and then copied back into each parameter's .grad. With "
        "gradient_as_bucket_view=True .grad is a view of the bucket, and the copies, as well as the memory of one "
        "set of gradients, are saved.",
        suggestion="DistributedDataParallel(..., gradient_as_bucket_view=True).",
    ),
    "dtype_casts": Rule(
        severity="note",
        title="{number} dtype casts{each} take {time}, {share} of the kernel time",
        explanation="Kernels that only change the element type, each step: {pairs}. They come from .to(), from "
        "autocast, or from operators that compute in FP32. Where a cast stands next to other pointwise work, what "
        "fusing it would save is counted under hbm_round_trip.",
        suggestion="Keep tensors in one type, or let torch.compile fold the casts into the kernels around them.",
    ),
    "host_transfers": Rule(
        severity="info",
        title="{number} {copies}{each} {way}{size} ({time})",
        explanation="Data crosses the bus between host and GPU inside the measured time.{pageable}",
    ),
    "pageable_transfers": Rule(
        severity="warning",
        title="{number} {copies}{each} {way} through pageable memory{size} ({time})",
        explanation="The host side is pageable memory, so the driver goes through a buffer of its own, the calling "
        "thread waits for it, and the copy cannot overlap with kernels launched later.",
        suggestion="Pin the host tensors (DataLoader(pin_memory=True), tensor.pin_memory()) and copy with "
        "non_blocking=True.",
    ),
    "fp32_gemm": Rule(
        upper_bound=True,
        severity="warning",
        title="{number} FP32 products{each} run without tensor cores: {time}, {share} of the kernel time",
        explanation="Their names say FP32 on the vector units, {slow} TFLOP/s on {gpu}; {faster} on its matrix units "
        "reaches {fast}. {saving} FP32 results are more exact: whether that is needed is the model's matter.",
        suggestion="{how}",
        source="peak rates of the GPU's datasheet",
    ),
    "tiny_kernels": Rule(
        severity="note",
        title="{number} of {total} kernels{each} take less than {limit}; together {share} of the kernel time",
        explanation="Such kernels are shorter than it takes the CPU to launch one: right before them the GPU was "
        "idle for {idle}; they themselves take {time}. Most come from {names}.",
        suggestion='Fewer, larger kernels: torch.compile joins them, CUDA graphs (mode="reduce-overhead") launch '
        "them together, larger batches make them longer.",
    ),
    "for_loop_optimizer": Rule(
        severity="warning",
        title="{optimizer} updates parameters one by one: {number} kernels{each} ({time})",
        explanation="The optimizer step loops over the parameters and launches several small kernels for each of "
        "them. The fused implementation updates many parameters in one kernel.",
        suggestion="torch.optim.{optimizer}(..., fused=True), or foreach=True where fused is not possible.",
    ),
    "foreach_optimizer": Rule(
        severity="note",
        title="{optimizer} goes over the parameters {passes} times a step, fused=True {fused} times ({time} now)",
        explanation="The foreach implementation runs one operator at a time over all parameters, and each reads and "
        "writes whole lists of tensors: {passes} reads or writes of a parameter-sized list, where the fused "
        "kernel needs {fused}. At the same rate that is {saving} less.",
        suggestion="torch.optim.{optimizer}(..., fused=True).",
        source="tensor lists of the recorded _foreach operators, each read once and one written",
    ),
    "slow_attention": Rule(
        upper_bound=True,
        severity="warning",
        title="{number} unfused attention(s){each}: {inner} between the products, {time} in all",
        explanation="In these, {how}: about {kernels} kernels each, and the scores ({scores}) cross memory between "
        "them. A fused attention keeps the scores on chip, and up to the {inner} between the two products would go; "
        "the softmax itself stays, inside its one kernel. Inferred from the order batched product, softmax, batched "
        "product and their shapes.",
        suggestion="torch.nn.functional.scaled_dot_product_attention with inputs that a fused backend takes (16-bit, "
        "head size up to 256, is_causal instead of a mask tensor).",
    ),
    "low_gemm_utilisation": Rule(
        severity="info",
        title="GEMM {shape} reaches {share} of peak ({number}{each}, {of_all} of the kernel time)",
        explanation="Its median call reaches {share} of the peak ({peak}) and takes {time} in all.{why}",
    ),
    "low_bandwidth": Rule(
        severity="note",
        title="{kernel} at {share} of the memory bandwidth ({of_all} of the kernel time)",
        explanation="Memory bounds it, and its median call of {median} ({number}{each}) reaches {share} of what that "
        "gives; generated pointwise kernels of this length mostly reach 80 to 90 %.{blocks} Inductor times few block "
        "sizes, once each, and keeps what looked quickest, so the next process may keep another.",
        suggestion="Record it again from a fresh process and cache (TORCHINDUCTOR_FORCE_DISABLE_CACHES=1), or with "
        'torch.compile(mode="max-autotune"), which tries more block sizes.',
        source="bytes counted from the recorded shapes over the datasheet's bandwidth",
    ),
}
