"""The roofline plot of a report: roofs from the datasheets, and a place for every kernel or the reason it has none."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from foretrace.knowledge import gpus
from foretrace.knowledge.gpus import Gpu, bandwidth_label, peak_for
from foretrace.model.report import Kernel, Report
from foretrace.model.roofline import BANDWIDTH_STRIP, NOT_PLOTTED, PLANE, LeftOut, Roof, RooflinePlot

__all__ = ["roofline_of"]


def roofline_of(report: Report) -> RooflinePlot:
    """Roofs and places of a report's kernels. Without a datasheet there are no roofs, but still places."""
    kernels = report.kernels
    place = np.zeros(len(kernels), np.uint8)
    intensity = np.full(len(kernels), np.nan)
    absent: dict[str, list[Kernel]] = {}
    for at, kernel in enumerate(kernels):
        if kernel.achieved_tflops and kernel.flops and kernel.bytes:
            place[at] = PLANE
            intensity[at] = kernel.flops / kernel.bytes
        elif kernel.achieved_gbps:
            place[at] = BANDWIDTH_STRIP
        else:
            place[at] = NOT_PLOTTED
            absent.setdefault(_reason(kernel, shapes=report.trace.has.shapes), []).append(kernel)
    left_out = [_left_out(reason, found) for reason, found in absent.items()]
    left_out.sort(key=lambda left: (-left.us, left.reason))
    return RooflinePlot(_roofs(report), place, intensity, left_out)


def _reason(kernel: Kernel, *, shapes: bool) -> str:
    """Why neither a rate of FLOPs nor one of bytes is known."""
    if kernel.duration_us <= 0:
        return "recorded without a duration"
    if kernel.flops:
        return "the bytes that go with its FLOPs are not known"
    if kernel.graph and kernel.op is None:
        return "replayed by a CUDA graph, so without an operator and its shapes"
    if kernel.op is None:
        return "the operator that launched it is not known"
    if not shapes:
        return "the operators' shapes were not recorded (record_shapes=True)"
    return "neither FLOPs nor bytes follow from what was recorded of its operator"


def _left_out(reason: str, kernels: list[Kernel]) -> LeftOut:
    time: dict[str, float] = {}
    for kernel in kernels:
        time[kernel.kind] = time.get(kernel.kind, 0.0) + kernel.duration_us
    kinds = tuple(sorted(time, key=lambda kind: (-time[kind], kind)))
    return LeftOut(reason, len(kernels), sum(time.values()), kinds)


def _roofs(report: Report) -> list[Roof]:
    """The bandwidth of each GPU of the report, and each rate that a kernel is held against."""
    named = dict.fromkeys(kernel.peak for kernel in report.kernels if kernel.peak)
    roofs: dict[str, Roof] = {}
    for sheet in _sheets(report, named):
        bandwidth = bandwidth_label(sheet)
        roofs[bandwidth] = Roof(bandwidth, gbps=sheet.memory_bandwidth_gbps)
        for rate, label in _peaks(sheet):
            if label in named:
                roofs.setdefault(label, Roof(label, tflops=rate))
    return sorted(roofs.values(), key=lambda roof: (roof.gbps is None, -(roof.gbps or roof.tflops or 0.0), roof.label))


def _sheets(report: Report, named: Iterable[str]) -> list[Gpu]:
    """The datasheets the report rests on: those its kernels name, else those its devices' names lead to."""
    labels = set(named)
    by_label = [sheet for sheet in gpus.all_gpus() if bandwidth_label(sheet) in labels]
    if by_label or not report.trace.has.gpu:
        return by_label
    found = [gpus.find(gpu.name, sms=gpu.sms, compute_capability=gpu.compute_capability) for gpu in report.trace.gpus]
    return list({sheet.name: sheet for sheet in found if sheet is not None}.values())


def _peaks(sheet: Gpu) -> list[tuple[float, str]]:
    """Every arithmetic rate of a datasheet, with the name that reports give it."""
    asked = {key.removesuffix("_tensor") for key in sheet.peak_tflops}
    found = (peak_for(sheet, dtype, units) for dtype in sorted(asked) for units in (True, False))
    return [peak for peak in found if peak is not None]
