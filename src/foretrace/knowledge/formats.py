"""How files that are no PyTorch profiler trace can be recognised, what they are, and what to do with them.

Sources: the formats' own specifications for the magic numbers (RFC 1951/1952 gzip and zlib, RFC 8878 zstd, the .xz,
bzip2, LZ4 frame, ZIP, SQLite, HDF5, NumPy, Parquet and Arrow documents), ``pickletools`` for pickles, the
TFRecord/Event protobuf for TensorBoard, the keys that the named tools write for JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "DEFLATE_RATIO",
    "EXTENSIONS",
    "GZIP_LAYERS",
    "GZIP_MAGIC",
    "HEAD_BYTES",
    "JSON_OBJECTS",
    "KINETO_KEYS",
    "LOOKED_AT",
    "MAGIC",
    "NANOSECONDS",
    "PAGES",
    "PICKLES",
    "PLAIN_TEXTS",
    "PROJECT_FILE",
    "SCHEMA_ANYWHERE",
    "SCHEMA_FIRST",
    "TABLE_MARKS",
    "TEXTS",
    "TIMELINE_BEGIN",
    "TRACE_MARK",
    "TRACE_SUFFIXES",
    "FileKind",
    "Foreign",
]

GZIP_MAGIC = b"\x1f\x8b"

# What `Trace.odd` calls rows whose times are nanoseconds where the format says microseconds.
NANOSECONDS = "nanoseconds as microseconds"

# Deflate makes at most this many bytes of one: a match of 258 bytes takes two bits at least (RFC 1951; "Maximum
# Compression Factor" in zlib's technical details, https://zlib.net/zlib_tech.html).
DEFLATE_RATIO = 1032

# Compressed by the profiler, by a web server, by a careless copy: more layers than this are no accident.
GZIP_LAYERS = 4

# Names a folder of traces usually holds; used only to say how many there are.
TRACE_SUFFIXES = (".json", ".json.gz", ".trace", ".trace.gz")

# Top-level keys only PyTorch's profiler (Kineto) writes: they tell an empty recording from another tool's file.
KINETO_KEYS = frozenset({"schemaVersion", "deviceProperties", "baseTimeNanoseconds", "record_shapes", "trace_id"})

# --- What foretrace knows ---------------------------------------------------------------------------------------------


class FileKind(StrEnum):
    """What a file is that foretrace reads or writes, or that the profiler wrote."""

    TRACE = "trace"
    REPORT = "report"
    SIDE_FILE = "side_file"
    DOCUMENT = "document"  # other JSON that foretrace wrote
    PAGE = "page"  # HTML that foretrace wrote
    TABLE = "table"
    SNAPSHOT = "snapshot"
    MEMORY_TIMELINE = "memory_timeline"
    MEMORY_SUMMARY = "memory_summary"
    MEMORY_COUNTERS = "memory_counters"
    EXPECTATIONS = "expectations"


# Ends of names behind the last dot, without .gz. A log is read for the summary of memory in it.
PICKLES = ("pickle", "pkl")
PLAIN_TEXTS = ("txt", "log")
PAGES = ("html", "htm")
LOOKED_AT = frozenset({"json", "trace", "toml", *PICKLES, *PLAIN_TEXTS, *PAGES})
# TOML that is no file of expectations, whatever it holds.
PROJECT_FILE = "pyproject.toml"

# A file's kind shows in its first bytes (after inflating): Kineto writes deviceProperties, some kB a GPU, before the
# events.
HEAD_BYTES = 1 << 18
TRACE_MARK = re.compile(r'"traceEvents"\s*:|"ph"\s*:\s*"')
# foretrace's documents name their schema first; one that was written anew with sorted keys names it somewhere.
SCHEMA_FIRST = re.compile(r'\s*\{\s*"schema"\s*:\s*"(foretrace\.[a-z_]+/\d+)"')
SCHEMA_ANYWHERE = re.compile(r'"schema"\s*:\s*"(foretrace\.[a-z_]+/\d+)"')
# key_averages().table() writes these column heads (torch/autograd/profiler_util.py, _build_table), also with CPU
# activity alone.
TABLE_MARKS = ("Self CPU %", "# of Calls")
# torch.profiler's export_memory_timeline to .json: a list of times and a list of sizes.
TIMELINE_BEGIN = re.compile(r"\s*\[\s*\[")

# --- What it does not -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Foreign:
    """A file of another kind: what it is (with its article) and what the user can do."""

    what: str
    advice: str


_UNPACK = "unpack it first and name the trace inside"
_RECORD = "record with torch.profiler and export_chrome_trace, or with `foretrace run`"
_SNAPSHOT = Foreign(
    "a memory snapshot of the CUDA caching allocator, not a timeline",
    "this command reads profiler traces; read it with `foretrace memory FILE`",
)
_COUNTERS = Foreign(
    "the allocator's counters (torch.cuda.memory_stats), not a timeline",
    "read it with `foretrace memory FILE`",
)
_NSYS = Foreign(
    "a report of Nsight Systems",
    f"its format is read by `nsys stats` only; to use foretrace, {_RECORD}",
)
_NCU = Foreign(
    "a report of Nsight Compute",
    f"it is read by `ncu --import` only; to use foretrace, {_RECORD}",
)

# (offset, bytes at it, what it is); the first match wins.
MAGIC: tuple[tuple[int, bytes, Foreign], ...] = (
    (0, b"PK\x03\x04", Foreign("a ZIP archive", _UNPACK)),
    (0, b"PK\x05\x06", Foreign("an empty ZIP archive", "name a trace file")),
    (0, b"\x28\xb5\x2f\xfd", Foreign("a Zstandard archive", "unpack it first (`zstd -d`)")),
    (0, b"\xfd7zXZ\x00", Foreign("an xz archive", "unpack it first (`xz -d`)")),
    (0, b"BZh", Foreign("a bzip2 archive", "unpack it first (`bzip2 -d`)")),
    (0, b"\x04\x22\x4d\x18", Foreign("an LZ4 archive", "unpack it first (`lz4 -d`)")),
    (0, b"7z\xbc\xaf\x27\x1c", Foreign("a 7-Zip archive", _UNPACK)),
    (0, b"Rar!\x1a\x07", Foreign("a RAR archive", _UNPACK)),
    (257, b"ustar", Foreign("a tar archive", _UNPACK)),
    (
        0,
        b"SQLite format 3\x00",
        Foreign("an SQLite database (Nsight Systems and rocprof export such)", f"to use foretrace, {_RECORD}"),
    ),
    (0, b"NVR\x00", _NCU),
    (0, b"\x89HDF\r\n\x1a\n", Foreign("an HDF5 file", "name a profiler trace")),
    (0, b"\x93NUMPY", Foreign("a NumPy array", "name a profiler trace")),
    (0, b"PAR1", Foreign("a Parquet table", "name the trace it was made from")),
    (0, b"ARROW1", Foreign("an Arrow table", "name the trace it was made from")),
    (0, b"\x7fELF", Foreign("an executable", "name a profiler trace")),
    (0, b"\x89PNG", Foreign("a PNG image", "name a profiler trace")),
    (0, b"%PDF", Foreign("a PDF document", "name a profiler trace")),
)

PICKLE = re.compile(rb"\x80[\x02-\x05]")
PICKLE_SNAPSHOT = Foreign(_SNAPSHOT.what, _SNAPSHOT.advice)
PICKLE_OTHER = Foreign(
    "a Python pickle",
    "name a profiler trace (JSON, plain or gzip); an allocator snapshot is read with `foretrace memory FILE`",
)
# TFRecord framing puts the version string of the first event within the first bytes.
TENSORBOARD_MARK = b"brain.Event:"
TENSORBOARD = Foreign(
    "a TensorBoard event file", "name the trace itself (`*.pt.trace.json`), which the profiler writes next to it"
)
# Field 1, length-delimited: how a Perfetto `Trace` and an XLA `XSpace` message begin.
PROTOBUF_MARK = b"\x0a"
PROTOBUF = Foreign(
    "a protobuf file (Perfetto and XLA write their traces so)", f"foretrace reads Kineto JSON; {_RECORD}"
)
BINARY = Foreign("a binary file", "a profiler trace is JSON text, plain or gzip")

# By the end of the name, for binary files whose content says nothing.
EXTENSIONS: tuple[tuple[str, Foreign], ...] = (
    (".nsys-rep", _NSYS),
    (".qdrep", _NSYS),
    (".qdstrm", _NSYS),
    (".ncu-rep", _NCU),
    (".perfetto-trace", PROTOBUF),
    (".pftrace", PROTOBUF),
    (".xplane.pb", PROTOBUF),
)

# Text that is no JSON: the first pattern that matches at the beginning (white space skipped) wins.
TEXTS: tuple[tuple[re.Pattern[bytes], Foreign], ...] = (
    (
        re.compile(rb"version https://git-lfs"),
        Foreign("a Git LFS pointer, not the file itself", "fetch it with `git lfs pull`"),
    ),
    # What a training run printed before it, a table of memory_summary() included, is not what such a log is about.
    (
        re.compile(
            rb".*?(OutOfMemoryError|(CUDA|HIP|XPU|NPU|MLU|MPS|MUSA)( backend| error:)? out of memory)", re.DOTALL
        ),
        Foreign("a text with an out-of-memory message, not a timeline", "read it with `foretrace oom FILE`"),
    ),
    (
        re.compile(rb".*?PyTorch CUDA memory summary", re.DOTALL),
        Foreign(
            "the printed table of torch.cuda.memory_summary(), not a timeline", "read it with `foretrace memory FILE`"
        ),
    ),
    # Protocol 0 is text; it begins with a container and its number in the memo.
    (re.compile(rb"\([dl]p\d+\n.*?segments", re.DOTALL), _SNAPSHOT),
    (re.compile(rb"\([dl]p\d+\n"), PICKLE_OTHER),
    (
        re.compile(rb"<.*MemoryViz", re.DOTALL),
        Foreign(
            "a page of memory_viz with a snapshot inside",
            "read the pickle that the page was made from with `foretrace memory FILE`",
        ),
    ),
    (
        re.compile(rb"<(!doctype|html|head|body)", re.IGNORECASE),
        Foreign("a web page", "a download often saves the page around a file; download the raw file"),
    ),
    (re.compile(rb"<"), Foreign("an XML or HTML file", "name a profiler trace")),
    (
        re.compile(rb"[- ]+\n.*Self CPU", re.DOTALL),
        Foreign("the printed operator table of torch.profiler", "name the trace that export_chrome_trace wrote"),
    ),
    (
        re.compile(rb"[^\n;{\[]+(;[^\n;]+)+ \d+(\n|\Z)"),
        Foreign(
            "a list of folded stacks (torch.profiler's export_stacks)",
            "it holds no timeline; name the trace that export_chrome_trace wrote",
        ),
    ),
)

# JSON objects: the first entry all of whose keys the document has wins.
JSON_OBJECTS: tuple[tuple[frozenset[str], Foreign], ...] = (
    (frozenset({"segments", "device_traces"}), _SNAPSHOT),
    (frozenset({"allocated_bytes.all.current"}), _COUNTERS),
    (frozenset({"allocated_bytes", "reserved_bytes"}), _COUNTERS),
    (
        frozenset({"schema", "nodes"}),
        Foreign(
            "an execution trace (PyTorch ET or Chakra): operators without times on the GPU",
            "name the Kineto trace recorded with it",
        ),
    ),
    (
        frozenset({"nodes", "samples"}),
        Foreign("a CPU profile of a JavaScript engine", f"to use foretrace, {_RECORD}"),
    ),
    (frozenset({"$schema", "profiles"}), Foreign("a speedscope profile", "name the trace it was made from")),
    (
        frozenset({"rocprofiler-sdk-tool"}),
        Foreign("an output of rocprofv3", f"to use foretrace, {_RECORD}"),
    ),
    (frozenset({"cells", "nbformat"}), Foreign("a Jupyter notebook", "name a profiler trace")),
    (
        frozenset({"schema", "trace", "steps"}),
        Foreign("a report that foretrace wrote", "name the trace it was made from"),
    ),
    (
        frozenset({"schema", "software", "machine"}),
        Foreign("the side file of a trace", "name the trace next to it (`*.trace.json.gz`)"),
    ),
)

HATCHET_KEYS = frozenset({"frame", "metrics"})
HATCHET = Foreign(
    "a Hatchet profile (Triton's Proton writes such)", f"it holds sums, no timeline; to use foretrace, {_RECORD}"
)
CHROME = Foreign(
    "a Chrome trace, but none of its events has a category that PyTorch's profiler writes",
    f"open it in https://ui.perfetto.dev; to use foretrace, {_RECORD}",
)
