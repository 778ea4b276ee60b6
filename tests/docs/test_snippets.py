"""The commands and the file contents in the documentation are valid."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from server.cli import command_parser, parse

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in (
        "README.md",
        "docs/clients.md",
        "docs/files.md",
        "docs/skills-and-code.md",
        "docs/servers.md",
        "docs/logins.md",
        "docs/network.md",
        "docs/terminal.md",
        "docs/permissions.md",
        "docs/configuration.md",
        "docs/security.md",
    )
}

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
FENCED_BLOCKS = [(name, language, text) for name, page in PAGES.items() for language, text in FENCE.findall(page)]
TYPED_LINES = [
    line for page in PAGES.values() for line in re.findall(r"^    (\S.*)$", FENCE.sub("", page), re.MULTILINE)
]
INLINE = [code for page in PAGES.values() for code in re.findall(r"`(coretools-mcp [^`]*)`", page)]
NAMES = {f"coretools-mcp {words}" for words in command_parser()[1]}  # text may mention a command without arguments
OURS = [line for line in TYPED_LINES if line.startswith("coretools-mcp")] + [
    code for code in INLINE if code not in NAMES
]

NOT_PARSED = {
    "make": "tests/docs/test_readme.py asks make",
    "pipx": "installing needs a network; tests/packaging installs the wheel",
    "export": "tests/docs/test_readme.py runs it",
    "docker": "nothing here builds images; tests/packaging/test_container.py runs what the image would run",
}
"""The first words of other commands, and why they are not parsed here."""


def command_lines(line: str) -> list[list[str]]:
    """Return the command lines that a line describes, without comments, ellipses, pipes and redirections.

    Optional parts such as `[--name NAME]` are included, and each alternative of `bash|zsh` gives a command line.
    """
    line = re.sub(r"\[(-*\w[^\]]*)\]", r"\1", line)
    words = list(itertools.takewhile(lambda word: word not in {"|", ">"}, shlex.split(line, comments=True)))
    choices = [word.split("|") if re.fullmatch(r"[\w-]+(\|[\w-]+)+", word) else [word] for word in words[1:]]
    return [[word for word in choice if word != "..."] for choice in itertools.product(*choices)]


@pytest.mark.requirement("project.snippets")
@pytest.mark.parametrize("line", OURS)
def test_every_documented_command_line_is_valid(line: str) -> None:
    for words in command_lines(line):
        is_serving = not words or words[0].startswith("-")
        assert parse(["serve", *words] if is_serving else words).command


@pytest.mark.requirement("project.snippets")
def test_command_lines_are_found_and_wrong_ones_are_refused() -> None:
    assert len(OURS) >= 20
    assert ["install", "CLIENT", "--scope", "project"] in command_lines(
        "coretools-mcp install [CLIENT] --scope user|project"
    )
    for line in ("coretools-mcp tolls", "coretools-mcp tools --jsom", "coretools-mcp completion powershell"):
        (words,) = command_lines(line)
        with pytest.raises(SystemExit):
            parse(words)


@pytest.mark.requirement("project.snippets")
def test_every_other_command_is_listed_with_a_reason() -> None:
    first_words = {line.split()[0] for line in TYPED_LINES if line not in OURS}
    assert first_words == set(NOT_PARSED)


@pytest.mark.requirement("project.snippets")
@pytest.mark.parametrize(("page", "language", "text"), FENCED_BLOCKS)
def test_every_fenced_block_is_valid_in_its_language(page: str, language: str, text: str) -> None:
    assert language in {"json", "toml"}, f"{page}: a block of {language or 'no language'} cannot be checked"
    assert tomllib.loads(text) if language == "toml" else json.loads(text)
