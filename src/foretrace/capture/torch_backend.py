"""The torch profiler behind the seam. Everything that depends on the torch version stands in this file.

Supported are torch 2.4 and later. Three facts shape it (the first and the last seen on torch
2.4 and 2.13, the second reported in pytorch#197005):

* Kineto has one session a process. A second profiler that starts inside ours ends ours without a word
  (torch 2.13) or makes its end fail (2.4). :mod:`foretrace.capture.guard` keeps others out while we record.
* Kineto registers the GPU's activities when the *first* profile of a process is prepared. If that one asked
  for the CPU only, no later profile sees a kernel. So CUDA is asked for whenever a GPU can be used.
* ``export_chrome_trace`` reports a failure only in a log line of C++. Whoever calls
  :meth:`TorchSession.export` has to look at the file.

A fourth, measured on torch 2.13: Kineto reads ``KINETO_LOG_LEVEL`` once a process, when its first profile is
prepared, however long ago torch was imported; see :func:`_hushed`.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from foretrace.capture.backend import GpuUse, Settings
from foretrace.capture.guard import Guard, was_refused
from foretrace.errors import CaptureError, MissingExtraError, ProfilerActiveError
from foretrace.knowledge.kineto import step_name

__all__ = ["OLDEST_TORCH", "TorchBackend", "TorchSession", "import_torch"]

OLDEST_TORCH = (2, 4)

_ENDED = (
    "torch's profiler ended before this recording did, and what was recorded is lost: the recorded code called "
    "torch.autograd._disable_profiler(), or the recording ended on another thread than the one it began on. "
    "Take that call out, and begin and end the recording on one thread"
)

_LOG_LEVEL = "KINETO_LOG_LEVEL"
_LOG_NOTHING = "6"  # above every severity of libkineto/src/Logger.h


def import_torch() -> Any:
    """Import torch; raises :class:`MissingExtraError` when it is absent, does not load, or is too old."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError(
            "recording needs PyTorch 2.4 or newer, which is not installed: pip install torch"
        ) from None
    except (ImportError, OSError) as error:  # a wheel whose shared libraries do not load
        raise MissingExtraError(f"PyTorch is installed but does not load: {error}") from error
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST_TORCH:
        raise MissingExtraError(
            f"recording needs torch 2.4 or later, this is {torch.__version__}: pip install -U torch "
            "(traces of older versions can be read all the same)"
        )
    return torch


class TorchBackend:
    """The real thing. Raises :class:`MissingExtraError` when torch is missing or older than 2.4."""

    def __init__(self) -> None:
        self._torch = import_torch()

    def clock_ns(self) -> int:
        """Host time, ns."""
        return time.perf_counter_ns()

    def foreign_profiler(self) -> str | None:
        """Describe a profiler that runs on any thread, or waits in its warm-up; costs some 0.1 s."""
        if self._torch._C._autograd._profiler_enabled() or _recording_anywhere(self._torch):
            return "a torch profiler is already recording in this process"
        for profiler in _profilers(self._torch):
            if getattr(getattr(profiler, "current_action", None), "name", "") == "WARMUP" and _armed(profiler):
                return "a torch profiler is in its warm-up steps in this process"
        return None

    def cautions(self) -> list[str]:
        """Tell of a CPU-only profile that ran earlier: Kineto then never records a kernel in this process."""
        if not self._torch.cuda.is_available():
            return []
        cuda = self._torch.profiler.ProfilerActivity.CUDA
        for profiler in _profilers(self._torch):
            started = getattr(profiler, "profiler", None) is not None
            if started and cuda not in getattr(profiler, "activities", {cuda}):
                return [
                    "a CPU-only torch profile ran earlier in this process; Kineto registers GPU activities "
                    "only with the first profile, so this recording may hold no kernel. Let that first "
                    "profile ask for ProfilerActivity.CUDA too, or record in a fresh process"
                ]
        return []

    def session(self, settings: Settings) -> TorchSession:
        """Make a profiler."""
        return TorchSession(self._torch, settings)


