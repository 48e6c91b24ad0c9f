"""A report in a file: what ``explain --json`` and ``predict --json`` print."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from foretrace.errors import InputError
from foretrace.model.report import SCHEMA, Report

__all__ = ["read_report"]

_LISTS = ("ops", "view_ops", "epilogue")  # of a decoded kernel name
_HEAD_BYTES = 200  # a report names its schema first


def read_report(path: str | os.PathLike[str]) -> Report | None:
    """The report a file holds; ``None`` for every other file, also one that cannot be read.

    Raises:
        InputError: the file is a report that cannot be decoded.
    """
    marker = f'"{SCHEMA}"'.encode()
    try:
        with Path(path).open("rb") as file:
            if marker not in file.read(_HEAD_BYTES):
                return None
            file.seek(0)
            report = msgspec.json.decode(file.read(), type=Report)
    except (OSError, ValueError) as error:
        # DecodeError and UnicodeDecodeError are ValueErrors too, as is a path with a NUL.
        if isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
            raise InputError(f"{path} is a report of foretrace that cannot be read: {error}") from None
        return None
    if any(not isinstance(kernel.decoded.get(name, []), list) for kernel in report.kernels for name in _LISTS):
        raise InputError(f"{path} is a report of foretrace that cannot be read: {' or '.join(_LISTS)} is no list")
    return report
