"""Products in FP32 on the vector units of a GPU that has faster matrix units."""

from __future__ import annotations

from collections.abc import Iterable

from foretrace.analysis.findings.facts import Facts
from foretrace.knowledge.gpus import Gpu
from foretrace.knowledge.limits import COMPUTE_KINDS, WORTH_SHARE
from foretrace.knowledge.products import on_vector_units
from foretrace.model.report import Finding
from foretrace.model.words import share_of, whole

__all__ = ["find"]


# The rate that a switch reaches with the tensors as they are; narrower types are another model.
_SAME_TENSORS = "tf32"


def find(facts: Facts) -> Iterable[Finding]:
    """``fp32_gemm``: one finding, with an upper bound of the saving from datasheet rates."""
    groups: dict[str, list[int]] = {}
    for row in facts.in_steps:
        if facts.kernel_at[row].kind not in COMPUTE_KINDS or not on_vector_units(facts.context.decoded(row)):
            continue
        sheet = facts.context.datasheet(row)
        if sheet is not None and _faster(sheet) is not None:
            groups.setdefault(sheet.name, []).append(row)
    for rows in groups.values():
        sheet = facts.context.datasheet(rows[0])
        faster = _faster(sheet) if sheet is not None else None
        if sheet is None or faster is None:
            continue
        time_us = sum(facts.kernel_at[row].duration_us for row in rows)
        if time_us < WORTH_SHARE * facts.kernel_us:
            continue
        sized = [row for row in rows if facts.kernel_at[row].bytes is not None]
        saving = sum(_saving(facts, row, sheet, faster) for row in sized)
        if sized and not facts.worth(saving):
            continue
        number, each = facts.tally(len(rows))
        yield facts.finding(
            "fp32_gemm",
            sorted(rows, key=lambda row: -facts.kernel_at[row].duration_us),
            saving_us=facts.per_step(saving) if sized and faster == _SAME_TENSORS else None,
            source_row=facts.anchor(max(rows, key=lambda row: facts.kernel_at[row].duration_us)),
            number=number,
            each=each,
            time=facts.spent(time_us, each),
            share=share_of(time_us / facts.kernel_us),
            slow=whole(sheet.peak_tflops["fp32"]),
            fast=whole(sheet.peak_tflops[faster]),
            faster={"tf32": "TF32", "fp16": "FP16", "bf16": "BF16"}[faster],
            gpu=sheet.short,
            how='torch.set_float32_matmul_precision("high"), and torch.backends.cudnn.allow_tf32 for convolutions, '
            "keep FP32 tensors and multiply in TF32; BF16 autocast goes further."
            if faster == _SAME_TENSORS
            else "autocast runs the products in 16 bits.",
            saving="Scaled by the two rates, and never below the time their bytes take, they would save at most "
            f"{facts.spent(saving)}."
            if sized
            else "What that would save is unknown: without shapes their bytes, which bound it, are not known.",
        )


def _faster(sheet: Gpu) -> str | None:
    """The rate to hold FP32 products against: TF32 where there is one, else 16 bits."""
    rates = sheet.peak_tflops
    for key in ("tf32", "bf16", "fp16"):
        if rates.get(key, 0.0) > rates.get("fp32", float("inf")):
            return key
    return None


def _saving(facts: Facts, row: int, sheet: Gpu, faster: str) -> float:
    """What the faster rate would leave of a kernel's time, but never less than its least bytes take."""
    kernel = facts.kernel_at[row]
    fastest = kernel.duration_us * sheet.peak_tflops["fp32"] / sheet.peak_tflops[faster]
    memory_us = (kernel.bytes or 0) / sheet.memory_bandwidth_gbps / 1e3
    return max(0.0, kernel.duration_us - max(fastest, memory_us))
