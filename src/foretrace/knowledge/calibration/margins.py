"""How far a measured call lies from its predicted time: half-widths of intervals, as logarithms.

Set so that about eight of ten kernels of the calibration's own programs fall inside (``benchmarks/predictor/README.md``
says how they were counted; the judged programs had no say). ``OTHER_GPU`` is a judgement: of other GPUs only a handful
of calls is known, large products within 20 % of their predicted time, small ones further off.
"""

__all__ = [
    "AGREEING",
    "DISAGREEMENT",
    "MEASURED",
    "MEMSET",
    "MODEL_ONLY",
    "OTHER_GPU",
    "OTHER_LAUNCH",
    "REDUCTION",
    "SCATTER_US",
    "STAND_IN",
    "SUSTAINED_BANDWIDTH",
    "SUSTAINED_RATE",
]

# A product: all its measured neighbours agree; and how much of their disagreement (standard deviation) is added.
AGREEING = 0.05
DISAGREEMENT = 1.3
# A product without neighbours: the spread of measured over modelled time in the calibration.
MODEL_ONLY = 0.25
# A memory-bound kernel whose own operator was measured; one that another operator stands for.
MEASURED = 0.11
STAND_IN = 0.15
# A reduction: its time hangs on how its dimensions lie, which few measured shapes say little about.
REDUCTION = 0.25
# 4 bytes cleared before a kernel.
MEMSET = 0.2
# Added, as a square, where the constants are those of another GPU, scaled by the datasheets.
OTHER_GPU = 0.25
# What a kernel sustains of a datasheet's dense rate and of its bandwidth at most: of large products of the library an
# A100 and an L40S reach 0.8 of theirs by dispatch's figures, the H200 at its power limit 0.69; copies on the H200 0.9.
SUSTAINED_RATE, SUSTAINED_BANDWIDTH = 0.8, 0.9
# Recorded durations scatter by as many µs whatever a kernel takes: clocks that ramp up, and the timestamps themselves.
SCATTER_US = 0.3
# Inductor times two launch configurations of a pointwise kernel once each and keeps the quicker, or what looked so.
# With the other one the same kernel takes so many times as long: 56.3 µs where it took 39.2 (8192×3072, gelu and
# product, by blocks of 512 instead of 1024 elements), 72.9 where 50.2 were predicted (16384×2048).
OTHER_LAUNCH = 1.45
