"""Pages of the site that are made from the code: commands, rules, JSON documents.

They are written from the same objects that the program uses, so that they cannot say anything else.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any
from unittest.mock import patch

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    pages = {"commands": commands(), "rules": rules(), "documents": documents()}
    for name, content in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def commands() -> str:
    """Every command with its help."""
    from foretrace.cli import COMMANDS, main

    parts = [
        "# Commands\n\nEvery command takes `--help` and `--debug`. Exit codes: 0 fine, 1 a check failed, 2 the command "
        "could not do its work and says in one sentence why.\n"
    ]
    for name, what in COMMANDS.items():
        said = io.StringIO()
        # Help is as wide as the terminal, and has its colours: the site's is the same wherever it is built.
        plain = patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"})
        with plain, contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main([name, "--help"])
        parts.append(
            f"## foretrace {name}\n\n{what[0].upper()}{what[1:]}.\n\n```text\n{said.getvalue().rstrip()}\n```\n"
        )
    return "\n".join(parts)


def rules() -> str:
    """The rule catalogue: everything a report can find, and why an expectation breaks."""
    from foretrace.knowledge.differences import DIFFERENCES
    from foretrace.knowledge.rules_kernels import KERNEL_RULES
    from foretrace.knowledge.rules_memory import MEMORY_RULES
    from foretrace.knowledge.rules_snapshot import SNAPSHOT_RULES
    from foretrace.knowledge.rules_timeline import TIMELINE_RULES

    parts = [
        "# Rules\n\nWhat `foretrace explain` and `foretrace memory` can find, and why `foretrace check` says that an "
        "expectation broke, word for word; `{places}` are filled with what a trace or a snapshot holds. Where the fact "
        "of a rule is not in the trace itself, its source is named. The word in brackets is the severity: `warning`, "
        "`note` or `info`.\n"
    ]
    groups = {
        "Kernels": KERNEL_RULES,
        "The timeline": TIMELINE_RULES,
        "Allocations in a trace": MEMORY_RULES,
        "Allocator snapshots": SNAPSHOT_RULES,
    }
    for heading, group in groups.items():
        parts.append(f"## {heading}\n")
        for name, rule in group.items():
            parts.append(f"### {name} {{ #{name} }}\n\n**{_text(rule.title)}** ({rule.severity})\n")
            parts.append(f"{_text(rule.explanation)}\n")
            if rule.suggestion:
                parts.append(f"*What to do:* {_text(rule.suggestion)}\n")
            if rule.source:
                parts.append(f"*Source:* {_text(rule.source)}\n")
    parts.append(
        "## Why an expectation breaks\n\nMechanisms by which a trace holds more or less than was expected; "
        "`foretrace check` puts the events of the trace in front of them.\n"
    )
    for name, difference in DIFFERENCES.items():
        parts.append(f"### {name} {{ #difference-{name} }}\n\n{_text(difference.why)}\n")
        if difference.findings:
            known = [f"[{finding}](#{finding})" for finding in difference.findings]
            parts.append(f"*Told in full by:* {', '.join(known)}\n")
        parts.append(f"*Source:* {_text(difference.source)}\n")
    return "\n".join(parts)


def documents() -> str:
    """The JSON documents, field by field, from the schemas beside the model."""
    from foretrace.model.schema import DOCUMENTS, schema_of

    parts = [
        "# JSON documents\n\nWhat `--json` writes; `foretrace.baseline/1` is the file that the "
        "[pytest plugin](../how-to/pytest.md) keeps beside a test. Fields may be added within a version, never changed "
        "or removed. Times are µs, sizes bytes, shares 0 to 1; what is unknown is `null`, never zero. The schemas "
        "themselves: `python -m foretrace.model.schema NAME`.\n"
    ]
    for document, what in DOCUMENTS.items():
        schema = schema_of(document)
        definitions: dict[str, Any] = schema["$defs"]
        root = schema["$ref"].rpartition("/")[2]
        name = definitions[root]["properties"]["schema"]["enum"][0]
        anchor = document.__name__.lower()
        parts.append(f"## {name} {{ #{anchor} }}\n\n{what}\n")
        for title in [root, *sorted(set(definitions) - {root})]:
            parts += _fields(title, definitions[title], anchor, root)
    return "\n".join(parts)


def _fields(title: str, definition: dict[str, Any], anchor: str, root: str) -> Iterator[str]:
    """One object of a document as a table."""
    if title != root:
        yield f"### {title} {{ #{anchor}-{title.lower()} }}\n"
    if said := definition.get("description"):
        yield f"{_text(said)}\n"
    if "properties" not in definition:
        yield f"`{_type(definition, anchor)}`\n"
        return
    yield "| field | type |\n|---|---|"
    needed = set(definition.get("required", ()))
    for name, field in definition["properties"].items():
        mark = "" if name in needed else " (may be absent)"
        yield f"| `{name}` | {_type(field, anchor)}{mark} |"
    yield ""


def _type(field: dict[str, Any], anchor: str) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchor}-{name.lower()})"
    if "anyOf" in field:
        return " or ".join(_each(field["anyOf"], anchor))
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    kind = field.get("type", "any")
    if kind == "array":
        items = field.get("items")
        return f"list of {_type(items, anchor)}" if isinstance(items, dict) and items else "list"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"map to {_type(field['additionalProperties'], anchor)}"
    return str(kind)


def _each(choices: Iterable[dict[str, Any]], anchor: str) -> list[str]:
    return list(dict.fromkeys(_type(choice, anchor) for choice in choices))


def _text(text: str) -> str:
    """A sentence of the code as Markdown: names with underscores and angle brackets stay as they are.

    What stands in backquotes is code already, and a page of this site that is named becomes a link.
    """
    plain_and_code = re.split(r"(`+[^`]+`+)", text)
    for at in range(0, len(plain_and_code), 2):
        escaped = re.sub(r"([*_<>\[\]])", r"\\\1", plain_and_code[at])
        plain_and_code[at] = re.sub(r"docs/((?:concepts|how-to)/([\w-]+)\.md)", r"[\2](../\1)", escaped)
    return "".join(plain_and_code)
