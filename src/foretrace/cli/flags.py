"""Flags that several commands have, declared once, so that they read and behave alike."""

from __future__ import annotations

import argparse
import math
from typing import Any

from foretrace.errors import InputError

__all__ = [
    "MODES",
    "VARIANTS",
    "VARIANTS_HELP",
    "add",
    "add_html",
    "add_output",
    "add_range",
    "add_rows",
    "add_step",
    "add_steps",
    "check_seed",
    "positive",
    "seconds",
    "stretch",
    "variant",
]

# A test holds these equal to what the recorder knows; asking it here would cost every --help its start-up.
VARIANTS = (
    *("eager", "compile", "compile-max-autotune", "compile-reduce-overhead"),
    *("foretrace", "foretrace+compile", "liger"),
)
# A layer of a Hugging Face kernels repository has no fixed name.
VARIANTS_HELP = f"repeatable; {', '.join(VARIANTS)}, hub:OWNER/NAME@VERSION"
MODES = ("forward", "train")
# Three years: what waits for so long counts it in whole numbers.
_LONGEST_S = 1e8
_STEP = "its position (0 is the first) or label ('#3')"


def add(parser: argparse._ActionsContainer, name: str, **options: Any) -> None:
    """Declare a flag whose words can be joined with a dash or an underscore."""
    dashed = f"--{name.replace('_', '-')}"
    names = [dashed] if "_" not in name else [dashed, f"--{name}"]
    parser.add_argument(*names, **{"dest": name, **options})


def add_output(
    parser: argparse.ArgumentParser, *, json: str, output: str = "write there instead of to standard output"
) -> argparse._MutuallyExclusiveGroup:
    """Declare ``--json``, ``-o`` and ``--force``; ``json`` and ``output`` say what they are for.

    Returns the group of ``--json``, for flags of other forms.
    """
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help=json)
    parser.add_argument("-o", "--output", metavar="FILE", help=output)
    parser.add_argument("--force", action="store_true", help="replace a file that exists")
    return form


def add_html(parser: argparse._ActionsContainer, *, what: str) -> None:
    """Declare ``--html``; ``what`` says what the page shows."""
    parser.add_argument(
        "--html",
        metavar="REPORT.html",
        help=f"also write {what} as one page that opens in a browser anywhere, without a network",
    )


def add_rows(parser: argparse.ArgumentParser, *, everything: str) -> None:
    """Declare ``--top`` and ``--all``; ``everything`` says what all is."""
    parser.add_argument("--top", type=positive, metavar="N", help="rows a table shows at most")
    parser.add_argument("--all", action="store_true", dest="everything", help=everything)


def add_steps(parser: argparse._ActionsContainer, *, what: str = "only this step") -> None:
    """Declare ``--step`` that may be repeated; ``what`` says what becomes of it. See ``trace.steps.select_steps``."""
    parser.add_argument(
        "--step",
        action="append",
        default=[],
        metavar="N|LABEL",
        help=f"{what}: {_STEP}; may be repeated",
    )


def add_step(parser: argparse._ActionsContainer, *, what: str) -> None:
    """Declare ``--step`` that names one step."""
    parser.add_argument("--step", metavar="N|LABEL", help=f"{what}: {_STEP}")


def add_range(parser: argparse._ActionsContainer, *, what: str) -> None:
    """Declare ``--range``; ``what`` says what becomes of it."""
    parser.add_argument(
        "--range",
        type=stretch,
        metavar="FROM:TO",
        help=f"{what}, in µs since the first row or with a unit (1.5ms:3ms); either end may be left out",
    )


def stretch(text: str) -> tuple[int | None, int | None]:
    """A stretch of time, ``1.5ms:3ms``, in ns, as the type of a flag; None is an open end."""
    from foretrace.view.places import parse_range

    try:
        return parse_range(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(text: str) -> float:
    """A number of seconds above 0, as the type of a flag."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def positive(text: str) -> int:
    """A whole number above 0, as the type of a flag."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def variant(text: str) -> str:
    """The name of a variant, as the type of a flag; the recorder says later whether it can run."""
    if text not in VARIANTS and not text.startswith("hub:"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no variant (choose from {', '.join(VARIANTS)}, hub:OWNER/NAME@VERSION)"
        )
    return text


def check_seed(seed: int | None) -> None:
    """Raise :class:`InputError` for a seed that ``torch.manual_seed`` does not take."""
    if seed is not None and not -(2**63) <= seed < 2**64:
        raise InputError(f"--seed {seed} is too large: it must fit into 64 bits")
