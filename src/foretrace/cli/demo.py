"""Profile a GeGLU MLP on this machine; then guess, predict, explain and speed up the same MLP on an H200."""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from foretrace.errors import MissingExtraError
from foretrace.model.words import time

SAMPLES = Path(__file__).parent / "samples"
SAMPLE = SAMPLES / "h200_mlp_eager.trace.json.gz"
# A process whose memory is fragmented.
SNAPSHOT = SAMPLES / "h200_fragmented.snapshot.pickle.gz"
# Recorded in one run: the same step compiled, and with foretrace's fused kernels.
BEFORE, AFTER = (SAMPLES / "h200_geglu_forward" / f"{name}.trace.json.gz" for name in ("compile", "foretrace"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo takes the folder to write to and nothing else."""
    parser.add_argument(
        "-o", "--output", type=Path, default=None, help="the trace file to write (default: below traces/mlp)"
    )


def run(args: argparse.Namespace) -> int:
    """Live recording first; without torch only the bundled trace."""
    from foretrace.cli.explain import show
    from foretrace.cli.run import record_workload

    print("1. A GeGLU MLP on this machine\n")
    written: list[Path] = []
    try:
        written = record_workload("mlp", output=args.output)
    except MissingExtraError as error:
        print(f"Not recorded: {error}")
    for path in written:
        show(path, brief=True)
    print("\n2. The same MLP, x [64, 128, 768] and hidden 3072 in bf16, on an NVIDIA H200: guess first, then look")
    _check_guess()
    print("\n3. What foretrace predicts for it, without a GPU\n")
    _predict()
    print("\n4. The recording, explained\n")
    show(SAMPLE)
    print("\n5. What fusing that traffic away is worth: the MLP by torch.compile, then by foretrace's kernels\n")
    _compare()
    print("\nTry next:")
    print(f"  foretrace explain --all {SAMPLE}")
    for path in written:
        print(f"  foretrace explain --all {path}")
    print(f"  foretrace compare {SAMPLES / 'h200_geglu_train'}/*.trace.json.gz")
    print("  foretrace predict mlp --gpu A100 --variant compile")
    print("  foretrace predict mlp --gpu H200 --expectation mlp.toml")
    print(f"  foretrace check {SAMPLE} mlp.toml")
    print(f"  foretrace memory {SNAPSHOT} --request 200MiB")
    if written:
        print(f"\nWritten: {', '.join(str(path) for path in written)}")
    return 0


def _check_guess() -> None:
    """The guess that the kernels' names and an older GPU suggest; half of it is wrong on a Hopper GPU."""
    from foretrace.cli.expecting import show
    from foretrace.prediction.expect import check, expect

    guess = expect(kernels=5, gemm=3, elementwise=2, memcpys=0, occupancy_query_before="gemm")
    show(check(SAMPLE, guess))


def _predict() -> None:
    """The predicted time beside the measured one, each with what it is."""
    from foretrace.analysis import explain
    from foretrace.capture.workloads import WORKLOADS, build, choose_values
    from foretrace.prediction.predict import predict
    from foretrace.prediction.program import meta_target

    workload = WORKLOADS["mlp"]
    sizes, dtype, _ = choose_values(workload, {}, None, "cuda")
    try:
        program = meta_target(lambda: build(workload, sizes, dtype, "meta", train=False))
        info = predict(program.function, program.inputs, gpu="H200", annotation=program.annotation).info
    except MissingExtraError as error:
        print(f"Not predicted: {error}")
        return
    measured = [step.gpu_busy_us for step in explain(SAMPLE).steps if step.gpu_busy_us is not None]
    low, high = time(info.gpu_busy_low_us), time(info.gpu_busy_high_us)
    print(f"predicted  {info.kernels} kernels, {info.memsets} memsets, GPU busy {time(info.gpu_busy_us)} a step")
    print(f"           (between {low} and {high} if every kernel is off to the same side)")
    print(f"measured   GPU busy {time(median(measured))} a step")


def _compare() -> None:
    """What the fused kernels replace, and what that is worth."""
    from foretrace.cli.files import view_for
    from foretrace.cli.streams import to_stdout
    from foretrace.comparison import compare
    from foretrace.report.compare_terminal import render_comparison

    to_stdout(render_comparison(compare([BEFORE, AFTER]), view_for()).encode("utf-8", "replace"))
