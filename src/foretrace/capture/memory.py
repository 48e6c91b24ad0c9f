"""The allocator's own history while a program is recorded: switched on early, dumped beside the trace.

Everything private of torch that this needs stands here (seen in torch 2.4 to 2.13): ``torch.cuda.memory`` has
``_record_memory_history`` and ``_snapshot``; turning the history off forgets its events (the stacks of live blocks
stay). So it is turned off once, at the end.
"""

from __future__ import annotations

import pickle
import secrets
from pathlib import Path
from typing import Any

from foretrace.knowledge.allocator_rows import HISTORY_ENTRIES
from foretrace.model.sidefile import DeviceMemory, MemoryHistory, SideFile, snapshot_path
from foretrace.model.whole import special_file

__all__ = ["NO_GPU", "History", "begun_with_the_block"]

NO_GPU = "without a GPU there is no allocator history; the trace holds the allocator rows of the CPU"


class History:
    """The history of all GPUs of this process, used once: ``start``, ``leave_beside``, ``stop``; none of them raises.

    Where there is no GPU, or this torch lacks the functions, ``why_not`` says so and nothing is recorded.
    """

    def __init__(self, torch: Any, began: str, *, max_entries: int = HISTORY_ENTRIES) -> None:
        self._torch = torch
        self._max_entries = max_entries
        self._ours = False
        self.began = began
        """When it began, in words."""
        self.why_not: str | None = None if torch.cuda.is_available() else NO_GPU
        """Why there is no history, if so."""

    def start(self) -> None:
        """Forget what was recorded before, and record from now on; a history that the program began itself goes on."""
        if self.why_not is not None:
            return
        memory = self._torch.cuda.memory
        record = getattr(memory, "_record_memory_history", None)
        if record is None or not hasattr(memory, "_snapshot"):
            self.why_not = self._unsupported()
            return
        try:
            self._torch.cuda.init()  # before that there is no allocator that could keep anything
            if self._is_on():
                self.began = "by the program itself"
                return
            record(enabled=None)  # clears it, in every version
            # With C++ frames: autograd's threads have no others, and make half of what a training step allocates. On an
            # H200's host they take 3 µs an event more than Python frames alone.
            record(enabled="all", context="all", stacks="all", max_entries=self._max_entries)
        except Exception as error:  # private functions: what they raise differs by version
            self.why_not = f"{self._unsupported()} ({_first_line(error)})"
            return
        self._ours = True

    def dump(self, path: Path) -> MemoryHistory:
        """Write the snapshot to ``path``, whole or not at all; what could not be found out is None in the answer."""
        answer = MemoryHistory()
        if self.why_not is not None:
            return answer
        answer.began = self.began
        answer.max_entries = self._max_entries if self._ours else None
        temporary = path.with_name(f".foretrace-{secrets.token_hex(8)}.tmp")
        try:
            snapshot = self._torch.cuda.memory._snapshot()
            with temporary.open("xb") as file:
                # Protocol 4, which every viewer reads; Python 3.14 would write 5.
                pickle.dump(snapshot, file, protocol=4)
            temporary.replace(path)
            answer.snapshot = path.name
        except OSError as error:
            self.why_not = f"the snapshot could not be written: {error.strerror or error}"
        except Exception as error:
            self.why_not = f"{self._unsupported()} ({_first_line(error)})"
        finally:
            temporary.unlink(missing_ok=True)
        answer.devices = self._devices()
        return answer

    def leave_beside(self, trace: Path, side: SideFile, *, force: bool) -> None:
        """Dump it beside a trace, say so in its side file, and turn the history off."""
        path = snapshot_path(trace)
        if path.exists() and not (force and special_file(path) is None):
            side.memory = MemoryHistory()
            self.why_not = f"{path.name} appeared while this was recorded, and was kept"
        else:
            side.memory = self.dump(path)
        self.stop()
        if self.why_not is not None:
            side.missing["memory.snapshot"] = self.why_not

    def stop(self) -> None:
        """Turn the history off, if it is ours."""
        if not self._ours:
            return
        self._ours = False
        try:
            self._torch.cuda.memory._record_memory_history(enabled=None)
        except Exception as error:
            self.why_not = f"{self._unsupported()} ({_first_line(error)})"

    def _is_on(self) -> bool:
        is_on = getattr(self._torch._C, "_cuda_isHistoryEnabled", None)
        return bool(is_on()) if is_on is not None else False

    def _devices(self) -> list[DeviceMemory]:
        """The devices this process holds memory on; asking about others would make a context there."""
        cuda = self._torch.cuda
        found = []
        for index in range(cuda.device_count()):
            try:
                stats = cuda.memory_stats(index)
                if not stats.get("reserved_bytes.all.peak"):
                    continue
                state = DeviceMemory(
                    index=index,
                    allocated_bytes=stats.get("allocated_bytes.all.current"),
                    reserved_bytes=stats.get("reserved_bytes.all.current"),
                    peak_allocated_bytes=stats.get("allocated_bytes.all.peak"),
                    peak_reserved_bytes=stats.get("reserved_bytes.all.peak"),
                    alloc_retries=stats.get("num_alloc_retries"),
                    ooms=stats.get("num_ooms"),
                    memory_fraction=self._fraction(index),
                )
                state.free_bytes, state.total_bytes = (int(value) for value in cuda.mem_get_info(index))
            except (RuntimeError, AttributeError):  # the device is lost, or another allocator without statistics
                continue
            found.append(state)
        return found

    def _fraction(self, index: int) -> float | None:
        """The share of the device this process may use, where one was set; torch before 2.9 cannot be asked."""
        ask = getattr(self._torch.cuda.memory, "get_per_process_memory_fraction", None)
        if ask is None:
            return None
        value = float(ask(index))
        return None if value >= 1.0 else value

    def _unsupported(self) -> str:
        return f"torch {self._torch.__version__} does not record the allocator's history as foretrace knows it"


def begun_with_the_block() -> History:
    """The history of a recording that nobody prepared; what was allocated before is in the snapshot without a stack."""
    from foretrace.capture.torch_backend import import_torch

    history = History(import_torch(), "when the block began")
    history.start()
    return history


def _first_line(error: Exception) -> str:
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