class TorchSession:
    """One ``torch.profiler.profile``, with a guard against others for as long as it lives."""

    def __init__(self, torch: Any, settings: Settings) -> None:
        self._torch = torch
        self._plan = settings.plan
        activity = torch.profiler.ProfilerActivity
        supported = torch.profiler.supported_activities()
        wanted = [activity.CPU]
        if torch.cuda.is_available() and activity.CUDA in supported:
            wanted.append(activity.CUDA)
        xpu = getattr(activity, "XPU", None)
        if xpu is not None and xpu in supported and hasattr(torch, "xpu") and torch.xpu.is_available():
            wanted.append(xpu)
        if activity.CPU not in supported:
            raise CaptureError("this build of PyTorch has no Kineto profiler; use a wheel from PyPI")
        self.activities = [item.name for item in wanted]
        self.cautions: list[str] = []
        options: dict[str, Any] = {}
        if settings.all_threads and settings.memory:
            # With profile_all_threads torch 2.13 writes no allocator row at all.
            self.cautions.append(
                "allocator events were recorded, and with them only the operators of the main thread (and of autograd)"
            )
        elif settings.all_threads:
            # Not in torch 2.4, in torch 2.13; tried rather than looked up, since the class is private.
            try:
                options["experimental_config"] = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
            except (AttributeError, TypeError):
                self.cautions.append(
                    f"torch {torch.__version__} records the operators of the main thread (and of autograd) only"
                )
        self._of_all_threads = bool(options)
        self._profiler = torch.profiler.profile(
            **options,
            activities=wanted,
            schedule=self._schedule if settings.plan is not None else None,
            record_shapes=settings.shapes,
            profile_memory=settings.memory,
            with_stack=settings.stacks,
        )
        self._guard = Guard(torch.autograd.profiler)
        self._steps = 0
        self._running = False
        self._prepared = False
        self._thread: int | None = None
        self._allocations_before: int | None = None
        self._allocations_after: int | None = None

    def _schedule(self, step: int) -> Any:
        action = self._torch.profiler.ProfilerAction
        assert self._plan is not None
        if self._plan.is_last_active(step):
            return action.RECORD_AND_SAVE
        return {"wait": action.NONE, "warmup": action.WARMUP, "active": action.RECORD, "done": action.NONE}[
            self._plan.phase(step)
        ]

    def _recording(self) -> bool:
        return self._running and (self._plan is None or self._plan.phase(self._steps) == "active")

    def start(self) -> None:
        """Begin step 0."""
        self._guard.close()
        try:
            with self._ourselves(0):
                self._profiler.start()
        except BaseException:
            self._guard.open()
            raise
        self._running = True
        self._thread = threading.get_ident()
        if self._recording():
            self._allocations_before = self._allocations()

    def step(self) -> None:
        """End the current step and begin the next."""
        was_recording = self._recording()
        if was_recording:
            self._still_ours()
        with self._ourselves(self._steps + 1):
            self._profiler.step()
        self._steps += 1
        if self._recording() and not was_recording:
            self._allocations_before = self._allocations()
        if was_recording and not self._recording():
            self._allocations_after = self._allocations()

    def mark(self, number: int) -> AbstractContextManager[object]:
        """Annotate a step the way a scheduled profiler does."""
        annotation: AbstractContextManager[object] = self._torch.profiler.record_function(step_name(number))
        return annotation

    def stop(self) -> None:
        """End the recording and take the guard away."""
        if not self._running:
            return
        was_recording = self._recording()
        self._running = False
        try:
            if was_recording:
                self._still_ours()
                self._allocations_after = self._allocations()
            with self._ourselves(self._steps):
                self._profiler.stop()
        finally:
            self._guard.open()

    def export(self, path: Path) -> None:
        """Write the trace as plain JSON; raises `CaptureError` where torch holds none, which it would crash on."""
        results = getattr(getattr(self._profiler, "profiler", None), "kineto_results", None)
        began = getattr(results, "trace_start_ns", None)
        if began is not None and began() == 0:
            raise CaptureError(_ENDED)
        self._profiler.export_chrome_trace(str(path))

    def gpu_use(self) -> GpuUse:
        """Compare the allocator's count of allocations before and after the recorded steps."""
        before, after = self._allocations_before, self._allocations_after
        return GpuUse(
            available=bool(self._torch.cuda.is_available()),
            requested="CUDA" in self.activities,
            used=before is not None and after is not None and after > before,
        )

    def _allocations(self) -> int | None:
        """Count of CUDA allocations so far, all devices; ``None`` on a machine without CUDA."""
        cuda = self._torch.cuda
        if not cuda.is_available():
            return None
        if not cuda.is_initialized():
            return 0
        return sum(
            int(cuda.memory_stats(device).get("allocation.all.allocated", 0)) for device in range(cuda.device_count())
        )

    def _still_ours(self) -> None:
        if self._torch._C._autograd._profiler_enabled():
            return
        if _recording_anywhere(self._torch):
            # Of another thread, and of a profiler of all threads, no more than this flag is known.
            if threading.get_ident() != self._thread or self._of_all_threads:
                return
            self._running = False
            _forget(self._torch)
            self._guard.open()
            raise CaptureError(_ENDED)
        self._running = False
        self._guard.open()
        raise ProfilerActiveError(
            "another profiler ran inside this recording and ended it; what was recorded is lost. "
            "Take the other profiler out of the recorded code"
        )

    @contextmanager
    def _ourselves(self, step: int) -> Iterator[None]:
        """Pass the guard for what makes ``step`` the current one; torch prepares where the wait steps end."""
        with self._guard.ourselves(), warnings.catch_warnings():
            # torch's remarks on its own schedule would only repeat what foretrace says in its words.
            warnings.filterwarnings("ignore", module=r"torch\.(profiler|autograd)\b")
            if self._prepared or (self._plan is not None and step < self._plan.wait):
                yield
                return
            self._prepared = True
            with _hushed():
                yield


@contextmanager
def _hushed() -> Iterator[None]:
    """Let Kineto start without its notes on standard error, unless ``KINETO_LOG_LEVEL`` says what is wanted.

    The variable is there only meanwhile, so that the processes the program starts do not inherit it. No level
    hides the notes of start and stop ("USDT") and shows Kineto's errors; what those tell of is found in the
    trace itself (:mod:`foretrace.capture.verdicts`), and ``foretrace doctor`` listens to them.
    """
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = _LOG_NOTHING
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)


def _recording_anywhere(torch: Any) -> bool:
    """The flag torch keeps for all threads; ``_profiler_enabled`` knows only the calling one."""
    return bool(getattr(torch.autograd.profiler, "_is_profiler_enabled", False))


def _forget(torch: Any) -> None:
    """Lower that flag, which only the Python of the profiler that set it does; else no recording could follow."""
    if hasattr(torch.autograd.profiler, "_is_profiler_enabled"):
        torch.autograd.profiler._is_profiler_enabled = False


def _profilers(torch: Any) -> list[Any]:
    """All profiler objects that are alive. torch keeps no list of them, so the garbage collector is asked."""
    kind = torch.profiler.profiler._KinetoProfile
    # type() and not isinstance(): proxies may run code when asked for their __class__.
    return [item for item in gc.get_objects() if issubclass(type(item), kind)]


def _armed(profiler: Any) -> bool:
    inner = getattr(profiler, "profiler", None)
    return inner is not None and getattr(inner, "kineto_results", None) is None and not was_refused(inner)
