"""Make small allocator snapshots on a GPU, each of one situation, to test the reader and the answers with.

    python benchmarks/memory_snapshots.py -o FOLDER
    python benchmarks/memory_snapshots.py -o FOLDER --only out_of_memory

Each situation runs in a process of its own, with the allocator's settings it needs. Beside NAME.pickle.gz lie
NAME.memory_stats.json and NAME.memory_summary.txt, taken at the same moment, and of the one that runs out of memory
NAME.message.txt. `machine.json` says what made them. In stacks, files are named from the repository's or the
environment's root on. A situation that fails is named and the others are still made; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20
MOST_BYTES = 150_000
LONG_CYCLES = 4_000_000_000  # about two seconds of an H200


class Writer:
    """Writes what the allocator says at one moment."""

    def __init__(self, torch: Any, folder: Path, name: str) -> None:
        self.torch = torch
        self.folder = folder
        self.name = name

    def write(self, message: str | None = None) -> None:
        """The snapshot, then statistics and summary, which change nothing."""
        snapshot = self.torch.cuda.memory._snapshot()
        stats = self.torch.cuda.memory_stats(0)
        summary = self.torch.cuda.memory_summary(0)
        _shorten(snapshot, set())
        packed = gzip.compress(pickle.dumps(snapshot, protocol=4), mtime=0)
        if len(packed) > MOST_BYTES:
            raise RuntimeError(f"the snapshot has {len(packed)} bytes packed, more than {MOST_BYTES}")
        path = self.folder / self.name
        path.with_suffix(".pickle.gz").write_bytes(packed)
        path.with_suffix(".memory_stats.json").write_text(json.dumps(dict(stats), indent=1) + "\n")
        path.with_suffix(".memory_summary.txt").write_text(summary + "\n")
        if message is not None:
            path.with_suffix(".message.txt").write_text(message + "\n")
        print(f"{self.name}: {len(snapshot['segments'])} segments, {len(packed)} bytes packed")


def _shorten(value: Any, seen: set[int]) -> None:
    """Cut the machine's own folders off the names of files; frames may be shared."""
    if id(value) in seen:
        return
    if isinstance(value, dict):
        seen.add(id(value))
        if isinstance(value.get("filename"), str):
            value["filename"] = _short(value["filename"])
        for item in value.values():
            _shorten(item, seen)
    elif isinstance(value, list | tuple):
        seen.add(id(value))
        for item in value:
            _shorten(item, seen)


def _short(name: str) -> str:
    for mark in ("site-packages/", "dist-packages/", f"{ROOT}{os.sep}"):
        if mark in name:
            return name.rpartition(mark)[2]
    for folder in sorted((p for p in sys.path if p), key=len, reverse=True):
        if name.startswith(folder + os.sep):
            return name[len(folder) + 1 :]
    return Path(name).name if Path(name).is_absolute() else name


def _record(torch: Any, max_entries: int = 100_000) -> None:
    torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=max_entries)


def _bytes(torch: Any, mib: float) -> Any:
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def expandable_segments(torch: Any, writer: Writer) -> None:
    """Holes whose whole pages were unmapped, and blocks of both pools."""
    _record(torch)
    held = [_bytes(torch, mib) for mib in (10, 70, 35, 0.5, 3, 120, 8, 0.001, 64)]
    del held[5], held[1]
    torch.cuda.empty_cache()
    held.append(_bytes(torch, 15))
    del held[1]
    writer.write()


def pending_frees(torch: Any, writer: Writer) -> None:
    """Blocks that are freed while another stream is still busy with them."""
    _record(torch)
    other = torch.cuda.Stream()
    held = [_bytes(torch, mib) for mib in (4, 6, 8, 30, 0.25, 0.5)]
    with torch.cuda.stream(other):
        torch.cuda._sleep(LONG_CYCLES)
    for tensor in (held[1], held[3], held[4]):
        tensor.record_stream(other)
    del tensor
    del held[4], held[3], held[1]
    writer.write()
    states = {block["state"] for segment in torch.cuda.memory._snapshot()["segments"] for block in segment["blocks"]}
    torch.cuda.synchronize()
    if not any("pending" in state or "awaiting" in state for state in states):
        raise RuntimeError(f"no block was pending, only {sorted(states)}")


def several_streams(torch: Any, writer: Writer) -> None:
    """Idle memory that belongs to streams that do not ask for it."""
    _record(torch)
    held = []
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            own = [_bytes(torch, mib) for mib in (2, 5, 40, 100, 0.3, 0.6)]
            held += own[::2]
            del own
    writer.write()


