"""A bucket of the Hugging Face Hub: what it holds, and how files get there and leave it.

The calls are huggingface_hub's (create_bucket, bucket_info, list_bucket_tree, batch_bucket_files); data goes through
hf_xet into the content store, and a call names it in the bucket afterwards. That is why a file is either there whole or
not at all, and why doing it again costs little.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import quote

from foretrace.errors import InputError, MissingExtraError, SharingError
from foretrace.knowledge import sharing as facts
from foretrace.view.sharing.failures import RateLimitedError, explained, no_token, secrets_of, status_of, without_login
from foretrace.view.sharing.planning import Item, refuse_unsendable

__all__ = ["Hub", "Remote", "RemoteFile", "Standing"]

T = TypeVar("T")


@dataclass(frozen=True)
class RemoteFile:
    """One file in a bucket: its size in bytes and the hash of its content in the store."""

    bytes: int
    hash: str


@dataclass(frozen=True)
class Remote:
    """A bucket as it was found; ``private`` is None where there is none yet."""

    bucket: str
    exists: bool
    private: bool | None
    files: dict[str, RemoteFile] = field(default_factory=dict)


@dataclass(frozen=True)
class Standing:
    """How local files stand to those in the bucket.

    ``new``: not there. ``same``: there with this content. ``other``: there with another content.
    """

    new: list[Item]
    same: list[Item]
    other: list[Item]


class Hub:
    """One bucket, for the time of a ``with`` block.

    ``bucket`` is NAME or NAMESPACE/NAME; without a namespace it is the user's own. The token is the one that
    huggingface_hub finds (HF_TOKEN, `hf auth login`). ``tell`` hears one line wherever it waits.
    Raises `MissingExtraError` without huggingface_hub, `InputError` for a name no bucket can have, and `SharingError`
    from every method for what the Hub or the network refuses.
    """

    def __init__(
        self, bucket: str, *, endpoint: str | None = None, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        bucket = bucket.removeprefix("hf://").removeprefix("buckets/").rstrip("/")
        if not facts.BUCKET_NAME.fullmatch(bucket):
            raise InputError(f"--bucket {bucket!r} is no name of a bucket; write NAME or NAMESPACE/NAME")
        try:
            import huggingface_hub
            from huggingface_hub import HfApi
        except ImportError:
            raise MissingExtraError(
                "sharing needs huggingface_hub, which is not installed; run: pip install 'foretrace[share]'"
            ) from None
        if not hasattr(HfApi, "batch_bucket_files"):
            raise MissingExtraError(
                f"huggingface_hub {huggingface_hub.__version__} knows no buckets; run: "
                "pip install -U 'foretrace[share]'"
            )
        self.api = HfApi(endpoint=endpoint)
        # Links and sentences are for others to read: a login in the address is for the connection alone.
        self.endpoint: str = without_login(self.api.endpoint)
        self._secrets = secrets_of(self.api.endpoint)
        self.bucket = bucket
        self._tell = tell
        self._waited = 0.0
        self.uploaded: list[Item] = []

    def __enter__(self) -> Hub:
        self._quiet = _careful_client()
        self._quiet.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._quiet.__exit__(None, None, None)

    def look(self, prefix: str = "") -> Remote:
        """Find out whether the bucket is there, who may see it, and what it holds below ``prefix``."""
        from huggingface_hub import get_token

        token = self._ask(get_token)
        if token is None:
            raise no_token()
        self._secrets = self._secrets | {token}
        if not token.isascii() or not token.isprintable() or " " in token:
            # It could not be sent, and the client's message about that would hold it.
            raise SharingError("the token holds characters that no token has; set HF_TOKEN, or log in, again")
        if "/" not in self.bucket:
            self.bucket = f"{self._ask(self.api.whoami)['name']}/{self.bucket}"
        try:
            info = self._ask(lambda: self.api.bucket_info(self.bucket))
        except SharingError as error:
            if error.__cause__ is not None and status_of(error.__cause__) == 404:
                return Remote(self.bucket, exists=False, private=None)
            raise
        entries = self._ask(
            lambda: list(self.api.list_bucket_tree(self.bucket, prefix=prefix.rstrip("/") or None, recursive=True))
        )
        files = {e.path: RemoteFile(e.size, e.xet_hash) for e in entries if e.type == "file"}
        return Remote(self.bucket, True, info.private, {p: f for p, f in files.items() if p.startswith(prefix)})

    def compare(self, items: Sequence[Item], remote: Remote) -> Standing:
        """Sort the items by what the bucket has under their names; contents are compared by the store's own hash."""
        there = [item for item in items if item.path in remote.files]
        refuse_unsendable(there)
        alike = [item for item in there if remote.files[item.path].bytes == item.bytes]
        hashes = dict(zip((item.path for item in alike), _hashes(alike), strict=True))
        same = [item for item in alike if hashes[item.path] == remote.files[item.path].hash]
        known = {item.path for item in same}
        return Standing(
            new=[item for item in items if item.path not in remote.files],
            same=same,
            other=[item for item in there if item.path not in known],
        )

    def create(self, *, private: bool) -> bool:
        """Make the bucket, or find it made meanwhile; returns whether it is private, as the Hub then says."""
        # None leaves an organisation that makes everything private its way; public is the Hub's own default.
        self._ask(lambda: self.api.create_bucket(self.bucket, private=True if private else None, exist_ok=True))
        return bool(self._ask(lambda: self.api.bucket_info(self.bucket)).private)

    def upload(self, items: Sequence[Item], moved: Callable[[int, int], None] | None = None) -> None:
        """Upload in small batches; what is up after each is in ``uploaded``, also when a later one fails.

        ``moved`` is called with files done and files in all. Raises `InputError` for a place that cannot be named.
        """
        refuse_unsendable(items)
        for batch in _batches(items):
            if moved:
                moved(len(self.uploaded), len(items))
            add: list[Any] = [(item.source, item.path) for item in batch]
            try:
                self._ask(lambda add=add: self.api.batch_bucket_files(self.bucket, add=add))  # type: ignore[misc]
            except SharingError as error:
                failed = {f.get("path") for f in getattr(error.__cause__, "failures", None) or ()}
                if failed:  # the rest of the batch was taken
                    self.uploaded.extend(item for item in batch if item.path not in failed)
                raise
            self.uploaded.extend(batch)
        if moved:
            moved(len(self.uploaded), len(items))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files from the bucket."""
        self._ask(lambda: self.api.batch_bucket_files(self.bucket, delete=list(paths)))

    def url(self, path: str) -> str:
        """Where a file of the bucket is fetched; its path is quoted, its slashes stay."""
        return facts.RESOLVE.format(endpoint=self.endpoint, bucket=self.bucket, path=quote(path, safe="/"))

    @property
    def page(self) -> str:
        """The bucket's page."""
        return f"{self.endpoint}/buckets/{self.bucket}"

    def _ask(self, call: Callable[[], T]) -> T:
        """Make a call; wait where the Hub asks for it, and put whatever goes wrong into a sentence."""
        expected: tuple[type[Exception], ...] = (
            RateLimitedError,
            OSError,
            RuntimeError,
            ValueError,
            KeyError,
            TypeError,
        )
        expected += _http_errors()
        while True:
            try:
                return call()
            except expected as error:
                wait = self._wait_for(error)
                if wait is None:
                    raise explained(error, self.bucket, self.endpoint, self._secrets) from error
                self._tell(f"the Hub asks to wait {wait:.0f} s")
                time.sleep(wait)
                self._waited += wait

    def _wait_for(self, error: Exception) -> float | None:
        """Seconds to wait before the same call is made again; None where that would not help or take too long."""
        if not isinstance(error, RateLimitedError) and status_of(error) != 429:
            return None
        seconds = getattr(error, "seconds", None)
        wait = facts.RATE_LIMIT_WAIT_S if seconds is None else seconds + 1  # told in whole seconds, rounded down
        return wait if self._waited + wait <= facts.RATE_LIMIT_PATIENCE_S else None


