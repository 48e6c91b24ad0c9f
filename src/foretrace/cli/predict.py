"""Predict what a program would run on a GPU that is not here: kernels, times with intervals, what bounds it.

  foretrace predict mlp --gpu H200                        a built-in workload with its defaults
  foretrace predict mlp --batch 1 --seq 1 --gpu A100      sizes as in foretrace run
  foretrace predict model.py:make --gpu H200 --mode train make() returns (module, inputs)
  foretrace predict mlp --gpu H200 --variant compile --expectation mlp.toml
  foretrace predict mlp --gpu H200 -o mlp.trace.json.gz   the timeline, for explain, compare and Perfetto

Nothing runs on a GPU: the program is traced on tensors without data (this needs PyTorch), and a time model says how
long its kernels would take. --expectation writes what a recording should hold, for foretrace check TRACE FILE.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from foretrace.cli import streams
from foretrace.cli.subject import Subject, add_size_flags, given_sizes
from foretrace.errors import InputError, MissingExtraError
from foretrace.report.text import columns_of, wants_color
from foretrace.report.view import View

if TYPE_CHECKING:
    from foretrace.capture.workloads import Program
    from foretrace.knowledge.gpus import Gpu
    from foretrace.prediction.predict import Prediction

__all__ = ["add_arguments", "run"]

_VARIANTS = ("eager", "compile")
_MODES = ("forward", "train")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace predict``."""
    parser.add_argument("target", nargs="?", metavar="TARGET", help="a workload, or FILE.py:FACTORY")
    parser.add_argument("--gpu", metavar="NAME", help="the GPU to predict for, such as H200 or A100")
    add_size_flags(parser)
    parser.add_argument("--variant", choices=_VARIANTS, default="eager", help="default eager")
    parser.add_argument(
        "--mode", choices=_MODES, default="forward", help="forward without gradients, or forward and backward"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the predicted timeline (.json or .json.gz)")
    parser.add_argument("--expectation", metavar="FILE", help="write what a recording should hold (.toml)")
    parser.add_argument("--force", action="store_true", help="let --output and --expectation replace files")
    parser.add_argument("--json", action="store_true", help="the report of the predicted trace as JSON")
    parser.add_argument("--top", type=int, metavar="N", help="rows the table shows at most")
    parser.add_argument("--all", action="store_true", dest="everything", help="every row of the table")


def run(args: argparse.Namespace) -> int:
    """Predict, print one screen or the report, and write the files asked for."""
    from foretrace.prediction.predict import find_gpu

    if args.gpu is None:
        raise InputError(f"name the GPU to predict for: --gpu {' or --gpu '.join(_examples())}")
    if args.top is not None and args.top < 1:
        raise InputError("--top must be at least 1")
    gpu = find_gpu(args.gpu)
    if args.target is None:
        raise InputError("nothing to predict was given: a workload, as in foretrace predict mlp, or FILE.py:FACTORY")
    subject = Subject(args.target, given_sizes(args), args.dtype, train=args.mode == "train")
    for flag, name in (("--output", args.output), ("--expectation", args.expectation)):
        _check_target(flag, name, args.force)
    prediction = _predict(subject, args, gpu)
    _print(prediction, args)
    if args.output is not None:
        prediction.write(args.output, force=args.force)
        streams.say(f"wrote the predicted timeline: {args.output}")
    if args.expectation is not None:
        _write_expectation(prediction, Path(args.expectation), args)
    return 0


def _examples() -> list[str]:
    from foretrace.knowledge import gpus

    return [gpu.short for name in ("H200", "A100") if (gpu := gpus.find(name)) is not None]


def _predict(subject: Subject, args: argparse.Namespace, gpu: Gpu) -> Prediction:
    from foretrace.prediction.predict import predict

    _need_torch()
    program = _program(subject)
    for note in subject.notes:
        streams.say(note)
    return predict(
        program.function,
        program.inputs,
        program.keywords,
        gpu=gpu,
        name=" ".join([subject.name, *(f"{name} {value}" for name, value in subject.parameters.items())]),
        variant=args.variant,
        mode=args.mode,
        annotation=program.annotation,
    )


def _program(subject: Subject) -> Program:
    """The program with tensors that have sizes and types but no data, so that no memory is needed for them.

    A factory that looks at its data while it builds cannot work so; it is called again on the CPU, and what it
    returns is moved.
    """
    from foretrace.prediction.program import meta_target

    subject.settle("meta")
    try:
        return cast("Program", meta_target(subject.make))
    except InputError:
        return subject.make()


def _print(prediction: Prediction, args: argparse.Namespace) -> None:
    report = prediction.report()
    if args.json:
        from foretrace.report.json import to_json

        streams.to_stdout(to_json(report))
        return
    from foretrace.report.predict import render_prediction

    view = View(
        everything=args.everything,
        top=args.top,
        width=columns_of(sys.stdout, os.environ),
        color=wants_color(sys.stdout, os.environ),
    )
    streams.to_stdout(render_prediction(report, view).encode("utf-8", "replace"))


def _write_expectation(prediction: Prediction, path: Path, args: argparse.Namespace) -> None:
    from foretrace.prediction.expect import to_toml
    from foretrace.trace.writer import write_bytes

    heading = (
        f"{prediction.name}, by foretrace {prediction.info.version}.\n"
        "Counts and FLOPs are exact; a time is the interval in which about 80 % of recordings should lie."
    )
    write_bytes(path, [to_toml(prediction.expectation(), heading=heading).encode()], force=args.force)
    streams.say(f"wrote the expectation: {path} (foretrace check TRACE {path})")


def _check_target(flag: str, name: str | None, force: bool) -> None:
    """Refuse before tracing, not after."""
    if name is None:
        return
    if not name:
        raise InputError(f"{flag} is empty; it names a file")
    path = Path(name)
    if path.is_dir():
        raise InputError(f"{path} is a folder; {flag} names a file")
    if path.exists() and not force:
        raise InputError(f"{path} exists; choose another name, or give --force to replace it")


def _need_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MissingExtraError("predicting traces the program with PyTorch, which is not installed: pip install torch")
