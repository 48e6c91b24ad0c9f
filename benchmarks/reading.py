"""Time how long it takes to load a large trace, against Meta's HTA, and how long foretrace takes to start.

    python benchmarks/reading.py --hta-python /path/to/hta-venv/bin/python
    python benchmarks/reading.py --make-hta-venv          # creates it: traceinsight 0.6.1, pandas 2.3
    python benchmarks/reading.py --startup                # only `--help` and `explain`

Each load runs in a process of its own, the tools take turns, and every sample is kept. Wall and CPU time cover the
loading call only (imports excluded, for both); the peak is the resident memory of the whole process.

What is measured: foretrace `load(path)` (columns of all events), and the same with launch links, call forest and
steps built. HTA `TraceAnalysis(trace_files={0: path})`, the documented way to load, with its default parser
backend (`json`), which ends in one frame with correlated rows. Where the environment has `ijson`, HTA's
`ijson_batch_and_compress` backend, documented as the one that saves memory, is measured too.
The result goes to `benchmarks/results/reading.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from synthetic_trace import write_synthetic_trace

HERE = Path(__file__).parent
RESULT = HERE / "results" / "reading.json"
SAMPLE = HERE.parent / "tests" / "data" / "traces" / "mlp_eager.json.gz"

# Each prints one JSON line last: seconds of wall and CPU time of the load, peak resident bytes, rows.
REPORT = """
import json, resource, sys, time
def report(rows, wall, cpu):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"wall_s": wall, "cpu_s": cpu, "peak_rss_bytes": peak, "rows": rows}))
"""
FORETRACE = (
    REPORT
    + """
from foretrace.trace import load
wall, cpu = time.perf_counter(), time.process_time()
trace = load(sys.argv[1])
LINKS
report(len(trace), time.perf_counter() - wall, time.process_time() - cpu)
"""
)
HTA = (
    REPORT
    + """
