"""What a command is to run: a built-in workload or a user's factory, with its sizes, dtype and device."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli import flags
from foretrace.errors import InputError

if TYPE_CHECKING:
    from foretrace.capture.workloads import Program

__all__ = ["DTYPES", "SIZES", "Subject", "add_size_flags", "files_of", "given_sizes"]

# What each size is, and of which workload; a test holds the names equal to those the workloads have.
SIZES = {
    "batch": "of linear: rows of x (1024); of mlp: sequences (64; on a CPU 4)",
    "seq": "of mlp: positions in a sequence (128)",
    "dim": "of mlp: features in and out (768)",
    "hidden": "of mlp: features between the projections (3072)",
    "in_dim": "of linear: features in (32)",
    "out_dim": "of linear: features out (64)",
    "size": "of matmul-add: rows and columns of the three matrices (64)",
}
DTYPES = ("bf16", "fp16", "fp32")


def add_size_flags(parser: argparse.ArgumentParser) -> None:
    """Declare a flag for each size, written with a dash or an underscore, and ``--dtype``."""
    sizes = parser.add_argument_group("sizes, passed on to a FACTORY that takes them (defaults in brackets)")
    for name, what in SIZES.items():
        flags.add(sizes, name, type=int, metavar="N", help=what)
    parser.add_argument("--dtype", choices=DTYPES, help="of parameters and inputs (bf16; on a CPU fp32)")


def given_sizes(args: argparse.Namespace) -> dict[str, int]:
    """The sizes that were given as flags."""
    return {name: getattr(args, name) for name in SIZES if getattr(args, name) is not None}


def files_of(word: str) -> list[str]:
    """The file that ``FILE.py:FACTORY`` names; none for a workload."""
    file, colon, _ = word.rpartition(":")
    return [file] if colon else []


class Subject:
    """A built-in workload or a user's factory, with its flags.

    ``else_give`` ends the list of what could be given instead of a ``word`` that is neither. Raises
    :class:`InputError` for such a word, and for flags that do not belong to the workload.
    """

    def __init__(
        self,
        word: str,
        given: Mapping[str, int],
        dtype: str | None,
        *,
        train: bool,
        else_give: str = "or FILE.py:FACTORY",
    ) -> None:
        from foretrace.capture.usercode import check_file, is_factory
        from foretrace.capture.workloads import WORKLOADS, choose_values

        self._word = word
        self._dtype = dtype
        self._train = train
        self._given = dict(given)
        self._workload = WORKLOADS.get(word)
        self.notes: list[str] = []
        self.device = ""
        self.parameters: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}  # of a factory's parameters, settled like the others
        self.make: Callable[[], Program]
        if self._workload is not None:
            self.name = word
            # A wrong flag fails here, before torch is loaded.
            choose_values(self._workload, self._given, dtype, "cpu")
        elif is_factory(word):
            check_file(word)  # also before
            self.name = f"{Path(word.rpartition(':')[0]).stem}_{word.rpartition(':')[2]}"
        else:
            raise InputError(f"{word} is no workload: give one of {', '.join(WORKLOADS)}, {else_give}")

    def settle(self, device: str) -> None:
        """Fix the sizes for a device, and load the user's file."""
        from foretrace.capture.usercode import defaults_of, load_factory
        from foretrace.capture.workloads import choose_values

        self.device = device
        if self._workload is not None:
            sizes, dtype, smaller = choose_values(self._workload, self._given, self._dtype, device.partition(":")[0])
            self.parameters = {**sizes, "dtype": dtype}
            if smaller:
                self.notes = [f"defaults for a CPU: {', '.join(smaller)}"]
        else:
            self.parameters = dict(self._given)
            if self._dtype is not None:
                self.parameters["dtype"] = self._dtype
            self._factory = load_factory(self._word)
            self.defaults = {name: value for name, value in defaults_of(self._factory).items() if name != "device"}
        self.make = lambda: self.make_with({})

    def make_with(self, sizes: Mapping[str, int]) -> Program:
        """Build the program with some sizes changed; raises :class:`InputError` where it has no such size."""
        from foretrace.capture.usercode import make_program
        from foretrace.capture.workloads import build, choose_values

        if self._workload is None:
            flags = {**self.parameters, **sizes}
            return make_program(self._word, self._factory, flags, self.device, train=self._train)
        kind = self.device.partition(":")[0]
        chosen, dtype, _ = choose_values(self._workload, {**self._given, **sizes}, self._dtype, kind)
        return build(self._workload, chosen, dtype, self.device, train=self._train)

    def check_sizes(self, axes: Mapping[str, Sequence[int]]) -> None:
        """Raise :class:`InputError` for sizes to be swept that the workload does not have; a factory tells later."""
        from foretrace.capture.workloads import choose_values

        if self._workload is not None:
            for name, values in axes.items():
                choose_values(self._workload, {name: min(values)}, None, "cpu")

    @property
    def shown(self) -> str:
        """The parameters in words, for the progress line."""
        return "".join(f"{name} {value} " for name, value in self.parameters.items())
