"""The parts of the MCP server that need no client: paths, pages, texts, and what is kept of files."""

from __future__ import annotations

import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from foretrace.errors import InputError
from foretrace.integrations.mcp.answers import Answer, failed, finished, first, short
from foretrace.integrations.mcp.guard import sentence_of
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.paging import piece
from foretrace.integrations.mcp.root import Root
from foretrace.knowledge.agents import ANSWER_BYTES, INSTRUCTIONS, LARGEST_ANSWER_BYTES, TOOLS

SAMPLES = Path(__file__).parents[2] / "src/foretrace/cli/samples"
TRACE = SAMPLES / "h200_mlp_eager.trace.json.gz"


# --- paths


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree") / "root"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/x.json").write_text("{}")
    (folder.parent / "x.json").write_text("{}")
    (folder / "out").symlink_to(folder.parent)
    (folder / "a/up").symlink_to("..")
    return folder


part = st.sampled_from(["a", "b", "x.json", "out", "up", "root", "..", ".", "", "~", "-", "\\", "a\0", "é", "\ud800"])


@given(parts=st.lists(part, max_size=6), absolute=st.sampled_from(["", "/", "//", "ROOT/"]))
def test_no_path_leads_out_of_the_root(tree: Path, parts: list[str], absolute: str) -> None:
    root = Root(tree, max_bytes=1_000)
    path = absolute.replace("ROOT", str(tree)) + "/".join(parts)
    try:
        name = root.file(path)
    except InputError:
        return
    assert name == "a/x.json"  # the one regular file there is
    assert ".." not in Path(path).parts


def test_the_name_of_a_file_is_where_its_links_lead(tree: Path) -> None:
    assert Root(tree, max_bytes=1_000).file("a/up/a/up/a/x.json") == "a/x.json"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{}")
    file.chmod(0)
    with pytest.raises(InputError, match=r"x\.json may not be read by the server; check its permissions"):
        Root(tmp_path, max_bytes=1_000).file("x.json")


# --- pages


class Row(BaseModel):
    text: str


@given(
    lengths=st.lists(st.integers(0, 9_000), max_size=30),
    limit=st.none() | st.integers(1, 20),
)
def test_pages_hold_every_row_once_and_fit(lengths: list[int], limit: int | None) -> None:
    items = [f"{position}".ljust(length, "x") for position, length in enumerate(lengths)]
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = piece(items, lambda _, text: Row(text=text), limit=limit, offset=offset)
        size = sum(len(row.model_dump_json()) + 1 for row in page.rows)
        assert page.total == len(items)
        assert page.rows or not items
        assert len(page.rows) <= (limit or len(items) or 1)
        assert len(page.rows) <= 1 or size <= (LARGEST_ANSWER_BYTES if limit else ANSWER_BYTES)
        seen += [row.text for row in page.rows]
        offset = page.next_offset
    assert seen == items


def test_a_page_beyond_the_end_is_empty() -> None:
    page = piece(["a"], lambda _, text: Row(text=text), limit=None, offset=7)
    assert (page.rows, page.total, page.next_offset) == ([], 1, None)


# --- texts and numbers


@given(text=st.text(max_size=400), most=st.integers(1, 200))
def test_short_texts_are_printable_bounded_and_say_what_is_missing(text: str, most: int) -> None:
    shown = short(text, most)
    assert shown.isprintable()
    assert len(shown) <= most + 30
    assert ("… (+" in shown) or len(shown) <= most


@given(count=st.integers(0, 9), most=st.integers(1, 5))
def test_a_list_that_is_cut_says_how_much_is_missing(count: int, most: int) -> None:
    texts = [f"text {number}" for number in range(count)]
    shown = first(texts, most)
    assert shown[:most] == texts[:most]
    assert shown[most:] == ([f"and {count - most} more"] if count > most else [])


class Odd(Answer):
    number: float | None
    texts: dict[str, list[str]]


def test_an_answer_is_plain_json() -> None:
    result = finished(Odd(number=math.inf, texts={"a\x1b": ["b\u2028", "x" * 5_000]}))
    content = result.structured_content
    assert content is not None
    assert content["number"] is None
    [(key, (first, second))] = content["texts"].items()
    assert (key, first) == ("a\\x1b", "b\\u2028")
    assert second.endswith("x… (+1000 characters)")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234567.8914, 1234567.891), (0.69727178, 0.697272), (0.0, 0.0), (-12.34567891, -12.3457), (math.nan, None)],
)
def test_numbers_keep_the_nanosecond_or_six_digits(value: float, shown: float | None) -> None:
    content = finished(Odd(number=value, texts={})).structured_content
    assert content is not None
    assert content["number"] == shown


