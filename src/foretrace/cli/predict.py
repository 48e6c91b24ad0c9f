"""Predict what a program would run on a GPU that is not here: kernels, times with intervals, what bounds it.

  foretrace predict mlp --gpu H200                        a built-in workload with its defaults
  foretrace predict mlp --batch 1 --seq 1 --gpu A100      sizes as in foretrace run
  foretrace predict model.py:make --gpu H200 --mode train make() returns (module, inputs)
  foretrace predict mlp --gpu H200 --variant compile --expectation mlp.toml
  foretrace predict mlp --gpu H200 -o mlp.trace.json.gz   the timeline, for explain, compare and Perfetto
  foretrace predict mlp --gpu H200 --html mlp.html        also one page: timeline, intervals, roofline

Nothing runs on a GPU: the program is traced on tensors without data (this needs PyTorch), and a time model says how
long its kernels would take. --expectation writes what a recording should hold, for foretrace check TRACE FILE.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, cast

from foretrace.cli import flags, streams
from foretrace.cli.files import page_target, target_of, view_for, write
from foretrace.cli.subject import Subject, add_size_flags, files_of, given_sizes
from foretrace.errors import InputError
from foretrace.version import torch_release

if TYPE_CHECKING:
    from foretrace.capture.workloads import Program
    from foretrace.knowledge.gpus import Gpu
    from foretrace.model.report import Report
    from foretrace.prediction.predict import Prediction

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace predict``."""
    parser.add_argument("target", nargs="?", metavar="TARGET", help="required: a workload, or FILE.py:FACTORY")
    parser.add_argument("--gpu", metavar="NAME", help="required: the GPU to predict for, such as H200 or A100")
    add_size_flags(parser)
    parser.add_argument(
        "--variant", metavar="NAME", action="append", help="eager (the default), compile, foretrace or liger"
    )
    parser.add_argument(
        "--mode", choices=flags.MODES, default="forward", help="forward without gradients, or forward and backward"
    )
    parser.add_argument(
        "--torch",
        metavar="VERSION",
        help="the torch that will run there, such as 2.11 (default: the one installed here)",
    )
    flags.add_output(
        parser,
        json="the report of the predicted trace as JSON",
        output="also write the predicted timeline there (.json or .json.gz)",
    )
    parser.add_argument("--expectation", metavar="FILE", help="also write there what a recording should hold (.toml)")
    flags.add_rows(parser, everything="every row")
    flags.add_html(parser, what="the prediction, its timeline and its roofline")


def run(args: argparse.Namespace) -> int:
    """Predict, print one screen or the report, and write the files asked for."""
    from foretrace.prediction.predict import find_gpu
    from foretrace.prediction.variants import check_variant

    if args.gpu is None:
        raise InputError(f"name the GPU to predict for: --gpu {' or --gpu '.join(_examples())}")
    gpu = find_gpu(args.gpu)
    check_variant(_variant(args))
    release = None if args.torch is None else torch_release(args.torch)
    if args.target is None:
        raise InputError("nothing to predict was given: a workload, as in foretrace predict mlp, or FILE.py:FACTORY")
    subject = Subject(args.target, given_sizes(args), args.dtype, train=args.mode == "train")
    sources = files_of(args.target)
    output = target_of(args.output, force=args.force, sources=sources)
    expectation = target_of(args.expectation, force=args.force, sources=sources, flag="--expectation")
    if output is not None and expectation is not None and output.resolve() == expectation.resolve():
        raise InputError(f"--output and --expectation both name {output}")
    if output is not None and not output.name.endswith((".json", ".json.gz")):
        raise InputError(f"--output {output} is to hold a trace: end its name in .json or .json.gz")
    page = page_target(args.html, force=args.force, sources=sources, beside=output)
    if page is not None and expectation is not None and page.resolve() == expectation.resolve():
        raise InputError(f"--html and --expectation both name {page}; give each a file of its own")
    with streams.apart(args.json):
        prediction = _predict(subject, args, gpu, release)
    report = prediction.report()
    _print(report, args)
    if output is not None:
        prediction.write(output, force=args.force)
        streams.say(f"wrote the predicted timeline: {output}")
    if expectation is not None:
        _write_expectation(prediction, expectation, args)
    if page is not None:
        write(page, _page(prediction, report), force=args.force)
    return 0


def _examples() -> list[str]:
    from foretrace.knowledge import gpus

    return [gpu.short for name in ("H200", "A100") if (gpu := gpus.find(name)) is not None]


def _variant(args: argparse.Namespace) -> str:
    """The one that was asked for; other commands take several."""
    variants: list[str] = args.variant or ["eager"]
    if len(variants) > 1:
        raise InputError(
            f"a prediction is of one variant, and {len(variants)} were given; predict each by itself, with --output, "
            "and compare the files with foretrace compare"
        )
    return variants[0]


def _predict(subject: Subject, args: argparse.Namespace, gpu: Gpu, release: tuple[int, int] | None) -> Prediction:
    from foretrace.capture.predicting import need_torch, predict

    need_torch()
    program = _program(subject)
    for note in subject.notes:
        streams.say(note)
    return predict(
        program.function,
        program.inputs,
        program.keywords,
        gpu=gpu,
        name=" ".join([subject.name, *(f"{name} {value}" for name, value in subject.parameters.items())]),
        variant=_variant(args),
        mode=args.mode,
        annotation=program.annotation,
        release=release,
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


def _print(report: Report, args: argparse.Namespace) -> None:
    if args.json:
        from foretrace.report.json import to_json

        streams.to_stdout(to_json(report))
        return
    from foretrace.report.predict import render_prediction

    view = view_for(everything=args.everything, top=args.top)
    streams.to_stdout(render_prediction(report, view).encode("utf-8", "replace"))


def _page(prediction: Prediction, report: Report) -> bytes:
    from foretrace.analysis.drawn import drawn_of
    from foretrace.report.html.predict import predict_page

    return predict_page(report, drawn_of(prediction.trace(), report))


def _write_expectation(prediction: Prediction, path: Path, args: argparse.Namespace) -> None:
    from foretrace.knowledge.expectations import PREDICTED_HEADING
    from foretrace.prediction.expect import to_toml
    from foretrace.trace.writer import write_bytes

    info = prediction.info
    heading = PREDICTED_HEADING.format(name=prediction.name, version=info.version, memsets=info.memsets)
    write_bytes(path, [to_toml(prediction.expectation(), heading=heading).encode()], force=args.force)
    streams.say(f"wrote the expectation: {path} (foretrace check TRACE {path})")
