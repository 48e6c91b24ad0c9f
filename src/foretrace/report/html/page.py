"""The shell that every HTML report shares: one file that asks nothing of the network.

A page is a masthead, numbered sections, data blocks and scripts. Sections are made of the templates in ``assets`` with
everything escaped; what JavaScript draws comes from data blocks (`foretrace.report.html.payload`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from foretrace.model import words
from foretrace.report.html.tables import PAPER_ROWS
from foretrace.report.text import clean
from foretrace.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["CONTENT_POLICY", "Masthead", "Page", "Section", "render", "section"]

# Nothing is fetched, framed, sent or loaded from elsewhere: what the page is made of stands in it.
CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_PACKAGE = "foretrace.report.html"
# Scripts by what a page draws; each part may be asked for by several sections and is written once, in this order.
_PARTS = {
    "d3": ("vendor/d3.min.js",),
    "tabulator": ("vendor/tabulator.min.js",),
    "lanes": ("assets/lanes*.js",),
    "tables": ("assets/filters.js", "assets/tables.js"),
    "roofline": ("assets/roofline.js",),
    "chain": ("assets/chain.js",),
    "compare": ("assets/compare*.js",),
    "predict": ("assets/predict*.js",),
    "memory": ("assets/memory*.js",),
}
_FIRST = ("assets/payload.js", "assets/words.js")
_LAST = ("assets/findings.js", "assets/shell.js", "assets/main.js")
_STYLES = {"tabulator": ("vendor/tabulator.min.css",)}


@dataclass(frozen=True)
class Section:
    """One numbered part of a page; its address is ``#section-`` and ``id``."""

    id: str
    title: str
    body: Markup
    needs: tuple[str, ...] = ()  # parts of the scripts
    count: str = ""  # beside the title in the contents: how many there are


@dataclass(frozen=True)
class Masthead:
    """The head of a page: what it is of, and what must be known before any number is read."""

    verb: str  # "explain"
    title: str
    facts: Sequence[str]
    alarms: Sequence[tuple[str, str]] = ()  # ("DO NOT TRUST", why)


@dataclass
class Page:
    """What :func:`render` lays out."""

    masthead: Masthead
    sections: list[Section]
    blocks: list[Markup] = field(default_factory=list)


def render(page: Page) -> bytes:
    """The page as one self-contained HTML file in UTF-8."""
    from markupsafe import Markup

    parts = dict.fromkeys(part for one in page.sections for part in one.needs)
    libraries = [path for part in _PARTS if part in parts for path in _PARTS[part]]
    styles = [path for part in parts for path in _STYLES.get(part, ())]
    text = (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            policy=CONTENT_POLICY,
            version=__version__,
            styles=[Markup(_asset(path)) for path in _resolved([*styles, "assets/base.css", "assets/*.css"])],
            print_style=Markup(_asset("assets/print.css")),
            scripts=[Markup(_asset(path)) for path in _resolved([*_FIRST, *libraries, *_LAST])],
        )
    )
    # Half a surrogate pair, from a damaged trace or a file name, is no character of UTF-8.
    return text.encode("utf-8", "replace")


def section(
    id: str, title: str, template: str, *, needs: Iterable[str] = (), count: str = "", **context: Any
) -> Section:
    """A section from a template of ``assets``; ``context`` are the template's variables."""
    from markupsafe import Markup

    body = Markup(_environment().get_template(template).render(context))
    return Section(id=id, title=title, body=body, needs=tuple(needs), count=count)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(_PACKAGE, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.globals["words"] = words
    environment.globals["paper_rows"] = PAPER_ROWS
    return environment


def _shown(value: object) -> object:
    """What a template prints: text of a trace with its unprintable characters spelled out."""
    # Markup is a str as well, and is ours: only plain text can come from a trace.
    return clean(value) if type(value) is str else value


def _resolved(paths: Iterable[str]) -> list[str]:
    """The paths with their patterns filled in, each once; a pattern's own name comes after its longer ones."""
    found: dict[str, None] = {}
    for path in paths:
        folder, _, name = path.partition("/")
        if "*" not in name:
            found[path] = None
            continue
        stem, _, ending = name.partition("*")
        there = [each.name for each in files(_PACKAGE).joinpath(folder).iterdir()]
        fitting = [each for each in there if each.startswith(stem) and each.endswith(ending) and each != "print.css"]
        for each in sorted(fitting, key=lambda each: (each == f"{stem}{ending}", each)):
            found[f"{folder}/{each}"] = None
    return list(found)


@lru_cache(maxsize=64)
def _asset(path: str) -> str:
    folder, _, name = path.partition("/")
    return files(_PACKAGE).joinpath(folder, name).read_text(encoding="utf-8")
