"""Hold `foretrace memory --request` against the real caching allocator: predict each request, then make it.

    python benchmarks/memory_requests.py -o requests.json
    python benchmarks/memory_requests.py --expandable -o expandable.json
    python benchmarks/memory_requests.py --max-split-size-mb 64 -o max_split_size.json

One process, under a limit (`set_per_process_memory_fraction`) of 8 GiB, is left fragmented by random allocations and
frees on two streams. Before each request some more of them change its state; then a snapshot is taken, written, read
by foretrace and asked what would become of the request; then the request is made. Sizes are log-uniform up to 6 GiB: of
a third of the requests from 1 byte on, of a third from 1 MiB on, of a third from 64 MiB on. Every tenth is made while a
block waits for another stream, which a kernel there keeps busy.

Compared are: whether it succeeded; where the memory came from, which is told by how much the allocator took from and
gave to the device meanwhile; the address, where it is a cached block; how much was taken; how much was given back. Any
disagreement makes the exit code 1. Every request is in the result, with what was predicted and what happened.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LARGEST = 6 * GIB
# Log-uniform sizes from 1 byte on are mostly small ones, which any cached block serves.
LEAST = (1, MIB, 64 * MIB)
COMPARED = ("succeeds", "from", "address", "taken_bytes", "given_back_bytes")
# About a second of an H200; a snapshot is taken and read in a fraction of it.
BUSY_CYCLES = 2_000_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-gib", type=float, default=8.0, help="what the process may reserve (default 8)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--expandable", action="store_true", help="with expandable_segments:True")
    mode.add_argument("--max-split-size-mb", type=int, help="with max_split_size_mb:N")
    parser.add_argument("-o", "--output", type=Path, required=True)
    flags = parser.parse_args()
    conf = "expandable_segments:True" if flags.expandable else ""
    if flags.max_split_size_mb is not None:
        conf = f"max_split_size_mb:{flags.max_split_size_mb}"
    # torch reads them when the allocator is made.
    os.environ.pop("PYTORCH_ALLOC_CONF", None)
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = conf
    import torch

    if not torch.cuda.is_available():
        print("needs a GPU: torch finds none on this machine", file=sys.stderr)
        return 2
    program = Program(torch, flags.seed, flags.limit_gib)
    requests = program.run(flags.requests)
    agreed = sum(not request["disagrees"] for request in requests)
    document = {
        "configuration": conf,
        "seed": flags.seed,
        "limit_bytes": program.limit,
        "machine": {
            "gpu": torch.cuda.get_device_name(0),
            "memory_bytes": torch.cuda.get_device_properties(0).total_memory,
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
        },
        "requests": len(requests),
        "agreements": agreed,
        "happened": dict(Counter(request["happened"]["from"] for request in requests)),
        "each": requests,
    }
    flags.output.parent.mkdir(parents=True, exist_ok=True)
    flags.output.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{agreed} of {len(requests)} requests as predicted ({document['happened']})")
    for request in requests:
        if request["disagrees"]:
            print(json.dumps(request), file=sys.stderr)
    return 0 if requests and agreed == len(requests) else 1


class Program:
    """A program that allocates at random, and asks foretrace before it does."""

    def __init__(self, torch: Any, seed: int, limit_gib: float) -> None:
        self.torch = torch
        self.random = random.Random(seed)
        torch.cuda.init()
        torch.cuda.set_device(0)
        total = torch.cuda.mem_get_info(0)[1]
        # Half a page above, so that it does not matter how the fraction is rounded.
        limit = min(int(limit_gib * GIB), total // 2) + MIB
        torch.cuda.set_per_process_memory_fraction(limit / total, 0)
        self.limit = limit
        # The history tells where expandable segments begin; stacks are of no use here.
        torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=1_000_000)
        self.streams = [torch.cuda.current_stream(0), torch.cuda.Stream(0)]
        self.held: list[Any] = []
        self.folder = tempfile.TemporaryDirectory()

    def run(self, requests: int) -> list[dict[str, Any]]:
        """As many requests, each with what was predicted and what happened."""
        for _ in range(300):
            self._step()
        made = []
        for number in range(requests):
            for _ in range(self.random.randint(0, 12)):
                self._step()
            least = LEAST[number % len(LEAST)]
            made.append(self._request(number, self._size(least, LARGEST), waiting=number % 10 == 9))
        return made

    def _size(self, least: int, most: int) -> int:
        return int(math.exp(self.random.uniform(math.log(least), math.log(most))))

    def _allocate(self, size: int, stream: Any) -> Any | None:
        torch = self.torch
        try:
            with torch.cuda.stream(stream):
                return torch.empty(size, dtype=torch.uint8, device="cuda:0")
        except torch.cuda.OutOfMemoryError:
            return None

    def _step(self) -> None:
        """One allocation or free, so that about half of the limit stays in use."""
        if self.random.random() < 0.01:
            self.torch.cuda.empty_cache()
        used = sum(tensor.numel() for tensor in self.held)
        if self.held and self.random.random() < (0.75 if used > self.limit // 2 else 0.4):
            self.held.pop(self.random.randrange(len(self.held)))
            return
        tensor = self._allocate(self._size(256, 512 * MIB), self.random.choice(self.streams))
        if tensor is not None:
            self.held.append(tensor)

    def _wait(self) -> Any | None:
        """Free a block of the first stream that the other still uses; what tells that it still does."""
        torch = self.torch
        own, other = self.streams
        tensor = self._allocate(self._size(MIB, 64 * MIB), own)
        if tensor is None:
            return None
        done = torch.cuda.Event()
        with torch.cuda.stream(other):
            torch.cuda._sleep(BUSY_CYCLES)
            done.record()
        tensor.record_stream(other)
        del tensor
        return done

    def _request(self, number: int, size: int, waiting: bool) -> dict[str, Any]:
        torch = self.torch
        stream = self.random.choice(self.streams)
        # Frees that are done are noticed with the next allocation: not with the one that is predicted.
        torch.cuda.synchronize()
        self._allocate(1, self.streams[0])
        done = self._wait() if waiting else None
        answer = self._ask(size, stream)
        if done is not None and done.query():
            # It was done too early: ask again, when that is noticed.
            done = None
            self._allocate(1, self.streams[0])
            answer = self._ask(size, stream)
        predicted = {
            "succeeds": answer.succeeds,
            "from": answer.from_,
            "address": answer.address,
            "taken_bytes": (answer.segment_bytes or 0) if answer.succeeds else 0,
            "given_back_bytes": answer.released_bytes or 0,
        }
        before = self._moved()
        tensor = self._allocate(size, stream)
        taken, given_back, block = (now - then for now, then in zip(self._moved(), before, strict=True))
        expandable = os.environ["PYTORCH_CUDA_ALLOC_CONF"].startswith("expandable")
        if tensor is None:
            source = "nowhere"
        elif not taken:
            source = "block"
        elif given_back:
            source = "release"
        else:
            source = "mapping" if expandable else "segment"
        happened = {
            "succeeds": tensor is not None,
            "from": source,
            "address": tensor.data_ptr() if tensor is not None and source == "block" else None,
            "taken_bytes": taken,
            "given_back_bytes": given_back,
        }
        disagrees = [name for name in COMPARED if predicted[name] != happened[name]]
        if tensor is not None and block < answer.rounded_bytes:
            disagrees.append("rounded_bytes")
        if tensor is not None and self.random.random() < 0.5 and size < GIB:
            self.held.append(tensor)
        return {
            "number": number,
            "bytes": size,
            "rounded_bytes": answer.rounded_bytes,
            "stream": self.streams.index(stream),
            "while_a_block_waits": done is not None,
            "predicted": predicted,
            "because": answer.because,
            "happened": {**happened, "block_bytes": block},
            "disagrees": disagrees,
        }

    def _ask(self, size: int, stream: Any) -> Any:
        """What foretrace says would become of a request now."""
        from foretrace.memory.allocator import simulate
        from foretrace.memory.reading import read_snapshot

        path = Path(self.folder.name) / "snapshot.pickle"
        self.torch.cuda.memory._dump_snapshot(str(path))
        return simulate(
            read_snapshot(path),
            size,
            device=0,
            stream=stream.cuda_stream,
            device_free_bytes=self.torch.cuda.mem_get_info(0)[0],
            limit_bytes=self.limit,
        )

    def _moved(self) -> tuple[int, int, int]:
        """All bytes ever taken from the device, given back to it, and handed out as blocks."""
        stats = self.torch.cuda.memory_stats(0)
        names = ("reserved_bytes.all.allocated", "reserved_bytes.all.freed", "allocated_bytes.all.allocated")
        taken, given_back, handed_out = (int(stats.get(name, 0)) for name in names)
        return taken, given_back, handed_out


if __name__ == "__main__":
    sys.exit(main())
