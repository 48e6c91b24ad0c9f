"""One entry of ``traceEvents`` as the decoder hands it over."""

from __future__ import annotations

import msgspec

__all__ = ["RawEvent"]


class RawEvent(msgspec.Struct, gc=False):
    """One entry of ``traceEvents``; what is absent keeps its default."""

    ph: str = ""
    cat: str | None = None
    name: str | None = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    id: int | str | None = None
    args: msgspec.Raw = msgspec.Raw(b"")
