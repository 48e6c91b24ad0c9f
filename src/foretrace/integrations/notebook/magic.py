"""The cell magic ``%%foretrace``: record what a cell runs and show it explained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from foretrace.errors import ForetraceError

if TYPE_CHECKING:
    from foretrace.capture import Recording
    from foretrace.model.expectations import Checked
    from foretrace.model.report import Report

__all__ = ["ForetraceMagics"]

_PATH = "traces/cell"


class CellFailedError(Exception):
    """The cell raised; IPython has shown its error already."""


@magics_class
class ForetraceMagics(Magics):  # type: ignore[misc]  # IPython's decorators and bases carry no types
    """The magics that ``%load_ext foretrace`` brings."""

    @no_var_expand  # type: ignore[untyped-decorator]
    @magic_arguments()  # type: ignore[untyped-decorator]
    @argument("-n", "--steps", type=int, help="run the cell as this many recorded steps, after one that warms up")  # type: ignore[untyped-decorator]
    @argument("-o", "--output", help="the trace file (default: traces/cell, with the next free number)")  # type: ignore[untyped-decorator]
    @argument("--stacks", action="store_true", help="record the Python source lines too")  # type: ignore[untyped-decorator]
    @argument("--memory", action="store_true", help="record allocations too")  # type: ignore[untyped-decorator]
    @argument("--expect", action="append", default=[], help="hold the trace against this, as in 'gemm == 3'")  # type: ignore[untyped-decorator]
    @argument("--html", help="write the HTML report there as well")  # type: ignore[untyped-decorator]
    @cell_magic("foretrace")  # type: ignore[untyped-decorator]
    def foretrace(self, line: str, cell: str) -> Report | Checked | None:
        """Record what this cell runs; its value is the report, or with --expect the check.

        Without --steps the cell runs once, cold start included: counts are right, times are those of a first run.
        With it the cell runs N + 1 times, so it must bear being repeated. The value of the cell's last line is not
        shown.
        """
        args = parse_argstring(self.foretrace, line)
        try:
            return self._recorded(args, cell)
        except CellFailedError:
            return None
        except ForetraceError as error:
            raise UsageError(str(error)) from None

    def _recorded(self, args: Any, cell: str) -> Report | Checked | None:
        from foretrace.capture import profile
        from foretrace.errors import InputError
        from foretrace.prediction.expect import check, expect

        if args.steps is not None and args.steps < 1:
            raise InputError(f"--steps {args.steps} records nothing; give 1 or more")
        expectation = expect(*map(_unquoted, args.expect)) if args.expect else None
        target = None if args.html is None else _report_file(_unquoted(args.html))
        options = {"stacks": args.stacks, "memory": args.memory}
        if args.steps is not None:
            options |= {"wait": 0, "warmup": 1, "active": args.steps}
        recording = profile(_PATH if args.output is None else _unquoted(args.output), **options)
        with recording:
            if args.steps is None:
                self._run(cell)
            else:
                for _ in recording.steps():
                    self._run(cell)
        if target is not None:
            _write_report(recording, target)
        return recording.report() if expectation is None else check(recording.path, expectation)

    def _run(self, cell: str) -> None:
        shown = self.shell.ast_node_interactivity
        # Showing the cell's value would be recorded too: the repr of a GPU tensor is kernels, copies and a wait.
        self.shell.ast_node_interactivity = "none"
        try:
            result = self.shell.run_cell(cell, store_history=False)
        finally:
            self.shell.ast_node_interactivity = shown
        if not result.success:
            raise CellFailedError


def _unquoted(word: str) -> str:
    """IPython splits a magic's line at spaces outside quotes and leaves the quotes."""
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word


def _report_file(name: str) -> Path:
    from foretrace.trace.writer import refuse_taken

    target = Path(name)
    refuse_taken(target, force=False)
    return target


def _write_report(recording: Recording, target: Path) -> None:
    from foretrace.integrations.explained import write_page

    write_page(recording.path, target)
