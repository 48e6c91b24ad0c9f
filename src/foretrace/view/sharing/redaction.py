"""What one string of a trace says of a person or a machine, taken out of it.

The same string always becomes the same one, and what has been taken out stays out when it is done again.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import lru_cache
from urllib.parse import quote, unquote

from foretrace.knowledge import sharing as facts
from foretrace.knowledge.sharing import PLACEHOLDERS, Category
from foretrace.view.sharing.trade import known_keys, trade_words

__all__ = ["TELLING_KEYS", "Redactor", "names_of_this_machine"]

# Names shorter than this are words of their own too often.
_SHORTEST_NAME = 3
_REMEMBERED = 1 << 16
_PLAIN_STRING = re.compile(r'"[^"\\]*"')
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|\\U000([0-9a-fA-F]{5})|\\(/)|\\(057)(?!\d)")
_WORD = r"(?<![A-Za-z0-9])(?:{})(?![A-Za-z0-9])"
_FOLDER = r"(?<=[/\\])(?:{})(?=[/\\])"


def names_of_this_machine() -> tuple[set[str], set[str]]:
    """Names of whoever runs this, and of the machine it runs on: (users, hosts)."""
    users = {os.environ.get(key, "") for key in ("LOGNAME", "USER", "USERNAME")}
    with suppress(KeyError, OSError):  # a user without an entry, as in containers
        users.add(getpass.getuser())
    host = socket.gethostname()
    return users - {""}, {host, host.partition(".")[0]} - {""}


class Redactor:
    """Takes the chosen categories out of strings, and counts what it took.

    ``learn`` first every string there is: a name that one path gives away is then taken out of all of them. ``users``
    and ``hosts`` are names known beforehand. ``counts`` holds how many pieces of each category were replaced.
    """

    def __init__(
        self, categories: Collection[Category], *, users: Iterable[str] = (), hosts: Iterable[str] = ()
    ) -> None:
        self.categories = frozenset(categories)
        self.counts: Counter[Category] = Counter()
        self._users: set[str] = set()
        self._hosts: set[str] = set()
        self._doubtful: set[str] = set()  # names that are words as well: taken out of paths only
        self._doubtful_hosts: set[str] = set()
        self._add(users, self._users)
        self._add(hosts, self._hosts)
        self._prepare()

    @property
    def doubtful(self) -> list[str]:
        """Names that are words of traces as well: taken out only where a path or a key says that they are names."""
        return sorted(name for name in self._doubtful | self._doubtful_hosts if name.lower() not in facts.ACCOUNTS)

    def _add(self, names: Iterable[str], known: set[str]) -> bool:
        """Take names in, in every form that they are written in; whether any of them is new."""
        before = len(known) + len(self._doubtful)
        for name in names:
            for form in _forms(name):
                if _tells(form):
                    known.add(form)
                elif _is_word(form) and form not in PLACEHOLDERS.values():
                    (self._doubtful if known is self._users else self._doubtful_hosts).add(form)
        return len(known) + len(self._doubtful) > before

    def _prepare(self) -> None:
        users = Category.USERS in self.categories
        self._user_words = _words(self._users) if users else None
        self._host_words = _words(self._hosts) if users else None
        self._user_folders = _words(self._users | self._doubtful, _FOLDER) if users else None
        self._suspect = self._suspects()
        self._clean: set[str] = set()  # strings that no rule applies to
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._redacted)

    def learn(self, text: str) -> None:
        """Note the names of users and machines that the text gives away."""
        text = _unescaped(text)
        users = {match["user"] for match in facts.USER_IN_PATH.finditer(text)}
        # Below a shared root stands a project's name as often as a user's: one that is a word says nothing.
        users |= {match["user"] for match in facts.OWNER_IN_PATH.finditer(text) if _tells(match["user"])}
        hosts = {match["host"] for match in facts.TENSORBOARD_FILE.finditer(text)}
        for match in facts.MAIL.finditer(text):
            if _is_address(match):
                users.add(match["user"])
                hosts.add(match["host"])
        for match in facts.REPOSITORY.finditer(text):
            owner = _owner(match[0])
            users |= {owner} if owner and _tells(owner) else set()
        if self._add(users, self._users) | self._add(hosts, self._hosts):
            self._prepare()

    def learn_value(self, key: str, text: str) -> None:
        """As ``learn``, for the value of a key (in lower case) that may say that it is a name."""
        self.learn(text)
        name = _unescaped(text).strip()
        known = self._users if key in facts.USER_KEYS else self._hosts if key in facts.HOST_KEYS else None
        if known is not None and len(name.split()) <= 2 and self._add([name], known):
            self._prepare()

    def is_suspect(self, raw: str) -> bool:
        """Whether anything in a piece of JSON could be replaced; False is certain."""
        if "\\" in raw:  # an escape may spell anything
            return True
        return not all(map(self.is_clean, set(_PLAIN_STRING.findall(raw)) - self._clean))

    def is_clean(self, string: str) -> bool:
        """Whether no rule applies to a JSON string (with its quotes), wherever but under a telling key it stands."""
        if string in self._clean:
            return True
        if self._suspect.search(string) or string[1:-1].lower() in TELLING_KEYS:
            return False
        if len(self._clean) >= _REMEMBERED:
            self._clean.clear()
        self._clean.add(string)
        return True

    def redact(self, text: str, keys: Iterable[str] = (), *, paths_only: bool = False) -> str:
        """The text without what was chosen; ``keys`` are those it stands under, in lower case, the nearest last.

        ``paths_only`` is for what names work, such as kernels: only what holds a path is taken out of it.
        """
        told = tuple(key for key in keys if key in TELLING_KEYS)
        result, counts = self._remembered(text, told, paths_only)
        for category, count in counts:
            self.counts[category] += count
        return result

    def redact_name(self, path: str) -> str:
        """A file's path in the bucket without names of users and machines; its folders stay."""
        if Category.USERS not in self.categories:
            return path
        parts = [self._names_out(part, Counter()) for part in path.split("/")]
        return "/".join(part if part.strip(". ") else "file" for part in parts)

    def _redacted(
        self, text: str, keys: tuple[str, ...], paths_only: bool
    ) -> tuple[str, tuple[tuple[Category, int], ...]]:
        counts: Counter[Category] = Counter()
        flat = _unescaped(text)
        new = self._by_key(flat, keys, counts)
        if new is None:
            new = self._places_out(flat, counts) if paths_only else self._by_content(flat, counts)
        return (new if new != flat else text), tuple(counts.items()) if new != flat else ()

    def _by_key(self, text: str, keys: tuple[str, ...], counts: Counter[Category]) -> str | None:
        for kinds, category, placeholder in _BY_KEY:
            if category in self.categories and text and not kinds.isdisjoint(keys):
                counts[category] += text != PLACEHOLDERS[placeholder]
                return PLACEHOLDERS[placeholder]
        return None

    def _by_content(self, text: str, counts: Counter[Category]) -> str:
        wanted = self.categories
        if Category.COMMANDS in wanted:
            text = _count(facts.CREDENTIAL, PLACEHOLDERS["command"], text, counts, Category.COMMANDS)
            text = _count(facts.COMMAND_LINE, PLACEHOLDERS["command"], text, counts, Category.COMMANDS)
        if Category.STACKS in wanted:
            text = _count(facts.FRAME, PLACEHOLDERS["frame"], text, counts, Category.STACKS)
        if Category.PATHS in wanted:
            text = _count(facts.REPOSITORY, PLACEHOLDERS["repository"], text, counts, Category.PATHS)
        text = self._places_out(text, counts)
        if Category.USERS in wanted:
            text = self._names_out(text, counts)
        return text

    def _places_out(self, text: str, counts: Counter[Category]) -> str:
        if Category.PATHS in self.categories:
            text = self._paths_out(text, counts)
        if Category.USERS in self.categories:
            text = self._owners_out(text, counts)
        return text

    def _paths_out(self, text: str, counts: Counter[Category]) -> str:
        def shortened(match: re.Match[str]) -> str:
            whole, last = match[0], match["last"]
            if not match["folders"] and not whole.startswith(("~", "..", "$", "%", "\\\\")) and whole[1:2] != ":":
                return whole  # one part alone names no place
            owners = (facts.USER_IN_PATH.search(whole), facts.OWNER_IN_PATH.search(whole))
            if any(owner and owner.end() == len(whole) for owner in owners):
                last = PLACEHOLDERS["home"]
            counts[Category.PATHS] += 1
            return last or PLACEHOLDERS["folder"]

        for pattern in (facts.WINDOWS_PATH, facts.PATH, facts.FOREIGN_PATH):
            text = pattern.sub(shortened, text)
        return text

    def _owners_out(self, text: str, counts: Counter[Category]) -> str:
        """The text without the names of users in its paths."""

        def owner(match: re.Match[str]) -> str:
            if match["user"] == PLACEHOLDERS["user"]:
                return match[0]
            counts[Category.USERS] += 1
            return match[0][: match.start("user") - match.start()] + PLACEHOLDERS["user"]

        def sharer(match: re.Match[str]) -> str:
            return owner(match) if _tells(match["user"]) or match["user"] in self._doubtful else match[0]

        text = facts.USER_IN_PATH.sub(owner, text)
        text = facts.OWNER_IN_PATH.sub(sharer, text)
        if self._user_folders:
            text = _count(self._user_folders, PLACEHOLDERS["user"], text, counts, Category.USERS)
        return text

    def _names_out(self, text: str, counts: Counter[Category]) -> str:
        def maker(match: re.Match[str]) -> str:
            counts[Category.USERS] += 1
            return (
                match[0][: match.start("host") - match.start()]
                + PLACEHOLDERS["host"]
                + match[0][match.end("host") - match.start() :]
            )

        def mail(match: re.Match[str]) -> str:
            if not _is_address(match):
                return match[0]
            new = f"{PLACEHOLDERS['user']}@{PLACEHOLDERS['host']}"
            counts[Category.USERS] += match[0] != new
            return new

        def repository(match: re.Match[str]) -> str:
            name = _owner(match[0])
            if name is None or name == PLACEHOLDERS["user"]:
                return match[0]
            counts[Category.USERS] += 1
            return match[0].replace(name, PLACEHOLDERS["user"])

        text = facts.REPOSITORY.sub(repository, text)
        text = _count(facts.URL_LOGIN, f"{PLACEHOLDERS['user']}@", text, counts, Category.USERS)
        text = facts.MAIL.sub(mail, text)
        if facts.TENSORBOARD_FILE.search(text):
            text = facts.TENSORBOARD_FILE.sub(lambda m: m[0] if m["host"] == PLACEHOLDERS["host"] else maker(m), text)
        text = _count(facts.NETWORK_ADDRESS, PLACEHOLDERS["host"], text, counts, Category.USERS)
        if self._user_words:
            text = _count(self._user_words, PLACEHOLDERS["user"], text, counts, Category.USERS)
        if self._host_words:
            text = _count(self._host_words, PLACEHOLDERS["host"], text, counts, Category.USERS)
        return text

    def _suspects(self) -> re.Pattern[str]:
        """What a string must hold for any rule to apply to it."""
        parts = [r"[\\/~@%]"]
        if Category.USERS in self.categories:
            parts += [r"\d\.\d+:\d", "torchinductor_", "torch_extensions_", r"\.pt\.trace"]
            parts.extend(re.escape(name) for name in sorted(self._users | self._hosts | self._doubtful))
        if Category.STACKS in self.categories:
            parts += [r"\.py", r">(?:\.\d+)?\(", "python.?function"]
        if Category.COMMANDS in self.categories:
            parts += [r"\s-", "=", r"\.py", r"\.sh", facts.CREDENTIAL.pattern]
        return re.compile("|".join(parts), re.IGNORECASE)


