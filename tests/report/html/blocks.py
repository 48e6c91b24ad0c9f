"""Data blocks read back as the page reads them."""

from __future__ import annotations

import base64
import gzip
import json
from html.parser import HTMLParser
from typing import Any

import numpy as np

__all__ = ["read"]


class Reader(HTMLParser):
    """Collects the one element of a block."""

    def __init__(self):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def read(block: str) -> tuple[str, Any, dict[str, Any]]:
    """Id, document and columns of a block."""
    reader = Reader()
    reader.feed(str(block))
    ((tag, attributes),) = reader.tags
    assert tag == "script"
    raw = gzip.decompress(base64.b64decode(reader.text))
    columns, offset = {}, 0
    for name, (dtype, length) in json.loads(attributes["data-columns"]).items():
        assert offset % 8 == 0
        columns[name] = np.frombuffer(raw, np.dtype(dtype).newbyteorder("<"), length, offset)
        offset += -(-columns[name].nbytes // 8) * 8
    return attributes["id"], json.loads(raw[offset:]), columns
