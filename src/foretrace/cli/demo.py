"""Profile a GeGLU MLP on this machine and explain it, then explain the same MLP recorded on an H200."""

from __future__ import annotations

import argparse
from pathlib import Path

from foretrace.errors import MissingExtraError

SAMPLE = Path(__file__).parent / "samples" / "h200_mlp_eager.trace.json.gz"


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
    print("\n2. The same MLP, x [64, 128, 768] and hidden 3072 in bf16, recorded on an NVIDIA H200\n")
    show(SAMPLE)
    print("\nTry next:")
    print(f"  foretrace explain --all {SAMPLE}")
    for path in written:
        print(f"  foretrace explain --all {path}")
    if written:
        print(f"\nWritten: {', '.join(str(path) for path in written)}")
    return 0
