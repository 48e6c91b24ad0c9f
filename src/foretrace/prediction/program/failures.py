"""What a program raises when it runs without data, as one sentence that says why and what to do."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from foretrace.errors import ForetraceError, InputError

__all__ = ["failure_said"]

# What torch says where an operator, or Python code, asks for the values of a tensor on the meta device.
_NEEDS_VALUES = re.compile(
    r"on meta tensors|out of meta tensor|data-independent implementation|data-dependent|no data!|local_scalar_dense",
    re.I,
)
_NO_SHAPES = "no fake impl or Meta kernel"
_NO_GRADIENTS = "does not require grad and does not have a grad_fn"
_TWICE = "backward through the graph a second time"
# What Dynamo says of a call that failed while it traced: the error is inside the sentence.
_IN_DYNAMO = re.compile(r"when making fake tensor call.*?: got (\w+)\((['\"])(.+?)\2\)", re.S)
_WITHOUT_CUDA = re.compile(r"not compiled with CUDA|not linked with support for cuda|Found no NVIDIA driver", re.I)


@contextmanager
def failure_said(name: str) -> Iterator[None]:
    """Turn what the program ``name`` raises on the meta device into an `InputError`."""
    try:
        yield
    except ForetraceError:
        raise
    except (Exception, SystemExit) as error:
        cause = _innermost(error)
        if isinstance(cause, ForetraceError):
            raise cause from error
        raise InputError(_sentence(name, cause)) from error


def _innermost(error: BaseException) -> BaseException:
    """What the program raised, below the errors that Dynamo wraps around it."""
    while type(error).__module__.startswith("torch._dynamo"):
        inner = getattr(error, "inner_exception", None) or error.__cause__
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def _sentence(name: str, error: BaseException) -> str:
    whole = str(error)
    said = _first_sentence(whole)
    if _NO_SHAPES in whole:
        return (
            f"{name} cannot be predicted: torch {torch.__version__} knows no shapes for one of its operators "
            f"({said.split(': ')[0]}); a newer torch, or torch.library.register_fake, may give it some"
        )
    if _NEEDS_VALUES.search(whole):
        return (
            f"{name} cannot be predicted: it needs the values of tensors, and a prediction runs without data "
            f"({type(error).__name__}: {said}{_place(error)})"
        )
    if _NO_GRADIENTS in whole:
        return (
            f"{name} computes gradients itself, and --mode forward runs it without: return the loss and give "
            "--mode train, or compute them under torch.enable_grad()"
        )
    if _TWICE in whole:
        return (
            f"{name} calls backward itself, and --mode train calls it on what is returned: return the loss before its "
            "backward, or give --mode forward and run the step under torch.enable_grad()"
        )
    if _WITHOUT_CUDA.search(whole):
        return (
            f"{name} asks for a CUDA device by name where it cannot be given the meta device instead: "
            'write device=x.device in its forward pass, not device="cuda"'
        )
    inside = _IN_DYNAMO.search(whole)
    if inside is not None:
        return f"{name} failed while torch.compile traced it without data: {inside[1]}: {_first_sentence(inside[3])}"
    return f"{name} failed on tensors without data: {type(error).__name__}: {said}{_place(error)}"


def _place(error: BaseException) -> str:
    """The innermost line of code that is neither torch's nor foretrace's."""
    own = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((*own, "<"))
    ]
    return f", at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _first_sentence(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.split(r"\.\s", lines[0])[0].rstrip(".") if lines else "no message"
