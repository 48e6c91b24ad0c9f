"""Time and memory that reading a large allocator snapshot takes.

    python benchmarks/memory_reading.py                          # 1 GB each, with and without stacks
    python benchmarks/memory_reading.py --mb 200 --kind stacks shared distinct

Makes a snapshot of the size asked for in a temporary folder and reads it in a fresh process. Prints one line of JSON
for each: megabytes of the file, entries of its history, seconds, peak resident megabytes of the whole process, and
their ratio to the file. What is bound to hold: a ratio below 4 for a file of 1 GB.

Kinds. ``stacks``: 25 frames an entry, each frame an object of its own, as torch writes them; 2000 different stacks.
``shared``: the same frames, each one object. ``stackless``: no frames. ``distinct``: no two stacks alike,
the worst case.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

KINDS = ("stacks", "shared", "stackless", "distinct")
FRAMES = 25
STACKS = 2000
BATCH = 1000
FRAME_BYTES = 1 << 16
MB = 1_000_000

READ = """
import json, resource, sys, time
from foretrace.memory.reading import read_snapshot
calls = []
start = time.perf_counter()
snapshot = read_snapshot(sys.argv[1], progress=lambda done, total: calls.append(done))
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
rows = sum(len(history) for history in snapshot.histories)
print(json.dumps({"entries": rows, "stacks": len(snapshot.stacks.stacks), "seconds": round(seconds, 2),
                  "peak": peak, "progress_calls": len(calls)}))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1000, help="size of the file")
    parser.add_argument("--kind", choices=KINDS, nargs="+", default=["stacks", "stackless"])
    args = parser.parse_args()
    for kind in args.kind:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "snapshot.pickle"
            count = write_snapshot(path, args.mb * MB, kind)
            found = measured(path)
            print(json.dumps({"kind": kind, **found}), flush=True)
            if found["entries"] != count:
                raise SystemExit(f"{count} entries were written and {found['entries']} were read")
    return 0


def measured(path: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    size = path.stat().st_size
    peak = found.pop("peak")
    return {"file_mb": round(size / MB, 1), **found, "peak_mb": round(peak / MB, 1), "ratio": round(peak / size, 2)}


class Stream:
    """Writes a pickle of protocol 4 as the pickler does: texts once, then references; frames of 64 KB."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.texts: dict[str, int] = {}
        self.remembered = 0
        self.waiting = bytearray()
        file.write(b"\x80\x04")

    def write(self, code: bytes, remembers: int = 0) -> None:
        """Append opcodes, of which so many put something into the memo."""
        self.waiting += code
        self.remembered += remembers
        if len(self.waiting) > FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        """End the frame."""
        self.file.write(b"\x95" + len(self.waiting).to_bytes(8, "little") + self.waiting)
        self.waiting.clear()

    def text(self, text: str) -> bytes:
        """The opcodes of a text; the first time, they have to be written before anything else is remembered."""
        known = self.texts.get(text)
        if known is None:
            self.texts[text] = self.remembered
            raw = text.encode()
            self.remembered += 1
            return b"\x8c" + bytes([len(raw)]) + raw + b"\x94"
        return b"h" + bytes([known]) if known < 256 else b"j" + known.to_bytes(4, "little")


def integer(value: int) -> bytes:
    """The opcodes of a number."""
    if value < 256:
        return b"K" + bytes([value])
    if value < 65536:
        return b"M" + value.to_bytes(2, "little")
    if value < 1 << 31:
        return b"J" + value.to_bytes(4, "little")
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return b"\x8a" + bytes([len(raw)]) + raw


def write_snapshot(path: Path, size: int, kind: str) -> int:
    """Write a snapshot of about ``size`` bytes without segments; how many entries its history has."""
    with path.open("wb") as file:
        stream = Stream(file)
        stream.write(b"}\x94(", 1)
        for code in (stream.text("segments"), b"]\x94", stream.text("device_traces")):
            stream.write(code, code == b"]\x94")
        stream.write(b"]\x94]\x94", 2)
        stacks: dict[int, tuple[bytes, int]] = {}
        dicts: dict[bytes, int] = {}
        count = 0
        while file.tell() < size:
            stream.write(b"(")
            for number in range(count, count + BATCH):
                write_entry(stream, number, kind, stacks, dicts)
            stream.write(b"e")
            count += BATCH
        stream.write(b"au.")
        stream.flush()
    return count


def write_entry(
    stream: Stream, number: int, kind: str, stacks: dict[int, tuple[bytes, int]], dicts: dict[bytes, int]
) -> None:
    """One event of the history."""
    stream.remembered += 1
    fields: dict[str, bytes | str] = {
        "action": ("alloc", "free_requested", "free_completed")[number % 3],
        "addr": integer(0x7F00_0000_0000 + number % 10_000 * 512),
        "size": integer(512 * (number % 5000 + 1)),
        "stream": integer(0),
        "time_us": integer(1_700_000_000_000_000 + number),
        "compile_context": "N/A",
        "user_metadata": "",
    }
    words = [b"}\x94("]
    for name, value in fields.items():
        words.append(stream.text(name))
        words.append(stream.text(value) if isinstance(value, str) else value)
    stream.write(b"".join(words) + stream.text("frames"))
    stack = number if kind == "distinct" else number * 7919 % STACKS
    if kind == "stackless":
        stream.write(b"]\x94", 1)
    elif stack in stacks:
        stream.write(*stacks[stack])
    else:
        write_stack(stream, stack, kind, stacks, dicts)
    stream.write(b"u")


def write_stack(
    stream: Stream, stack: int, kind: str, stacks: dict[int, tuple[bytes, int]], dicts: dict[bytes, int]
) -> None:
    """The frames of a stack; from the second time on its bytes are always the same."""
    stream.write(b"]\x94(", 1)
    again, remembers = b"]\x94(", 1
    for depth in range(FRAMES):
        name = f"a_function_of_the_program_{(stack + depth * depth) % 400}"
        fields = (
            ("name", name),
            ("filename", f"/project/file_{depth % 40}.py"),
            ("line", integer(stack * (depth == 0) + depth)),
        )
        words = [word for pair in fields for word in pair]
        key = repr(words).encode()
        if kind == "shared" and key in dicts:
            code = b"j" + dicts[key].to_bytes(4, "little")
            stream.write(code)
            again += code
            continue
        dicts[key] = stream.remembered
        stream.write(b"}\x94(", 1)
        for word in words:
            stream.write(word if isinstance(word, bytes) else stream.text(word))
        stream.write(b"u")
        body = b"".join(word if isinstance(word, bytes) else stream.text(word) for word in words)
        again += b"j" + dicts[key].to_bytes(4, "little") if kind == "shared" else b"}\x94(" + body + b"u"
        remembers += kind != "shared"
    stream.write(b"e")
    if kind != "distinct":
        stacks[stack] = again + b"e", remembers


if __name__ == "__main__":
    raise SystemExit(main())
