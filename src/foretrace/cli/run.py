"""Profile a built-in workload, your own module, or a script, and explain the trace.

  foretrace run mlp                                    a GeGLU MLP, eager
  foretrace run mlp --variant eager --variant compile  both, one trace each
  foretrace run linear --batch 1024 --in-dim 32 --out-dim 64 --compile
  foretrace run model.py:make --mode train             make() returns (module, inputs)
  foretrace run -- train.py --epochs 1                 a whole script; its exit code is passed on
  foretrace run -- -m package.module ARGS
  foretrace run mlp --expect "kernels == 5"            hold the recording against expectations (foretrace check)
  foretrace run mlp --guess                            on a GPU: asks what you expect first, scores it at the end

Workloads: matmul-add (--size), linear (--batch --in-dim --out-dim), mlp (--batch --seq --dim --hidden);
each takes --dtype. On a GPU the defaults are size 64; 1024, 32, 64; 64, 128, 768, 3072; bf16. On a CPU they
are the same but for an mlp of batch 4, and fp32. Workloads and FILE.py:FACTORY are timed without the profiler
first (the side file and the explanation hold it). Files go to traces/WORKLOAD/ and never replace another.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foretrace.cli import expecting, flags, streams
from foretrace.cli.run_target import keep_script_apart, what_to_run
from foretrace.cli.subject import SIZES, Subject, add_size_flags, given_sizes
from foretrace.errors import ForetraceError, InputError
from foretrace.model.sidefile import SideFile, read_side, side_path, snapshot_path

if TYPE_CHECKING:
    from foretrace.capture.runner import Outcome

__all__ = ["SCHEMA", "add_arguments", "record_workload", "run", "show_trace"]

SCHEMA = "foretrace.run/1"

_NOT_FOR_SCRIPTS = (*SIZES, "dtype", "variant", "mode", "wait", "warmup", "active", "warm_calls", "device")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; names of two words can be written with a dash or an underscore."""

    flag = partial(flags.add, parser)
    parser.add_argument(
        "target",
        nargs="*",
        metavar="TARGET",
        help="a workload, FILE.py:FACTORY, or -- and a script with its arguments",
    )
    parser.set_defaults(script=None, unknown=[])
    parser.parse_known_args = keep_script_apart(parser.parse_known_args)  # type: ignore[method-assign]
    add_size_flags(parser)
    flag("device", metavar="cuda|cpu", help="where to run (default: the GPU if there is one)")
    flag("variant", action="append", type=flags.variant, metavar="NAME", help=f"{flags.VARIANTS_HELP} (default: eager)")
    parser.add_argument(
        "--compile",
        action="append_const",
        const="compile",
        dest="variant",
        help="short for --variant compile",
    )
    flag("mode", choices=flags.MODES, help="forward without gradients, or forward and backward; default forward")
    flag("wait", type=int, metavar="N", help="steps before the profiler is on (1)")
    flag("warmup", type=int, metavar="N", help="steps with the profiler on, not kept (1)")
    flag("active", type=int, metavar="N", help="recorded steps (3)")
    flag("warm_calls", type=int, metavar="N", help="calls before the first step (3); 0 records a cold start")
    flag("no_shapes", action="store_true", help="do not record operand shapes")
    flag("stacks", action="store_true", help="record Python stacks (larger, slower)")
    flag("memory", action="store_true", help="record allocator events; on a GPU also a snapshot for foretrace memory")
    flag("seed", type=int, metavar="N", help="seed of parameters and inputs (0)")
    flag("label", metavar="TEXT", help="free text for the side file and the file's name")
    flag("tag", metavar="NAME", help="name of the file instead of the one made of the sizes")
    parser.add_argument("-o", "--output", metavar="PATH", help="file to write (several variants: a folder)")
    flag("force", action="store_true", help="replace a file that exists")
    flag("json", action="store_true", help="print one JSON document about what was written, and nothing else")
    flag("no_explain", action="store_true", help="only record; do not print the explained trace")
    expecting.add_flags(parser)
    flag("guess", action="store_true", help="ask at the terminal what you expect, before anything is recorded")


def run(args: argparse.Namespace) -> int:
    """Record what was asked for; a script's exit code is passed on."""
    flags.check_seed(args.seed)
    if args.output == "":
        raise InputError("--output is empty; it names a file or a folder")
    with _said_plainly():
        word, script = what_to_run(args)
        # Both before anything is recorded: a wrong expectation is refused, and a guess is a guess.
        args.expected = expecting.expectation_of(args.expect)
        if args.guess and args.json:
            raise InputError("--guess talks to a person at the terminal; it does not go with --json")
        if args.guess:
            _needs_gpu(args, word)
        args.guessed = expecting.ask_guesses() if args.guess else None
        return _run_script(args, script) if script else _run_variants(args, word)


def _needs_gpu(args: argparse.Namespace, word: str) -> None:
    """Raise :class:`InputError` where no GPU would be recorded: the questions are about its kernels."""
    from foretrace.capture.runner import pick_device

    if pick_device(args.device).startswith("cuda"):
        return
    raise InputError(
        "--guess asks about a GPU's kernels, and a recording on this CPU holds none; "
        f"guess for a GPU that is not here with foretrace predict {word or 'FILE.py:FACTORY'} --gpu H200 "
        "--expectation FILE, or leave --guess out"
    )


