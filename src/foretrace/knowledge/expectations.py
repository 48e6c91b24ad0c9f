"""Why an expectation cannot be judged from a trace, and how to record one from which it can.

Sources: the options of ``torch.profiler.profile``, and what Kineto writes with and without them (``kineto.py``).
"""

from __future__ import annotations

__all__ = ["CLEAR_BOUND_SHARE", "GUESS_TOLERANCE", "OTHER_STEP_TIMES", "PREDICTED_HEADING", "unknown_because"]

# A guessed time counts as right within this share of it: people round to one or two digits.
GUESS_TOLERANCE = 0.20

# A predicted bound is expected of a recording where at least this share of the predicted kernel time is of that bound:
# the verdict asks for less (limits.DOMINANT_SHARE), and predicted times are off by some per cent.
CLEAR_BOUND_SHARE = 0.80

# Recorded operators that take this many times the unprofiled step are no picture of it: the profiler costs a
# microsecond or two a row, which makes small operators some three times as long, not more.
OTHER_STEP_TIMES = 10

# What stands above a predicted expectation. Figures: docs/concepts/prediction.md, how far off it is.
PREDICTED_HEADING = """\
{name}, by foretrace {version}.
Counts and FLOPs are compared exactly, but predicted exactly for most programs only: of 50 judged ones
the number of kernels was right for 92 %, that of memsets for 88 %. Therefore launches is a range, and
memsets stays out (predicted: {memsets}; libraries clear memory or not as their version pleases).
A time is an interval: the one of the prediction, meant for 80 % of the calls of a kernel, widened to 95 %.
Of the judged kernels 77 %, and of the judged steps 96 %, lay inside before it was widened."""

_UNKNOWN = {
    "no_gpu": "no kernel, copy or memset was recorded",
    "no_calls": "no API calls were recorded (record with ProfilerActivity.CPU and CUDA)",
    "no_operators": "no operators were recorded (record with ProfilerActivity.CPU)",
    "health": "the trace cannot be trusted: {detail}",
    "no_trace": "a report alone does not hold this; check the trace itself",
    "no_shapes": "operator shapes were not recorded (record_shapes=True)",
    "no_memory": "allocations were not recorded (profile_memory=True)",
    "no_gpu_memory": "the peak is known for GPUs only, and the allocations of this trace are the CPU's",
    "no_allocation": "nothing was allocated on a GPU while it ran, so the trace does not say how much was in use",
    "graph_work": "{count} of the kernels are replayed by a CUDA graph, whose shapes are not in the trace",
    "graph_hides_scope": "a CUDA graph replays {count} kernels whose operators and modules are not in the trace",
    "graph_hides_operators": "a CUDA graph replays work whose operators ran when it was captured",
    "graph_hides_queries": "a CUDA graph replays the kernels: what was asked before them was asked at its capture",
    "uncounted": "the {what} of {count} of {total} kernels are not known ({names})",
    "no_timing": "the step was not timed without the profiler (`foretrace run` does and keeps it beside the trace)",
    "no_side": "the step's time without the profiler is not known: no {name} lies beside the trace; copy it along with "
    "the trace (`foretrace run` writes both)",
    "no_compiled": "no compiled region ran: nothing of this trace went through torch.compile",
    "no_regions": "the compiled regions carry no ids (torch before 2.5)",
    "no_modules": "the trace has no module rows to find {name} in (record with_stack=True)",
    "no_labels": "the trace has no rows to find {name} in: neither operators nor labels were recorded (record with "
    "ProfilerActivity.CPU)",
    "absent": "no {word} is called {name} in the trace; {there}",
    "absent_here": "it does not run in this step",
    "absent_in_report": "no kernel of the report lies in it; check the trace itself",
    "nothing_to_precede": "no {kind} kernel ran",
    "unlinked_kernels": "the launch of {count} of the kernels was not recorded",
    "zero_below": "{name} is 0, and nothing can be divided by it",
    "verdict": "{because}",
    "no_kernels_named": "{path} holds no step with kernels",
}


def unknown_because(why: str, **places: object) -> str:
    """The sentence for one reason, with the trace's own numbers and names in it."""
    return _UNKNOWN[why].format(**places)
