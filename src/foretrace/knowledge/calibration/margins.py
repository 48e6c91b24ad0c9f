"""How far a measured call lies from its predicted time: half-widths of intervals, as logarithms.

Set so that about eight of ten kernels of the calibration's own programs fall inside (``benchmarks/predictor/README.md``
says how they were counted; the judged programs had no say). ``OTHER_GPU`` is a judgement: of other GPUs only a handful
of calls is known, large products within 20 % of their predicted time, small ones further off.
"""

__all__ = ["AGREEING", "DISAGREEMENT", "MEASURED", "MEMSET", "MODEL_ONLY", "OTHER_GPU", "REDUCTION", "STAND_IN"]

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
