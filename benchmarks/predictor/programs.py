"""Record the programs of ``configurations.py`` on a GPU, one trace each.

    python benchmarks/predictor/programs.py --set evaluation --output DIRECTORY

Five steps are recorded with shapes, a synchronisation and a pause after each, so that steps do not overlap and the
power limit does not slow the clock. What counts is the GPU busy time a step and its kernels; nothing is timed here.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import time
from pathlib import Path

import torch
from configurations import CALIBRATION, EVALUATION, Configuration

from foretrace.capture.variants import make_step
from foretrace.capture.workloads import WORKLOADS, build

STEPS = 5
LONGEST_PAUSE_S = 0.15


def record(configuration: Configuration, path: Path) -> float:
    """Write the trace of one configuration; returns the duration of a step with its synchronisation, seconds."""
    torch.manual_seed(0)
    train = configuration.mode == "train"
    workload = WORKLOADS[configuration.workload]
    program = build(workload, configuration.flags, configuration.dtype, "cuda", train=train)
    step = make_step(program, configuration.variant, configuration.mode)
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    pause = min(LONGEST_PAUSE_S, 0.005 + 10 * seconds)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=STEPS, repeat=1)
    with torch.profiler.profile(activities=activities, schedule=schedule, record_shapes=True) as profile:
        for _ in range(2 + STEPS):
            time.sleep(pause)
            step()
            torch.cuda.synchronize()
            profile.step()
    raw = path.with_name("raw.json")
    profile.export_chrome_trace(str(raw))
    with raw.open("rb") as text, gzip.open(path, "wb", compresslevel=9) as packed:
        shutil.copyfileobj(text, packed)
    raw.unlink()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("calibration", "evaluation"), required=True, dest="which")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--budget-s", type=float, default=500.0, help="stop after this many seconds")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    left_out: dict[str, str] = {}
    for configuration in EVALUATION if args.which == "evaluation" else CALIBRATION:
        if time.monotonic() - started > args.budget_s:
            left_out[configuration.name] = "out of time"
            continue
        try:
            seconds = record(configuration, args.output / f"{configuration.name}.trace.json.gz")
            print(f"{time.monotonic() - started:5.0f} s  {configuration.name}  {seconds * 1e6:.0f} us", flush=True)
        except RuntimeError as error:
            left_out[configuration.name] = str(error).splitlines()[0]
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    (args.output / "machine.json").write_text(json.dumps({**machine, "left_out": left_out}, indent=1) + "\n")
    print(len(left_out), "left out", left_out)


if __name__ == "__main__":
    main()
