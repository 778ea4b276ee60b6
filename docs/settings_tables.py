"""Write the tables of docs/configuration.md from the models. `--check` only checks that they are current."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from server.settings import server_models, tool_models
from server.settings.canonical_form import KEY_ALIASES
from server.settings.invalid_values import words
from server.settings.section_model import KeyPath, Section, dotted, keys_of

PAGE = Path(__file__).resolve().parent / "configuration.md"
ALIASES = re.compile(r"(<!-- key-aliases:begin[^\n]*-->\n).*?(<!-- key-aliases:end -->)", flags=re.DOTALL)
KEYS = re.compile(r"(<!-- keys:begin[^\n]*-->\n).*?(<!-- keys:end -->)", flags=re.DOTALL)

GENERAL = "General"

TITLES: Mapping[str, str] = {
    GENERAL: GENERAL,
    "mcpServers": "the upstream servers",
    "mcp": "which servers are used",
    "permissions": "rules for individual calls",
    "confirmation": "how a person is asked",
    "results": "how results are shown",
    "tools": "which tools are offered",
    "workspace": "the folders that tools may use",
    "limits": "how much one call may return, and how many calls are allowed",
    "shell": "how commands run",
    "web": "what may be fetched, and the search provider",
    "memory": "where memories are kept",
    "undo": "which old contents of changed files are kept",
    "lsp": "language servers",
    "agents": "programs that run tasks",
    "http": "how the network transports listen",
    "store": "what replicas of this server share",
    "proxy": "how the tools of other servers are published",
    "log": "what is written to stderr",
}
"""The sections in page order. A section that is missing here is an error."""


@dataclass(frozen=True, slots=True)
class KeyDescription:
    """A key for the page; in its dotted path, `NAME` stands for a name that the operator chooses."""

    path: str
    type: str
    default: Any
    section: type[Section]
    attribute: str


def key_descriptions(section: type[Section] = server_models.Settings, path: KeyPath = ()) -> Iterator[KeyDescription]:
    """Yield every key with a value or a table of named sections, in the order of the models."""
    for attribute, name in zip(section.model_fields, keys_of(section), strict=True):
        key = keys_of(section)[name]
        key_path = (*path, name)
        if key.section is None or key.is_table:
            default = key.field.get_default(call_default_factory=True, validated_data={})
            default = list(cast("tuple[Any, ...]", default)) if isinstance(default, tuple) else default
            yield KeyDescription(dotted(key_path), words(key), default, section, attribute)
        if key.section is not None:
            yield from key_descriptions(key.section, (*key_path, "NAME") if key.is_table else key_path)


def main(arguments: list[str]) -> int:
    """Bring the tables up to date, or with `--check` return 1 if they are not."""
    before = PAGE.read_text(encoding="utf-8")
    after = ALIASES.sub(lambda markers: f"{markers[1]}\n{aliases()}\n{markers[2]}", before)
    after = KEYS.sub(lambda markers: f"{markers[1]}\n{keys()}\n{markers[2]}", after)
    if arguments == ["--check"]:
        return int(after != before)
    PAGE.write_text(after, encoding="utf-8")
    return 0


def aliases() -> str:
    """Return the table of key aliases."""
    aliases_by_key: dict[str, list[str]] = {}
    for alias, ours in KEY_ALIASES.items():
        aliases_by_key.setdefault(dotted(ours), []).append(f"`{dotted(alias)}`")
    rows = ["| Also read | Meaning |", "| --- | --- |"]
    rows += [f"| {', '.join(names)} | `{ours}` |" for ours, names in aliases_by_key.items()]
    opposite = "the opposite of `mcpServers.NAME.enabled`; if they differ, the server is left out"
    rows.append(f"| `mcpServers.NAME.disabled` | {opposite} |")
    return "".join(f"{row}\n" for row in rows)


def keys() -> str:
    """Return the tables of keys, by section."""
    sentences = docstrings()
    rows: dict[str, list[str]] = {section: [] for section in TITLES}
    for key in key_descriptions():
        section = key.path.partition(".")[0]
        is_value = "." not in key.path and key.path not in TITLES
        rows[GENERAL if is_value else section].append(row(key, sentences))
    head = "| Key | Type | Default | What it does |\n| --- | --- | --- | --- |\n"
    parts: list[str] = []
    for section, title in TITLES.items():
        heading = title if section == GENERAL else f"`{section}`: {title}"
        parts.append(f"### {heading}\n\n{head}" + "".join(f"{line}\n" for line in rows[section]))
    return "\n".join(parts)


def row(key: KeyDescription, sentences: Mapping[tuple[str, str], str]) -> str:
    """Return the row for one key."""
    sentence = sentences[key.section.__name__, key.attribute]
    return f"| `{key.path}` | {key.type} | `{json.dumps(key.default)}` | {sentence} |"


def docstrings() -> dict[tuple[str, str], str]:
    """Return the docstring of each model field, on one line, by class and field."""
    bodies = [ast.parse(inspect.getsource(module)).body for module in (server_models, tool_models)]
    sentences: dict[tuple[str, str], str] = {}
    for section in itertools.chain.from_iterable(bodies):
        if not isinstance(section, ast.ClassDef):
            continue
        bases = {ast.unparse(base) for base in section.bases}
        sentences |= {(section.name, name): sentence for (owner, name), sentence in sentences.items() if owner in bases}
        for statement, following in zip(section.body, section.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
                sentences[section.name, ast.unparse(statement.target)] = " ".join(
                    ast.literal_eval(following.value).split()
                )
    return sentences


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
