"""Fused MLPs against everyone else: all opponents and shapes in one process on one GPU.

    python benchmarks/fused.py --suite mlp train --output result.json
    python benchmarks/fused.py --suite never-slower --precompile 12 --budget-s 540 --output grid.json --table table.json
    python benchmarks/fused.py --suite mlp --device cpu --shapes 64x64x128 --dtype fp32     # a smoke test without a GPU

Suites: ``mlp`` and ``train`` (gated MLP forward, and with backward, wall time and memory), ``linear`` (linear + bias +
GELU), ``decode`` (few rows, chained over weight sets), ``never-slower`` and ``held-out`` (grids of shapes, those of the
shipped table and others), ``accuracy`` (every number of the type through the activation), ``host`` (host µs a call,
first call), ``memory`` (peaks).

What makes the figures comparable: operands are random; results are checked against float64 first, and who is less
accurate than eager by more than rounding is not timed; calls are timed in turn, in rounds of shuffled order, the L2
flushed before each; times are GPU time between events and of a CUDA graph's replay; a ratio is the median of the ratios
round by round, with its 95 % interval. The card is power limited: compare only within one run. Clocks and power are
sampled beside. The result file holds every sample and is written after each case; what the time budget did not reach
is listed in it.

Liger and QuACK take part when they can be imported.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from fused_bench.contest import Rounds
from fused_bench.deadline import Deadline
from fused_bench.device import Device
from fused_bench.document import Document
from fused_bench.opponents import OPPONENTS
from fused_bench.ours import OURS, forced
from fused_bench.precompile import precompile, share_caches
from fused_bench.session import Session
from fused_bench.shapes import parse_shapes
from fused_bench.suites import SUITES
from fused_bench.tuned import write_tuned_table

from foretrace.errors import InputError

_NOT_ABOUT_RESULTS = ("output", "table", "merge", "prepare_only")


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    args = parser.parse_args(words)
    try:
        shapes = None if args.shapes is None else parse_shapes(args.shapes)
        part = _share("--part", args.part)
        preparing = None if args.prepare_only is None else _share("--prepare-only", args.prepare_only)
        for word in args.force or ():
            forced(word)
        unknown = {*(args.only or ()), *(args.without or ())} - {*OPPONENTS, *OURS}
        unknown = {name for name in unknown if not name.startswith("expand=")}
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: not known; choose from {', '.join((*OPPONENTS, *OURS))}")
    except (ValueError, InputError) as error:
        parser.error(str(error))
    share_caches()
    # Notes of compilers and of graph capture, one for every shape; what matters comes as an error or a figure.
    warnings.simplefilter("ignore")
    deadline = Deadline(args.budget_s)
    if preparing:
        # Beside other processes the compiler would measure nonsense, and this process would find it in the cache.
        from torch._inductor import config

        config.autotune_local_cache = False
    if args.precompile:
        precompile(_for_workers(words), args.precompile, min(0.5 * deadline.left_s, 600.0), _say)
    device = Device(args.device)
    settings = {name: value for name, value in vars(args).items() if name not in _NOT_ABOUT_RESULTS}
    document = Document(None if preparing else args.output, device.describe(), settings)
    session = Session(
        device=device,
        document=document,
        deadline=deadline,
        rounds=_rounds(args),
        dtype=args.dtype,
        seed=args.seed,
        shapes=shapes,
        only=tuple(args.only or ()),
        without=tuple(args.without or ()),
        forced=tuple(args.force or ()),
        variants=args.variants,
        part=part,
        preparing=preparing,
        say=_silent if preparing else _say,
    )
    for suite in args.suite:
        SUITES[suite](session)
    if preparing:
        return 0
    document.content["spent_s"] = round(deadline.spent_s, 1)
    document.write()
    if args.table is not None:
        others = [json.loads(path.read_text()) for path in args.merge or ()]
        print(f"{write_tuned_table([*others, document.content], args.table)} cases in the tuned table")
    return 0


def _share(option: str, text: str) -> tuple[int, int]:
    """Read ``I/N``, 1 ≤ I ≤ N: the number from zero, and of how many. Raises ``ValueError`` for anything else."""
    index, slash, of = text.partition("/")
    if not (slash and index.isdecimal() and of.isdecimal() and 1 <= int(index) <= int(of)):
        raise ValueError(f"{option} is I/N with 1 ≤ I ≤ N, not {text}")
    return int(index) - 1, int(of)


def _rounds(args: argparse.Namespace) -> Rounds:
    """A grid has some 80 to 150 cases; what a single figure is owed would not fit the time."""
    many = not {"never-slower", "held-out"}.isdisjoint(args.suite)
    seconds = args.case_s if args.case_s is not None else (0.5 if many else 2.0)
    warm = args.warm_s if args.warm_s is not None else (0.1 if many else 0.3)
    return Rounds(args.rounds, max(args.rounds, args.most_rounds), seconds, warm)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--suite", nargs="+", choices=SUITES, required=True)
    add("--output", type=Path, help="the result file (JSON), written after each case")
    add("--device", default="cuda")
    add("--dtype", default="bf16", choices=("bf16", "fp16", "fp32"))
    add("--shapes", nargs="+", metavar="MxKxN", help="instead of the suite's own")
    add("--only", nargs="+", metavar="NAME", help="entrants; eager comes along")
    add("--without", nargs="+", metavar="NAME", help="entrants to leave out, as quack, whose tuning takes a minute")
    add("--force", nargs="+", metavar="WORDS", help='more entrants of ours: "expand=tma backward=elementwise"')
    add("--variants", action="store_true", help="also our implementations' tuning options, where each is measured")
    add("--rounds", type=int, default=9, help="least number of rounds (default: 9)")
    add("--most-rounds", type=int, default=60, help="most, while --case-s lasts (default: 60)")
    add("--case-s", type=float, help="seconds for each timing of a case (default: 2; in grids 0.5)")
    add("--warm-s", type=float, help="seconds of load before a timing (default: 0.3; in grids 0.1)")
    add("--budget-s", type=float, help="begin no case after this many seconds")
    add("--seed", type=int, default=0)
    add("--precompile", type=int, default=0, metavar="N", help="fill the compilers' caches with N processes first")
    add("--part", default="1/1", metavar="I/N", help="every N-th case, from the I-th on")
    add(
        "--prepare-only",
        metavar="I/N",
        help="compile and call every N-th entrant, time nothing (what --precompile runs)",
    )
    add("--table", type=Path, help="also write a tuned table for dispatch from the forced choices")
    add("--merge", type=Path, nargs="+", help="earlier result files whose cases go into the table too")
    return parser


def _for_workers(words: Sequence[str]) -> list[str]:
    """The arguments without those that are this process's own."""
    own = {"--precompile": 1, "--output": 1, "--table": 1}
    kept: list[str] = []
    skip = 0
    for word in words:
        if skip:
            skip -= 1
        elif word.partition("=")[0] in own:
            skip = 0 if "=" in word else own[word]
        else:
            kept.append(word)
    return kept


def _say(text: str) -> None:
    print(text, flush=True)


def _silent(text: str) -> None:
    """Workers have nothing to say."""


if __name__ == "__main__":
    sys.exit(main())