def test_a_failure_is_one_line() -> None:
    result = failed("a\nb\x1b")
    assert result.is_error
    assert result.content[0].text == "a b\\x1b"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (InputError("--fail-on 'x' cannot be read"), "fail_on 'x' cannot be read"),
        (MemoryError(), "the server's machine has not enough memory for this; try something smaller"),
        (OSError(5, "Input/output error", "/secret/place"), "a file cannot be read: Input/output error"),
        (ValueError(), "this is a defect of foretrace: ValueError; please report it"),
    ],
)
def test_errors_become_sentences(error: Exception, sentence: str) -> None:
    assert sentence_of(error) == sentence


# --- what is kept


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    for name in ("a", "b", "c"):
        shutil.copy(TRACE, tmp_path / f"{name}.json.gz")
    monkeypatch.chdir(tmp_path)
    return Library(Root(tmp_path, max_bytes=1 << 20), most_bytes=10**9)


def test_a_trace_is_read_once(library: Library) -> None:
    first = library.open("a.json.gz")
    assert library.open("./a.json.gz") is first
    assert first.whole.trace.path == "a.json.gz"
    assert first.bytes > 10_000


def test_the_least_recently_used_goes_first(library: Library) -> None:
    size = library.open("a.json.gz").bytes
    library.most_bytes = 2 * size
    a, b = library.open("a.json.gz"), library.open("b.json.gz")
    assert library.open("a.json.gz") is a
    library.open("c.json.gz")
    assert library.open("a.json.gz") is a
    assert library.open("b.json.gz") is not b


def test_the_last_file_is_kept_whatever_its_size(library: Library) -> None:
    library.most_bytes = 1
    a = library.open("a.json.gz")
    assert library.open("a.json.gz") is a
    library.open("b.json.gz")
    assert library.open("a.json.gz") is not a


def test_a_side_file_that_appears_is_read(library: Library, tmp_path: Path) -> None:
    assert library.open("a.json.gz").side is None
    shutil.copy(SAMPLES / "h200_mlp_eager.trace.side.json", tmp_path / "a.side.json")
    opened = library.open("a.json.gz")
    assert opened.side is not None
    assert opened.whole.trace.unprofiled is not None


def test_a_file_that_changes_while_it_is_read_is_not_believed(library: Library, tmp_path: Path) -> None:
    def make() -> tuple[str, int]:
        (tmp_path / "a.json.gz").write_bytes(b"something else")
        return "made of what is gone", 1

    with pytest.raises(InputError, match=r"a\.json\.gz changed while it was read; call again when it is complete"):
        library.keep("key", ["a.json.gz"], make)
    assert library.keep("key", ["a.json.gz"], lambda: ("made again", 1)) == "made again"


def test_a_link_put_in_its_place_while_it_is_read_is_not_believed(library: Library, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.json"
    outside.write_text("{}")

    def make() -> tuple[str, int]:
        (tmp_path / "a.json.gz").unlink()
        (tmp_path / "a.json.gz").symlink_to(outside)
        return "a secret", 1

    with pytest.raises(InputError, match=r"leaves the root|changed while it was read"):
        library.keep("key", ["a.json.gz"], make)


@pytest.mark.parametrize("how", ["file", "same_kernels_as"])
def test_a_link_put_in_place_of_what_a_check_reads_is_not_believed(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    from foretrace.integrations.mcp.tools.checking import check
    from foretrace.prediction import expect

    named = tmp_path / ("guess.toml" if how == "file" else "b.json.gz")
    if how == "file":
        named.write_text("kernels = 5\n")
    outside = tmp_path.parent / f"{tmp_path.name}-{how}-outside"
    shutil.copy(named, outside)
    reader = "read_toml" if how == "file" else "judge"
    reads = getattr(expect, reader)

    def swapped(*given: Any, **more: Any) -> Any:
        named.unlink()
        named.symlink_to(outside)
        return reads(*given, **more)

    monkeypatch.setattr(expect, reader, swapped)
    given = {"file": named.name} if how == "file" else {"quantities": {"same_kernels_as": named.name}}
    with pytest.raises(InputError, match=r"leaves the root|changed while it was read"):
        check(library, "a.json.gz", **given)


# --- what agents are told


def test_instructions_name_tools_that_exist() -> None:
    for name in ("list_files", "load", "explain", "finding", "event", "query", "check", "compare"):
        assert name in TOOLS
        assert name in INSTRUCTIONS
    assert len(INSTRUCTIONS) < 2_000
    assert all(len(text.description) < 500 for text in TOOLS.values())
