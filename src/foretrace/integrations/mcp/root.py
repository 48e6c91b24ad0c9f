"""The one folder whose files may be read: every path a client names is held against it before anything is opened.

A path is judged by its words first, so that nothing outside the root is so much as looked for; then by where its links
lead; then by what lies there. The answers name files relative to the root.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePath

from foretrace.errors import InputError
from foretrace.knowledge.formats import DEFLATE_RATIO, GZIP_MAGIC
from foretrace.model.words import bytes_of
from foretrace.report.text import clean, cut
from foretrace.trace.inflate import inflated_head, inflated_size, is_packed

__all__ = ["Root", "Stamp"]

_LONGEST_PATH = 4096

_ODD_FILES = (
    (stat.S_ISDIR, "a folder; name a file in it (list_files lists them)"),
    (stat.S_ISFIFO, "a pipe; only regular files are read"),
    (stat.S_ISCHR, "a device; only regular files are read"),
    (stat.S_ISBLK, "a device; only regular files are read"),
    (stat.S_ISSOCK, "a socket; only regular files are read"),
)


@dataclass(frozen=True)
class Stamp:
    """What tells one state of a file from another."""

    device: int
    inode: int
    size: int
    changed_ns: int


class Root:
    """A folder, and the largest file that is read from it (bytes, unpacked)."""

    def __init__(self, folder: str | os.PathLike[str], *, max_bytes: int) -> None:
        try:
            self.folder = Path(folder).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise InputError(f"--root {clean(str(folder))}: there is no such folder") from None
        if not self.folder.is_dir():
            raise InputError(f"--root {clean(str(folder))} is no folder; name the folder that holds the traces")
        self.max_bytes = max_bytes

    def file(self, path: str) -> str:
        """The name of a regular file, relative to the root with its links followed; raises `InputError` otherwise."""
        real = self._inside(path)
        shown = _shown(path)
        found = self._stat(real, shown)
        odd = next((what for test, what in _ODD_FILES if test(found.st_mode)), None)
        if odd is not None:
            raise InputError(f"{shown} is {odd}")
        if not os.access(real, os.R_OK):
            raise InputError(f"{shown} may not be read by the server; check its permissions")
        if found.st_size > self.max_bytes:
            raise InputError(f"{shown} is larger than this server reads ({self._limit()})")
        return real.relative_to(self.folder).as_posix()

    def directory(self, path: str) -> Path:
        """A folder inside the root, absolute and with its links followed; raises `InputError` otherwise."""
        real = self._inside(path)
        if not stat.S_ISDIR(self._stat(real, _shown(path)).st_mode):
            raise InputError(f"{_shown(path)} is no folder; name one, or leave folder out for the whole root")
        return real

    def beside(self, name: str) -> None:
        """Refuse a file beside one that is read, unless it is absent or may be read as well."""
        if os.path.lexists(self.folder / name):
            self.file(name)

    def stamp(self, name: str) -> Stamp | None:
        """The state of a file by its name relative to the root; None where it is absent."""
        try:
            found = (self.folder / name).stat()
        except OSError:
            return None
        return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def check_content(self, name: str) -> None:
        """Raise `InputError` where a packed file holds more than may be read, before it is read whole."""
        path = self.folder / name
        if path.stat().st_size * DEFLATE_RATIO <= self.max_bytes:
            return
        with path.open("rb") as file:
            if not is_packed(file):
                return
            if inflated_head(file.read, len(GZIP_MAGIC))[0] == GZIP_MAGIC:
                raise InputError(f"{_shown(name)} is packed with gzip more than once; unpack it first")
            file.seek(0)
            # Of a damaged file the reader says what is wrong, and reads no more than what is counted here.
            if inflated_size(file.read, self.max_bytes) > self.max_bytes:
                raise InputError(f"{_shown(name)} holds more, unpacked, than this server reads ({self._limit()})")

    def _limit(self) -> str:
        return f"{bytes_of(self.max_bytes)}; start it with a larger --max-bytes, or cut the file to fewer steps"

    def _inside(self, path: str) -> Path:
        """The path with every link followed; raises `InputError` where it is none, or leaves the root."""
        if not path.strip():
            raise InputError("an empty path was given; name a file below the root (list_files lists them)")
        if "\0" in path or len(path) > _LONGEST_PATH:
            raise InputError("the path is no valid file name: it holds a NUL or is too long")
        if path == "-":
            raise InputError("standard input belongs to the protocol; name a file below the root")
        shown, pure = _shown(path), PurePath(path)
        if ".." in pure.parts:
            raise InputError(f"{shown} holds '..'; name files below the root by their path from it")
        if pure.is_absolute() and not pure.is_relative_to(self.folder):
            raise InputError(f"{shown} lies outside of the root; name files by their path from the root")
        try:
            real = Path(os.path.realpath(self.folder / pure))
        except (OSError, ValueError):
            raise InputError(f"{shown} is no valid file name") from None
        if not real.is_relative_to(self.folder):
            raise InputError(f"{shown} is a link that leaves the root; only files below the root are read")
        return real

    def _stat(self, real: Path, shown: str) -> os.stat_result:
        try:
            return real.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(f"{shown}: no such file below the root; list_files lists what there is") from None
        except PermissionError:
            raise InputError(f"{shown} may not be read by the server; check its permissions") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{shown} cannot be read: {getattr(error, 'strerror', None) or 'invalid name'}") from None


def _shown(path: str) -> str:
    return cut(path, 200, "middle")
