"""What in a folder is worth sharing, and why the rest is left out."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from foretrace.errors import InputError
from foretrace.knowledge.formats import PAGES, FileKind
from foretrace.knowledge.sharing import FOLDERS_LEFT_OUT, Kind
from foretrace.trace.kinds import look, plain_ending

__all__ = ["Item", "LeftOut", "Plan", "Unseen", "collect", "tidy_prefix"]

_KINDS = {
    FileKind.TRACE: Kind.TRACE,
    FileKind.TABLE: Kind.TABLE,
    FileKind.REPORT: Kind.DOCUMENT,
    FileKind.SIDE_FILE: Kind.DOCUMENT,
    FileKind.DOCUMENT: Kind.DOCUMENT,
    FileKind.PAGE: Kind.REPORT,
    FileKind.SNAPSHOT: Kind.SNAPSHOT,
}
_NO_TRACE, _NO_PAGE = "neither a trace nor a file of foretrace's", "no report of foretrace's"
_NO_KIND = {"json": _NO_TRACE, "trace": _NO_TRACE, "txt": "no table of the profiler", **dict.fromkeys(PAGES, _NO_PAGE)}
_OTHER = "of no kind that is shared by itself"


@dataclass(frozen=True)
class Item:
    """One file that would be uploaded: ``source`` here, ``path`` in the bucket, its size in bytes."""

    source: Path
    path: str
    bytes: int
    kind: Kind


@dataclass(frozen=True)
class LeftOut:
    """One file that stays here, and why; ``path`` is relative to the folder."""

    path: str
    reason: str


@dataclass(frozen=True)
class Unseen:
    """A path that may hold files nobody looked at: ``path`` as it would be in the bucket, "" for everything there.

    ``odd``: its name is not valid UTF-8, so that its path in a bucket cannot be told.
    """

    path: str
    reason: str
    odd: bool = False


@dataclass(frozen=True)
class Plan:
    """What of a folder would be uploaded.

    ``local``: every path that the folder could fill, left out or not. ``unseen``: where more may be that was not
    looked at. ``renamed``: the paths are those of redacted copies.
    """

    folder: Path
    items: list[Item]
    left_out: list[LeftOut] = field(default_factory=list)
    local: frozenset[str] = frozenset()
    unseen: tuple[Unseen, ...] = ()
    prefix: str = ""
    renamed: bool = False

    @property
    def bytes(self) -> int:
        """Size of all items."""
        return sum(item.bytes for item in self.items)


def collect(
    folder: str | Path,
    *,
    prefix: str = "",
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    snapshots: bool = False,
) -> Plan:
    """Walk a folder and decide file by file, by content.

    Traces, profiler tables, foretrace's JSON files and HTML reports are taken; ``snapshots`` adds memory snapshots.
    With ``include`` only files that match one of its patterns are taken, and those whatever they are; ``exclude`` goes
    before everything. A pattern is held against the path in the folder and against the name alone.
    Raises `InputError` for what is no folder, and for a prefix that is no path.
    """
    root = Path(folder)
    if not root.exists():
        raise InputError(f"{root}: no such folder; check the path")
    if not root.is_dir():
        raise InputError(f"{root} is a file; name the folder that holds it, and --include its name for it alone")
    prefix = tidy_prefix(prefix)
    items: list[Item] = []
    left: list[LeftOut] = []
    local: set[str] = set()
    unseen: list[Unseen] = []

    def not_seen(name: str, reason: str, *, listed: str | None = None) -> None:
        odd = not _is_text(name)
        left.append(LeftOut(_shown(name if listed is None else listed), reason))
        unseen.append(Unseen(prefix + name if name else prefix.rstrip("/"), reason, odd))

    for path in _files(root, not_seen):
        name = path.relative_to(root).as_posix()
        if not _is_text(name):
            not_seen(name, "its name is not valid UTF-8")
            continue
        local.add(prefix + name)
        try:
            kind, reason = _decided(path, name, root, include, exclude, snapshots)
            size = path.stat().st_size if kind is not None else 0
            plain = path.is_file()
        except (OSError, RuntimeError) as error:  # links in a circle are a RuntimeError until Python 3.13
            kind, reason, size, plain = None, _unreadable(error), 0, False
        if kind is not None:
            items.append(Item(path, prefix + name, size, kind))
        elif plain:
            left.append(LeftOut(name, reason))
        else:  # as a link that leads nowhere today, it may have been a folder
            not_seen(name, reason)
    return Plan(root, items, left, frozenset(local), tuple(unseen), prefix)


def refuse_unsendable(items: Sequence[Item]) -> None:
    """Raise `InputError` where a file lies in a place whose name is no text: the Hub's library could not open it."""
    for item in items:
        if not _is_text(str(item.source.absolute())):
            place = _shown(str(item.source.absolute().parent))
            raise InputError(
                f"{place}: the name of this folder is not valid UTF-8, and files in it cannot be uploaded; rename it, "
                "or share a link to it that has a plain name"
            )


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def _unreadable(error: OSError | RuntimeError) -> str:
    if isinstance(error, RuntimeError) or error.errno == errno.ELOOP:
        return "a link that leads in a circle"
    return f"it cannot be read: {error.strerror or type(error).__name__}"


