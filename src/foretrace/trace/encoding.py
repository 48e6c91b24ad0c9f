"""Text encodings: whatever a file is in, the decoder gets UTF-8."""

from __future__ import annotations

import codecs

__all__ = ["is_utf8", "to_utf8", "wide_encoding"]

_PIECE = 1 << 22


def to_utf8(text: bytes, repairs: list[str]) -> bytes:
    """The text as UTF-8 without byte order mark; returns the same object when nothing had to be done."""
    encoding = wide_encoding(text)
    if encoding:
        repairs.append(f"the text is {encoding[:6].upper()}; it was converted to UTF-8")
        return text.decode(encoding, "replace").lstrip("\ufeff").encode("utf-8", "replace")
    if text.startswith(codecs.BOM_UTF8):
        repairs.append("a byte order mark stood before the text; it was removed")
        text = text[len(codecs.BOM_UTF8) :]
    bare = text.rstrip(b"\0")
    if len(bare) < len(text):
        repairs.append(f"{len(text) - len(bare)} zero bytes after the text were ignored")
        text = bare
    return _valid_utf8(text, repairs)


def wide_encoding(text: bytes) -> str | None:
    """The encoding of UTF-16 and UTF-32 text, with byte order mark or by where its zero bytes are."""
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if text.startswith(mark):
            return encoding
    head = text[:64]
    even, odd = head[::2], head[1::2]
    if len(head) == 64 and max(even.count(0), odd.count(0)) > 28 > 4 > min(even.count(0), odd.count(0)):
        return "utf-16-le" if odd.count(0) > even.count(0) else "utf-16-be"
    return None


def is_utf8(text: bytes) -> bool:
    """Whether the text is valid UTF-8, checked piece by piece so that no second copy of it is made."""
    if text.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(text)
    try:
        for at in range(0, len(text), _PIECE):
            decoder.decode(view[at : at + _PIECE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _valid_utf8(text: bytes, repairs: list[str]) -> bytes:
    if is_utf8(text):
        return text
    count = 0

    def replace(error: UnicodeError) -> tuple[str, int]:
        nonlocal count
        count += 1
        return "\ufffd", error.end if isinstance(error, UnicodeDecodeError) else 0

    codecs.register_error("foretrace-count", replace)
    decoder = codecs.getincrementaldecoder("utf-8")("foretrace-count")
    view = memoryview(text)
    parts = [decoder.decode(view[at : at + _PIECE]).encode() for at in range(0, len(text), _PIECE)]
    parts.append(decoder.decode(b"", final=True).encode())
    repairs.append(f"{count} {'place' if count == 1 else 'places'} with bytes that are not UTF-8, replaced by �")
    return b"".join(parts)