def record_workload(name: str, *, output: Path | None = None, variants: Sequence[str] = ("eager",)) -> list[Path]:
    """Record a built-in workload with its defaults for this machine; returns the traces written.

    Raises :class:`~foretrace.errors.MissingExtraError` without torch, and what ``foretrace run`` raises.
    """
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    argv = [name, *(word for variant in variants for word in ("--variant", variant))]
    args = parser.parse_args(argv if output is None else [*argv, "--output", str(output)])
    with _said_plainly():
        return [outcome.path for outcome in _record(args, name)]


def show_trace(path: Path) -> None:
    """Print the first screen of the explained trace."""
    from foretrace.cli.explain import show

    show(path, brief=True)


# ---- workloads and factories ----


def _run_variants(args: argparse.Namespace, word: str) -> int:
    outcomes: list[Outcome] = []
    code = 0
    try:
        with streams.apart(args.json):
            for outcome in _record(args, word):
                outcomes.append(outcome)
                if not args.json:
                    code = max(code, _tell(outcome.path, args))
    finally:
        # What was recorded before a variant failed is there, and is said to be there.
        if args.json and outcomes:
            code = max(code, _print_json([(outcome.path, outcome.side) for outcome in outcomes], args))
    return code


def _record(args: argparse.Namespace, word: str) -> Iterator[Outcome]:
    """Record one variant after the other, yielding each when its files are written."""
    from foretrace.capture.plan import DEFAULT_ACTIVE, DEFAULT_WAIT, DEFAULT_WARMUP, Plan
    from foretrace.capture.runner import Request, pick_device, record_variant

    plan = Plan(
        wait=DEFAULT_WAIT if args.wait is None else args.wait,
        warmup=DEFAULT_WARMUP if args.warmup is None else args.warmup,
        active=DEFAULT_ACTIVE if args.active is None else args.active,
    )
    warm_calls = 3 if args.warm_calls is None else args.warm_calls
    if warm_calls < 0:
        raise InputError("--warm-calls must not be negative")
    mode = args.mode or "forward"
    variants = list(dict.fromkeys(args.variant or ["eager"]))
    subject = Subject(
        word, given_sizes(args), args.dtype, train=mode == "train", else_give="FILE.py:FACTORY, or -- SCRIPT"
    )
    subject.settle(pick_device(args.device))
    paths = {variant: _path(args, subject, variant, mode, alone=len(variants) == 1) for variant in variants}
    for note in subject.notes:
        _say(note)
    for variant in variants:
        _say(f"recording {subject.name} {subject.shown}({variant}, {mode}) on {subject.device}")
        request = Request(
            workload=subject.name,
            make=subject.make,
            device=subject.device,
            mode=mode,
            plan=plan,
            warm_calls=warm_calls,
            shapes=not args.no_shapes,
            stacks=args.stacks,
            memory=args.memory,
            seed=args.seed or 0,
            label=args.label,
            parameters=subject.parameters,
        )
        yield record_variant(request, variant, paths[variant], force=args.force, say=_say)


def _tag(subject: Subject, args: argparse.Namespace, variant: str, mode: str) -> str:
    """Name of the file: sizes and variant as in the article, then whatever is not the default."""
    parts = [str(value) for name, value in subject.parameters.items() if name != "dtype"]
    dtype = subject.parameters.get("dtype", "bf16")
    parts += [part for part, wanted in ((dtype, dtype != "bf16"), ("train", mode == "train")) if wanted]
    parts.append(_as_name(variant))
    parts += [part for part, wanted in (("cold", args.warm_calls == 0), ("cpu", subject.device == "cpu")) if wanted]
    if args.label:
        parts.append(_as_name(args.label))
    return "_".join(parts)


def _path(args: argparse.Namespace, subject: Subject, variant: str, mode: str, *, alone: bool) -> Path:
    """Where a variant's trace goes; a name of our own choosing is the next free one."""
    from foretrace.capture.files import SUFFIX, free_name, target

    tag = _tag(subject, args, variant, mode)
    if args.tag:
        tag = _as_name(args.tag) if alone else f"{_as_name(args.tag)}_{_as_name(variant)}"
    if args.output is None:
        return free_name(Path("traces") / subject.name / f"{tag}{SUFFIX}")
    output = Path(args.output)
    if output.is_dir() or args.output.endswith(("/", os.sep)):
        return free_name(output / f"{tag}{SUFFIX}")
    if not alone:
        raise InputError(f"-o {output}: several variants need several files; give a folder, as in -o {output}{os.sep}")
    return target(output, force=args.force)


