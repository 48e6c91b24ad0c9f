"""Files that several processes read and write at once, without locks."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["keep_first", "write_atomically"]


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old text or the new one, never a part; raises ``OSError``."""
    temporary = _temporary(path, text)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def keep_first(path: Path, text: str) -> bool:
    """Write a file unless there is one; say whether it was written. Raises ``OSError``.

    Of processes that come at once exactly one succeeds, as a hard link can be made once only. Where the file system
    has none, the last one wins.
    """
    temporary = _temporary(path, text)
    try:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:
            temporary.replace(path)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def _temporary(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # mkstemp lets only the owner read; a table or a shared cache is for everyone whom the umask admits
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    return Path(name)
