"""The repository of Hugging Face `kernels`: sources, one built folder a backend, metadata and card.

Layout as `kernels` 0.17 loads it: ``build/<variant>/{metadata.json,__init__.py,…}`` and, for its builder,
``build.toml`` (edition 5) with the sources under ``torch-ext/<python name>/``. Pure Python and Triton need no
compiler, so the built folders are the sources with imports made relative.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from foretrace.errors import InputError
from foretrace.fused.hub import texts
from foretrace.fused.hub.rewrite import imported, place_of, rewritten

__all__ = ["BACKENDS", "KERNEL_NAME", "KERNEL_VERSION", "REPOSITORY", "build_repository"]

KERNEL_NAME = "foretrace-fused"
REPOSITORY = "foretrace/fused"
# A branch v1, v2, … of the repository; it grows when a layer's or function's signature changes.
KERNEL_VERSION = 1
# cuda: Triton kernels, chosen by the dispatcher; cpu: the same functions in plain PyTorch. No other backend is tested.
BACKENDS = ("cuda", "cpu")

_FORETRACE = Path(__file__).parents[2]
# What of foretrace the fused modules may need; the import rules of the project say the same.
_ALLOWED = ("foretrace.errors", "foretrace.timing", "foretrace.version", "foretrace.fused")
# kernels/docs, "kernel requirements"
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")


def build_repository(
    folder: Path, *, name: str = KERNEL_NAME, repo_id: str = REPOSITORY, version: int = KERNEL_VERSION
) -> Path:
    """Write the repository into ``folder`` and return its absolute path. The same sources give the same bytes.

    Args:
        folder: where to write; must not exist, or be empty.
        name: of the kernel, ``[a-z][-a-z0-9]*[a-z0-9]``.
        repo_id: ``owner/name`` of the repository it is for, written into card and ``build.toml``.
        version: major version.

    Raises:
        InputError: the name is not allowed, the folder holds something, or a source cannot be turned.
    """
    if _NAME.fullmatch(name) is None:
        raise InputError(f"a kernel cannot be called {name!r}: lower-case letters, digits and dashes, a letter first")
    if version < 1:
        raise InputError(f"the version must be at least 1, not {version}")
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder; give another one")
    sources = _sources()
    package = name.replace("-", "_")
    for backend in BACKENDS:
        identity = f"_{package}_{backend}_{_digest(sources)}"
        built = folder / "build" / f"torch-{backend}"
        _write_package(built, sources, identity)
        metadata = texts.metadata(identity=identity, name=name, version=version, backend=backend)
        _write(built / "metadata.json", json.dumps(metadata, indent=2) + "\n")
    _write_package(folder / "torch-ext" / package, sources, None)
    _write(folder / "build.toml", texts.BUILD.format(name=name, version=version, repo_id=repo_id))
    _write(folder / "flake.nix", texts.FLAKE)
    _write(folder / "CARD.md", texts.CARD.format(name=name, version=version, repo_id=repo_id))
    return folder


def _sources() -> dict[str, tuple[Path, str | None]]:
    """Every file of the package by the module's name, tables by their path; ``None`` instead of text that is no Python.

    The fused modules without the hub's own, and of the rest of foretrace what they import.
    """
    found: dict[str, tuple[Path, str | None]] = {}
    pending = []
    for path in sorted((_FORETRACE / "fused").rglob("*")):
        relative = path.relative_to(_FORETRACE.parent)
        if not path.is_file() or "__pycache__" in relative.parts or path.suffix not in (".py", ".json"):
            continue
        if "hub" in relative.parts and path.name != "layers.py":
            continue
        if path.suffix == ".json":
            found[str(relative)] = (path, None)
        else:
            pending.append(_module_of(relative))
    while pending:
        module = pending.pop()
        file = _path_of(module)
        if module in found or file is None:
            continue
        if not any(module == allowed or module.startswith(f"{allowed}.") for allowed in _ALLOWED):
            raise InputError(f"the fused modules import {module}, which the hub's package does not hold")
        text = file.read_text(encoding="utf-8")
        found[module] = (file, text)
        parents = [module.rsplit(".", count)[0] for count in range(1, module.count("."))]
        pending.extend(parent for parent in parents if parent != "foretrace.fused.hub")
        pending.extend(item for item in imported(text, module) if item != "foretrace")
    return dict(sorted(found.items()))


def _module_of(relative: Path) -> str:
    parts = relative.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _path_of(module: str) -> Path | None:
    """The file of a module; ``None`` where the name is that of something in one."""
    base = _FORETRACE.parent.joinpath(*module.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def _digest(sources: dict[str, tuple[Path, str | None]]) -> str:
    """Twelve hexadecimal digits that change with any file."""
    total = hashlib.sha256()
    for name, (path, _) in sources.items():
        total.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:12]


def _write_package(folder: Path, sources: dict[str, tuple[Path, str | None]], namespace: str | None) -> None:
    """The package's files; without ``_ops.py`` where the builder of `kernels` writes that file (``namespace`` None)."""
    for name, (path, text) in sources.items():
        if text is None:
            inner = path.relative_to(_FORETRACE / "fused")
            _write(folder / inner, path.read_text(encoding="utf-8"))
            continue
        is_package = path.name == "__init__.py"
        turned = rewritten(text, name, is_package=is_package)
        if name == "foretrace.fused":
            turned += texts.PACKAGE_END
        place = place_of(name)
        inner = Path(*place.split("."), "__init__.py") if is_package else Path(*place.split(".")).with_suffix(".py")
        _write(folder / inner, turned)
    if namespace is not None:
        _write(folder / "_ops.py", texts.OPS.format(namespace=namespace))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