def tidy_prefix(prefix: str) -> str:
    """The prefix as a folder in the bucket: "" or with a slash at its end. Raises `InputError` for what is no path."""
    if not prefix.strip("/"):
        return ""
    parts = prefix.strip("/").split("/")
    if any(part in ("", ".", "..") or "\\" in part or not part.isprintable() for part in parts):
        raise InputError(f"--prefix {prefix!r} is no folder in a bucket; write it like runs/today")
    return "/".join(parts) + "/"


def renamed(plan: Plan, paths: Sequence[str]) -> Plan:
    """The plan with other paths in the bucket, each once: what would take a name twice gets a number."""
    taken: set[str] = set()
    items = []
    for item, path in zip(plan.items, paths, strict=True):
        wanted, number = PurePosixPath(path), 1
        stem, dot, ending = wanted.name.partition(".")
        while path in taken:
            number += 1
            path = str(wanted.with_name(f"{stem}-{number}{dot}{ending}"))
        taken.add(path)
        items.append(replace(item, path=path))
    return replace(plan, items=items)


def _files(root: Path, not_seen: Callable[..., None]) -> Iterator[Path]:
    def failed(error: OSError) -> None:
        name = Path(error.filename).relative_to(root).as_posix() if error.filename else "."
        # The folder itself: nothing is known of what it holds.
        not_seen("" if name == "." else name, _unreadable(error), listed=name)

    for place, folders, files in os.walk(root, onerror=failed):
        here = Path(place)
        skipped = sorted(n for n in folders if n.startswith(".") or n in FOLDERS_LEFT_OUT)
        linked = sorted(n for n in folders if n not in skipped and (here / n).is_symlink())
        for names, reason in ((skipped, "a hidden folder or a cache"), (linked, "a link to a folder")):
            for name in ((here / n).relative_to(root).as_posix() for n in names):
                not_seen(name, reason, listed=f"{name}/")
        folders[:] = sorted(set(folders) - set(skipped) - set(linked))
        yield from (here / name for name in sorted(files))


def _decided(
    path: Path, name: str, root: Path, include: Sequence[str], exclude: Sequence[str], snapshots: bool
) -> tuple[Kind | None, str]:
    """The kind of a file that is taken; None with the reason why it is not."""
    if _matches(name, exclude):
        return None, "excluded"
    if include and not _matches(name, include):
        return None, "not among --include"
    if path.is_symlink():
        with suppress(FileNotFoundError):
            path.stat()  # raises where links lead in a circle
        if not path.resolve().is_relative_to(root.resolve()):
            return None, "a link out of the folder"
    if not path.is_file():
        return None, "no regular file"
    if path.name.startswith(".") and not include:
        return None, "hidden"
    if path.stat().st_size == 0:
        return None, "empty"
    if not os.access(path, os.R_OK):
        return None, "it may not be read by this user"
    kind, reason = _kind_of(path)
    if kind is Kind.SNAPSHOT and not snapshots and not include:
        return None, "a memory snapshot holds stacks and paths of the program: --snapshots takes it as well"
    return (kind or Kind.OTHER, "") if kind or include else (None, reason)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(
        fnmatchcase(name, pattern) or fnmatchcase(name.rpartition("/")[2], pattern) or fnmatchcase(name, f"{pattern}/*")
        for pattern in (one.rstrip("/") for one in patterns)
    )


def _kind_of(path: Path) -> tuple[Kind | None, str]:
    """What the file is by its name and its first bytes; None with the reason it is nothing that is shared by itself."""
    found = look(path)
    kind = _KINDS.get(found.kind) if found.kind is not None else None
    if found.wrong is not None and kind is not Kind.SNAPSHOT:
        return None, f"damaged ({found.wrong}); --include takes it"
    if kind is None:
        return None, f"{_NO_KIND.get(plain_ending(path.name), _OTHER)}; --include takes it"
    return kind, ""