import logging, warnings
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
from hta.configs.parser_config import ParserBackend
from hta.common.trace_parser import set_default_trace_parsing_backend
set_default_trace_parsing_backend(ParserBackend(sys.argv[2]))
wall, cpu = time.perf_counter(), time.process_time()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
report(len(analysis.t.get_trace(0)), time.perf_counter() - wall, time.process_time() - cpu)
"""
)


def run_once(python: str, program: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-c", program, *arguments], capture_output=True, text=True, check=False, env=environment()
    )
    if done.returncode:
        sys.exit(f"measurement failed:\n{done.stderr[-2000:]}")
    sample: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return sample


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1"}


def machine() -> dict[str, Any]:
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    versions = {name: importlib.metadata.version(name) for name in ("msgspec", "numpy", "isal")}
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_bytes": pages,
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": versions,
    }


def hta_versions(python: str) -> dict[str, Any]:
    program = (
        "import importlib.metadata as m, json, platform, importlib.util as u; "
        "print(json.dumps({'python': platform.python_version(), 'ijson': bool(u.find_spec('ijson')), "
        "**{n: m.version(n) for n in ('traceinsight', 'pandas', 'numpy')}}))"
    )
    found: dict[str, Any] = json.loads(subprocess.check_output([python, "-c", program], text=True))
    return found


def make_hta_venv() -> str:
    folder = Path(tempfile.gettempdir()) / "foretrace-hta-venv"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "traceinsight==0.6.1", "pandas>=2.3,<3", "ijson"], check=True
        )
    return str(python)


def summary(samples: list[dict[str, Any]]) -> dict[str, Any]:
    middle = {key: statistics.median(s[key] for s in samples) for key in ("wall_s", "cpu_s", "peak_rss_bytes")}
    return {"median": middle, "samples": samples}


def loading(size_mb: float, repetitions: int, hta_python: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.json"
        size = write_synthetic_trace(path, int(size_mb * 1e6))
        versions = hta_versions(hta_python)
        links = FORETRACE.replace("LINKS", "trace.links, trace.steps")
        contestants = {
            "foretrace_load": (sys.executable, FORETRACE.replace("LINKS", "")),
            "foretrace_load_links_steps": (sys.executable, links),
            "hta_json": (hta_python, HTA, "json"),
        }
        if versions["ijson"]:
            contestants["hta_ijson_batch_and_compress"] = (hta_python, HTA, "ijson_batch_and_compress")
        # Ours run before every run of HTA, so that both see the same changes of a shared machine's speed.
        ours = [name for name in contestants if name.startswith("foretrace")]
        order = [n for name in contestants if name not in ours for n in (*ours, name)]
        samples: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
        for repetition in range(repetitions):
            for name in order:
                python, program, *arguments = contestants[name]
                sample = run_once(python, program, str(path), *arguments)
                samples[name].append(sample)
                print(
                    f"{repetition + 1}/{repetitions} {name:30s} {sample['wall_s']:8.2f} s wall "
                    f"{sample['cpu_s']:8.2f} s CPU {sample['peak_rss_bytes'] / 1e6:8.0f} MB",
                    file=sys.stderr,
                )
    results = {name: summary(found) for name, found in samples.items()}
    ours = results["foretrace_load"]["median"]
    ratios = {
        name: {key: result["median"][key] / ours[key] for key in ours}
        for name, result in results.items()
        if name.startswith("hta")
    }
    return {
        "trace_bytes": size,
        "repetitions": repetitions,
        "hta": versions,
        "results": results,
        "hta_over_foretrace_load": ratios,
    }


def startup(repetitions: int) -> dict[str, Any]:
    """CPU seconds (user and system) of whole processes."""
    results = {}
    commands = {
        "--help": ["--help"],
        "explain": ["explain", str(SAMPLE)],
        "explain --json": ["explain", "--json", str(SAMPLE)],
    }
    for name, arguments in commands.items():
        samples = []
        for _ in range(repetitions):
            before = os.times()
            done = subprocess.run(
                [sys.executable, "-m", "foretrace", *arguments], capture_output=True, check=False, env=environment()
            )
            after = os.times()
            if done.returncode:
                sys.exit(f"foretrace {name} failed:\n{done.stderr.decode()[-2000:]}")
            user = after.children_user - before.children_user
            samples.append(user + after.children_system - before.children_system)
        results[name] = {"median_cpu_s": statistics.median(samples), "samples_cpu_s": samples}
        print(f"foretrace {name:16s} {results[name]['median_cpu_s']:.3f} s CPU", file=sys.stderr)
    return {"trace": SAMPLE.name, "trace_bytes_uncompressed": uncompressed(SAMPLE), "results": results}


def uncompressed(path: Path) -> int:
    import gzip

    return len(gzip.decompress(path.read_bytes()))


def save(result: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=float, default=500.0, help="size of the trace in 10⁶ bytes")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--hta-python", help="Python of an environment with traceinsight and pandas 2.3")
    parser.add_argument("--make-hta-venv", action="store_true", help="create that environment")
    parser.add_argument("--startup", action="store_true", help="measure only the start of the command line")
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    options = parser.parse_args()
    result: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {}
    result["machine"] = machine()
    if not options.startup:
        python = make_hta_venv() if options.make_hta_venv else options.hta_python
        if not python:
            parser.error("name the Python of an HTA environment (--hta-python) or let one be made (--make-hta-venv)")
        result["loading"] = {
            "command": f"python benchmarks/reading.py --size-mb {options.size_mb:g} "
            f"--repetitions {options.repetitions} --make-hta-venv",
            **loading(options.size_mb, options.repetitions, python),
        }
        save(result, options.output)
    result["startup"] = {"command": "python benchmarks/reading.py --startup", **startup(10)}
    save(result, options.output)
    print(options.output)


if __name__ == "__main__":
    main()
