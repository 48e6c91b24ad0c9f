"""Time variants of one program against each other, check their results, and hold them against the device's limits.

  foretrace bench mlp --variant eager --variant compile
  foretrace bench mlp --variant eager --variant compile --mode train --cuda-graph
  foretrace bench model.py:make --variant compile --variant compile-max-autotune
  foretrace bench mlp --variant compile --sweep batch=1,8,64 --sweep seq=64,128
  foretrace bench mlp --variant eager --variant foretrace --variant liger

All variants run in one process, in turn, without a profiler; the first one is what the others are held against.
Outputs (in training also gradients) are compared with the same program in float64: a variant whose error is
beyond eager's by more than rounding is wrong, and no speed-up is quoted for it. Compile times are those with
empty caches, without what the compiler does once to get ready. Exit code 1 when a variant is wrong, 2 when one
could not be timed.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

import msgspec

from foretrace.cli import flags, streams
from foretrace.cli.files import target_of, view_for, write
from foretrace.cli.subject import Subject, add_size_flags, files_of, given_sizes
from foretrace.errors import InputError

if TYPE_CHECKING:
    from foretrace.model.bench import Bench

__all__ = ["add_arguments", "parse_sweep", "run"]

_DEFAULT = ("eager", "compile")
_MOST_SHAPES = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("target", metavar="WORKLOAD|FILE.py:FACTORY", help="matmul-add, linear, mlp, or your factory")
    add_size_flags(parser)
    parser.add_argument("--device", metavar="cuda|cpu", help="where to run (default: the GPU if there is one)")
    parser.add_argument(
        "--variant",
        action="append",
        metavar="NAME",
        help=f"{flags.VARIANTS_HELP} (default: eager and compile)",
    )
    parser.add_argument("--mode", choices=flags.MODES, default="forward", help="default forward")
    parser.add_argument("--rounds", type=int, metavar="N", help="calls of each variant (default: 10 to 200, in 4 s)")
    flags.add(parser, "cuda_graph", action="store_true", help="also time each variant as a captured CUDA graph")
    flush = parser.add_mutually_exclusive_group()
    flags.add(
        flush,
        "flush_l2",
        action="store_true",
        default=None,
        dest="flush",
        help="empty the L2 before each call (default: where the data fits into it and the GPU sets the pace)",
    )
    flags.add(flush, "no_flush_l2", action="store_false", dest="flush", help="never empty it")
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="SIZE=N,N,…",
        help="run shapes one after the other and count what is compiled anew; repeatable: all combinations",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of parameters and inputs (0)")
    flags.add_output(
        parser,
        json="print the document (foretrace.bench/1) and nothing else",
        output="also write the JSON document, with all samples, there",
    )


def run(args: argparse.Namespace) -> int:
    """Bench what was asked for: 1 when a variant is wrong, 2 when one could not be timed, else 0."""
    flags.check_seed(args.seed)
    output = target_of(args.output, force=args.force, sources=files_of(args.target))
    axes = parse_sweep(args.sweep)
    subject = Subject(args.target, given_sizes(args), args.dtype, train=args.mode == "train")
    # What the program prints must not get between the document's lines.
    with streams.apart(args.json):
        bench = _bench(args, subject, axes)
    document = _document(bench)
    if output is not None:
        write(output, msgspec.json.format(document, indent=1) + b"\n", force=args.force)
    if args.json:
        streams.to_stdout(document + b"\n")
    else:
        from foretrace.report.bench import render_bench

        streams.to_stdout(render_bench(bench, view_for()).encode("utf-8", "replace"))
    states = {result.state for result in bench.variants}
    failed = "failed" in {result.state for result in bench.variants if not result.cuda_graph}
    failed = failed or (bench.sweep is not None and any(total.reason is not None for total in bench.sweep.totals))
    return 1 if "wrong" in states else 2 if failed else 0


def _bench(args: argparse.Namespace, subject: Subject, axes: dict[str, list[int]]) -> Bench:
    from foretrace.capture.bench import Request, run_bench
    from foretrace.capture.runner import pick_device
    from foretrace.capture.surroundings import safe_command
    from foretrace.capture.variants import find_variant

    variants = tuple(dict.fromkeys(args.variant or _DEFAULT))
    for variant in variants:
        find_variant(variant)
    subject.settle(pick_device(args.device))
    subject.check_sizes(axes)
    for note in subject.notes:
        streams.say(note)
    request = Request(
        workload=subject.name,
        make=subject.make,
        make_with=subject.make_with,
        device=subject.device,
        variants=variants,
        mode=args.mode,
        seed=args.seed,
        rounds=args.rounds,
        cuda_graph=args.cuda_graph,
        flush=args.flush,
        sweep=axes,
        parameters={**subject.defaults, **subject.parameters},
        command=safe_command(sys.argv),
    )
    return run_bench(request, say=streams.say if sys.stderr.isatty() else lambda _: None)


def parse_sweep(words: list[str]) -> dict[str, list[int]]:
    """Read ``batch=1,8,64`` words into sizes by name.

    Raises :class:`InputError` for anything else, a size below 1, a name given twice, and too many combinations.
    """
    axes: dict[str, list[int]] = {}
    shapes = 1
    for word in words:
        name, equals, values = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier():
            raise InputError(f"--sweep {word}: write a size and its values, as in --sweep batch=1,8,64")
        if name in axes:
            raise InputError(f"--sweep {name} was given twice; write all values in one: {name}=1,8,64")
        sizes = []
        for value in values.split(","):
            if re.fullmatch(r"\s*0*[1-9][0-9]{0,11}\s*", value) is None:
                shown = value.strip()[:20] or "nothing"
                raise InputError(f"--sweep {name}: {shown} is not a whole number above 0 of at most 12 digits")
            sizes.append(int(value))
        axes[name] = list(dict.fromkeys(sizes))
        shapes *= len(axes[name])
    if shapes > _MOST_SHAPES:
        raise InputError(f"--sweep asks for {shapes} shapes; at most {_MOST_SHAPES} are run")
    return axes


def _document(bench: Bench) -> bytes:
    from foretrace.report.json import to_json

    return to_json(bench).rstrip(b"\n")