def graph_pool(torch: Any, writer: Writer) -> None:
    """A CUDA graph keeps its private pool."""
    _record(torch)
    x = torch.ones(1024, 1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            torch.relu(x * 2 + 1).sum(dim=0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.relu(x * 2 + 1).sum(dim=0)
    graph.replay()
    torch.cuda.synchronize()
    writer.write()
    pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory._snapshot()["segments"]}
    del y
    if pools <= {(0, 0)}:
        raise RuntimeError("the graph has no pool of its own")


def out_of_memory(torch: Any, writer: Writer) -> None:
    """A fragmented gibibyte, and a request that no hole serves."""
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(1024 * MIB / total)
    _record(torch)
    pieces = []
    for cut in ((80, 12, 90, 12, 194, 12), (60, 12, 90, 12, 114, 12)):
        # A free segment that the next requests are cut from, to the last byte.
        whole = _bytes(torch, sum(cut))
        del whole
        pieces += [_bytes(torch, mib) for mib in cut]
    # What is small stays, and pins the holes between.
    held = pieces[1::2]
    del pieces
    try:
        held.append(_bytes(torch, 400))
    except torch.cuda.OutOfMemoryError as error:
        message = str(error)
    else:
        raise RuntimeError("400 MiB were found below a limit of 1 GiB, of which 700 MiB are cut up")
    writer.write(message)


def truncated_history(torch: Any, writer: Writer) -> None:
    """A history that begins long after the program did."""
    _record(torch, max_entries=60)
    held = []
    for number in range(80):
        held.append(_bytes(torch, 0.1 + number % 7))
        if number % 3 == 2:
            del held[number % len(held)]
    writer.write()


def training(torch: Any, writer: Writer) -> None:
    """Three steps of a GeGLU MLP with AdamW, recorded since before the model was made."""
    _record(torch)

    class Mlp(torch.nn.Module):
        def __init__(self, dim: int, hidden: int) -> None:
            super().__init__()
            self.gate = torch.nn.Linear(dim, hidden, bias=False, device="cuda")
            self.up = torch.nn.Linear(dim, hidden, bias=False, device="cuda")
            self.down = torch.nn.Linear(hidden, dim, bias=False, device="cuda")

        def forward(self, x: Any) -> Any:
            gate = torch.nn.functional.gelu(self.gate(x))
            return self.down(gate * self.up(x))

    model = Mlp(768, 3072)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(4, 128, 768, device="cuda")
    for _ in range(3):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    writer.write()


def max_split_size(torch: Any, writer: Writer) -> None:
    """Oversize blocks, which are never split: one free and whole, one that serves a smaller request."""
    _record(torch)
    held = [_bytes(torch, mib) for mib in (100, 80, 40, 30, 5)]
    del held[3], held[0]
    held.append(_bytes(torch, 90))
    held.append(_bytes(torch, 12))
    del held[0]
    writer.write()


def roundup_power2_divisions(torch: Any, writer: Writer) -> None:
    """Blocks larger than what was asked for."""
    _record(torch)
    held = [_bytes(torch, mib) for mib in (1.1, 2.3, 5.3, 11, 33, 70, 0.3)]
    del held[3]
    writer.write()


class Situation(NamedTuple):
    """What makes it, and the allocator's settings it needs."""

    make: Callable[[Any, Writer], None]
    conf: str = ""


SITUATIONS = {
    "expandable_segments": Situation(expandable_segments, "expandable_segments:True"),
    "pending_frees": Situation(pending_frees),
    "several_streams": Situation(several_streams),
    "graph_pool": Situation(graph_pool),
    "out_of_memory": Situation(out_of_memory),
    "truncated_history": Situation(truncated_history),
    "training": Situation(training),
    "max_split_size": Situation(max_split_size, "max_split_size_mb:64"),
    "roundup_power2_divisions": Situation(roundup_power2_divisions, "roundup_power2_divisions:[1:8,16:4,>:2]"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--only", action="append", choices=SITUATIONS, help="make this one; may be given again")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    flags.output.mkdir(parents=True, exist_ok=True)
    if flags.here:
        (name,) = flags.only
        import torch

        SITUATIONS[name].make(torch, Writer(torch, flags.output, name))
        return 0
    import torch

    if not torch.cuda.is_available():
        print("needs a GPU: torch finds none on this machine", file=sys.stderr)
        return 2
    machine = {
        "gpu": torch.cuda.get_device_name(0),
        "memory_bytes": torch.cuda.get_device_properties(0).total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
    }
    (flags.output / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")
    failed = [name for name in flags.only or SITUATIONS if not _made(name, flags.output)]
    if failed:
        print(f"could not be made: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _made(name: str, folder: Path) -> bool:
    env = {key: value for key, value in os.environ.items() if key != "PYTORCH_ALLOC_CONF"}
    env["PYTORCH_CUDA_ALLOC_CONF"] = SITUATIONS[name].conf
    command = [sys.executable, str(Path(__file__).resolve()), "--here", "--only", name, "-o", str(folder)]
    try:
        return subprocess.run(command, env=env, timeout=300, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


if __name__ == "__main__":
    sys.exit(main())
