"""Small files of ours that are written whole or not at all; and what no file of ours may ever take the place of."""

from __future__ import annotations

import errno
import secrets
import stat
from pathlib import Path
from typing import Final

__all__ = ["special_file", "write_whole"]

# What `stat` says a path is, in words.
_KINDS: Final = {
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}
# The kernel's own folders (Linux, FHS 3.0): a link in them is the system's, such as /dev/stdout, whatever it points to.
_DEVICES: Final = Path("/dev")
_PROCESSES: Final = Path("/proc")


def special_file(path: Path) -> str | None:
    """What is there in place of a regular file: ``a device``, ``a named pipe``, ``a socket``; None where nothing is.

    A link is what it points to. A file that takes the name of such a thing would end it for the whole machine.
    Folders are none, and what cannot be looked at is none. Raises nothing.
    """
    try:
        folder = path.parent.resolve()
        if path.is_symlink() and (folder == _DEVICES or folder.is_relative_to(_PROCESSES)):
            return "a link of the system"
        return _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    except (OSError, RuntimeError, ValueError):  # not there; a link to itself; a name with a null byte
        return None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a name of its own, which takes the lasting one at the end; replaces a file that is there.

    The name is like no other's: several processes may write into the same folder. Raises ``OSError``, also where the
    path is a device, a pipe or a socket: those are never replaced.
    """
    special = special_file(path)
    if special is not None:
        raise OSError(errno.EINVAL, f"it is {special}, no regular file", str(path))
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
