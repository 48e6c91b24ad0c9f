"""``python -m foretrace.fused.hub FOLDER``: write the fused modules as a Hugging Face `kernels` repository."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from foretrace.errors import ForetraceError
from foretrace.fused.hub.build import KERNEL_NAME, KERNEL_VERSION, REPOSITORY, build_repository

__all__ = ["main"]


def main(words: list[str] | None = None) -> int:
    """Write the repository that the command line asks for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m foretrace.fused.hub", description=__doc__)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where to write it; must be absent or empty")
    parser.add_argument("--name", default=KERNEL_NAME, help="name of the kernel (%(default)s)")
    parser.add_argument("--repo-id", default=REPOSITORY, metavar="OWNER/NAME", help="its repository (%(default)s)")
    parser.add_argument("--version", type=int, default=KERNEL_VERSION, help="major version, a branch of the repository")
    args = parser.parse_args(words)
    try:
        written = build_repository(args.folder, name=args.name, repo_id=args.repo_id, version=args.version)
    except ForetraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(
        f"wrote {written}; try it: LOCAL_KERNELS={args.repo_id}={written} foretrace bench mlp "
        f"--variant hub:{args.repo_id}@{args.version}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
