"""An error becomes one sentence for the user: its own, or what is known of it."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.errors import InputError, sentence_of


@pytest.mark.parametrize(
    ("error", "options", "sentence"),
    [
        (InputError("there is no step 9"), {}, "there is no step 9"),
        (InputError("there is no step 9"), {"name_files": False, "machine": "m", "defect": "d"}, "there is no step 9"),
        (MemoryError(), {}, "this machine has not enough memory for this; try something smaller"),
        (MemoryError(), {"machine": "the other"}, "the other has not enough memory for this; try something smaller"),
        (OSError(5, "Input/output error", "/a/place"), {}, "/a/place: Input/output error"),
        (
            OSError(5, "Input/output error", "/a/place"),
            {"name_files": False},
            "a file cannot be read: Input/output error",
        ),
        (
            OSError(111, "Connection refused"),
            {},
            "this is a defect of foretrace: ConnectionRefusedError: [Errno 111] Connection refused; please report it",
        ),
        (ValueError(), {}, "this is a defect of foretrace: ValueError; please report it"),
        (ValueError("two\n lines"), {"defect": "run"}, "this is a defect of foretrace: ValueError: two lines; run"),
        (ValueError("x" * 999), {}, f"this is a defect of foretrace: ValueError: {'x' * 300}; please report it"),
    ],
    ids=[
        "ours",
        "ours as it is",
        "memory",
        "memory elsewhere",
        "a file",
        "a file unnamed",
        "no file",
        "silent",
        "lines",
        "long",
    ],
)
def test_an_error_is_one_sentence(error: Exception, options: dict[str, Any], sentence: str) -> None:
    assert sentence_of(error, **options) == sentence