_BY_KEY = (
    (facts.COMMAND_KEYS, Category.COMMANDS, "command"),
    (facts.STACK_KEYS, Category.STACKS, "frame"),
    (facts.USER_KEYS, Category.USERS, "user"),
    (facts.HOST_KEYS, Category.USERS, "host"),
)
TELLING_KEYS = facts.COMMAND_KEYS | facts.STACK_KEYS | facts.USER_KEYS | facts.HOST_KEYS


def _tells(name: str) -> bool:
    """Whether a name is one that can be taken out wherever it stands as a word."""
    common = name.lower() in trade_words() or name in known_keys() or facts.DEVICE_NAME.fullmatch(name)
    return _is_word(name) and not common


def _is_word(name: str) -> bool:
    return len(name) >= _SHORTEST_NAME and not name.isdecimal()


def _forms(name: str) -> set[str]:
    """The name as it is written elsewhere: letters with their accents in one piece or two, and as in URLs."""
    plain = unquote(name) if "%" in name else name
    composed = {unicodedata.normalize(form, plain) for form in ("NFC", "NFD")}
    forms = {name, plain, *composed}
    if not plain.isascii():
        forms |= {quote(form, errors="surrogatepass") for form in composed}
    return forms - {""}


def _is_address(match: re.Match[str]) -> bool:
    """Whether NAME@HOST names an account: a host without a dot may as well be what a kernel was built for."""
    host = match["host"]
    if "." in host:
        return True
    user = match["user"]
    account = user in facts.ACCOUNTS or (facts.LOGIN.fullmatch(user) is not None and user not in trade_words())
    return account and _tells(host)


def _owner(address: str) -> str | None:
    """Whose a repository is: the part of its address before its name."""
    parts = re.split(r"[/:]+", address.partition("://")[2].partition("/")[2] or address.partition(":")[2])
    return parts[0] if len(parts) > 1 and parts[0] else None


def _words(names: Collection[str], pattern: str = _WORD) -> re.Pattern[str] | None:
    if not names:
        return None
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return re.compile(pattern.format("|".join(map(re.escape, longest_first))), re.IGNORECASE)


def _count(pattern: re.Pattern[str], new: str, text: str, counts: Counter[Category], category: Category) -> str:
    """Replace every match; what is replaced already is not counted again."""

    def once(match: re.Match[str]) -> str:
        counts[category] += match[0] != new
        return new

    return pattern.sub(once, text)


def _unescaped(text: str) -> str:
    r"""The text with ``\uXXXX``, ``\xXX`` and ``\/`` spelled out, however often they were escaped (JSON in JSON)."""
    for _ in range(8):
        if "\\" not in text:
            break
        plain = _ESCAPED.sub(
            lambda match: match[4] or (match[5] and "/") or chr(int(match[1] or match[2] or match[3], 16)), text
        )
        if plain == text:
            break
        text = plain
    return text