def _as_name(text: str) -> str:
    """A text as part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in text).strip(".") or "-"


# ---- scripts ----


def _run_script(args: argparse.Namespace, words: list[str]) -> int:
    from foretrace.capture.files import SUFFIX, free_name, target
    from foretrace.capture.script import check_script, record_script
    from foretrace.capture.surroundings import safe_command

    for name in _NOT_FOR_SCRIPTS:
        if getattr(args, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{flag} does not go with a script, which is recorded as a whole; "
                f"a flag of the script's own goes after it: foretrace run -- {words[0]} {flag} …"
            )
    name = check_script(words)
    tag = _as_name(args.tag or "script") + (f"_{_as_name(args.label)}" if args.label else "")
    if args.output is None:
        path = free_name(Path("traces") / name / f"{tag}{SUFFIX}")
    elif Path(args.output).is_dir() or args.output.endswith(("/", os.sep)):
        path = free_name(Path(args.output) / f"{tag}{SUFFIX}")
    else:
        path = target(args.output, force=args.force)
    folders = [folder for folder in path.parents if not folder.exists()]
    outcome = record_script(
        words,
        path.absolute(),  # the script may change the working folder
        shapes=not args.no_shapes,
        stacks=args.stacks,
        memory=args.memory,
        force=args.force,
        label=args.label,
        seed=args.seed,
        command=safe_command(sys.argv),
        stdout=sys.stderr.fileno() if args.json else None,  # standard output is for the document
    )
    for sentence in outcome.warnings:
        _say(f"warning: {sentence}")
    if outcome.error is not None:
        _say(outcome.error)
    written = _relative(outcome.path) if outcome.path is not None else None
    if written is None:
        _remove_empty(folders)
    if args.json:
        side = read_side(written) if written is not None else None
        code = _print_json([(written, side)] if written is not None else [], args, exit_code=outcome.exit_code)
    else:
        code = _tell(written, args) if written is not None else 0
    # The script's exit code is what counts, beside it only a broken expectation.
    return outcome.exit_code or (code if args.expected is not None and code == 1 else 0)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Take away the folders that were made for a trace which was not written, innermost first."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:  # something else is in it by now
            return


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


# ---- what is printed ----


def _tell(path: Path, args: argparse.Namespace) -> int:
    """Explain a trace that was written; the last line is its path, also when it cannot be explained (code 2)."""
    code = 0
    try:
        if not args.no_explain or args.expected is not None or args.guessed is not None:
            try:
                code = _show(path, args)
            except ForetraceError as error:
                _say(str(error))
                code = error.exit_code
            print()
        snapshot = _snapshot_of(path, read_side(path)) if args.memory else None
        if snapshot is not None:
            print(f"snapshot: {snapshot}")
        print(f"trace: {path}", flush=True)
    except (ForetraceError, OSError):  # standard output is closed or full
        _say(f"trace: {path}")
        raise
    return code


def _show(path: Path, args: argparse.Namespace) -> int:
    """Print the first screen, then what became of expectations and guesses; 1 when an expectation is broken."""
    if args.expected is None and args.guessed is None:
        show_trace(path)
        return 0
    from foretrace.cli.explain import held_against, read_and_explain, show_explained

    explained = read_and_explain(str(path))
    if not args.no_explain:
        show_explained(explained, brief=True)
    code = 0
    for wanted, guess in ((args.expected, False), (args.guessed, True)):
        if wanted is not None:
            checked = held_against(explained, wanted)
            expecting.show(checked, guess=guess)
            # A wrong guess is no failure: it is the most interesting thing on the screen.
            code = code if guess else expecting.exit_code(checked, strict=args.strict)
    return code


def _print_json(
    written: Sequence[tuple[Path, SideFile | None]], args: argparse.Namespace, exit_code: int | None = None
) -> int:
    """Print the document; 1 when an expectation is broken, else 0."""
    code = 0
    recordings = []
    for path, side in written:
        recording: dict[str, Any] = {"trace": str(path), "side_file": str(side_path(path)), "side": side}
        if args.memory:
            snapshot = _snapshot_of(path, side)
            recording["snapshot"] = None if snapshot is None else str(snapshot)
        if args.expected is not None:
            from foretrace.prediction.expect import check

            recording["check"] = checked = check(path, args.expected)
            code = max(code, expecting.exit_code(checked, strict=args.strict))
        recordings.append(recording)
    document = {"schema": SCHEMA, "recordings": recordings, "exit_code": exit_code}
    streams.to_stdout(msgspec.json.encode(document) + b"\n")
    return code


def _snapshot_of(path: Path, side: SideFile | None) -> Path | None:
    """The allocator's snapshot beside a trace; where there is none, the reason is said."""
    if side is not None and side.memory is not None and side.memory.snapshot is not None:
        return snapshot_path(path)
    reason = None if side is None else side.missing.get("memory.snapshot")
    _say(f"no snapshot: {reason or 'the side file does not say why'}")
    return None


def _say(sentence: str) -> None:
    streams.say(sentence)


@contextmanager
def _said_plainly() -> Iterator[None]:
    """Show our own warnings as a line, not as Python shows warnings."""
    from foretrace.capture.plan import CaptureWarning

    with warnings.catch_warnings():
        warnings.simplefilter("always", CaptureWarning)
        show = warnings.showwarning

        def say(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, CaptureWarning):
                _say(f"warning: {message}")
            else:
                show(message, category, *place, **more)

        warnings.showwarning = say
        yield