def _batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    size = 0
    for item in items:
        if batch and (len(batch) == facts.BATCH_FILES or size + item.bytes > facts.BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.bytes
    if batch:
        yield batch


def _hashes(items: Sequence[Item]) -> list[str | None]:
    """The store's hash of each file; None where this hf_xet cannot say it, which then counts as another content."""
    if not items:
        return []
    try:
        hash_files = import_module("hf_xet").hash_files
    except (ImportError, AttributeError):
        return [None] * len(items)
    return [str(info.hash) for info in hash_files([str(item.source) for item in items])]


def _http_errors() -> tuple[type[Exception], ...]:
    """Bases of the errors of huggingface_hub's client, httpx or the library that took its place."""
    from huggingface_hub.errors import HfHubHTTPError

    base = next((base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError"), HfHubHTTPError)
    no_address = getattr(import_module(base.__module__.partition(".")[0]), "InvalidURL", None)
    return (base, no_address) if no_address is not None else (base,)


@contextmanager
def _careful_client() -> Iterator[None]:
    """huggingface_hub with timeouts, without its progress bars and retry notes, and with 429 brought to us.

    By itself it waits as long as a server says, unbounded, and for an answer for ever.
    """
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils import _http as http
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    factory = getattr(http, "_GLOBAL_CLIENT_FACTORY", None) or http.default_client_factory

    def careful() -> Any:
        client: Any = factory()
        if client.timeout.read is None:
            client.timeout = type(client.timeout)(facts.RESPONSE_TIMEOUT_S, connect=facts.CONNECT_TIMEOUT_S)
        hooks = client.event_hooks
        client.event_hooks = {**hooks, "response": [*hooks.get("response", ()), _stop_at_limit]}
        return client

    notes = logging.getLogger("huggingface_hub")
    level, bars = notes.level, not are_progress_bars_disabled()
    set_client_factory(careful)
    notes.setLevel(logging.ERROR)
    if bars:
        disable_progress_bars()
    try:
        yield
    finally:
        set_client_factory(factory)
        notes.setLevel(level)
        if bars:
            enable_progress_bars()


def _stop_at_limit(response: Any) -> None:
    if response.status_code == 429:
        raise RateLimitedError(_seconds(response.headers))


def _seconds(headers: Any) -> float | None:
    """How long a 429 asks to wait: the IETF draft's `ratelimit: "api";r=0;t=55`, or Retry-After."""
    told = facts.RATE_LIMIT_RESET.search(headers.get("ratelimit", ""))
    if told:
        return float(told["seconds"])
    after = headers.get("Retry-After", "").strip()
    return float(after) if after.isdecimal() else None
