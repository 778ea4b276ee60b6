"""`changes` and `undo` at a terminal, without a running server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.terminals import answer_at_terminal, run_alone
from tools.contract.call_options import AbortSignal
from tools.files.change.file_change import Author, TargetFile, make_change, plan_write
from tools.files.change.journal import FILE, Journal
from tools.files.workspace import Workspace

IN_HOME = {"XDG_STATE_HOME": ""}  # puts the journal in the home folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder that is also the working folder and the workspace."""
    folder = tmp_path.resolve() / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def journal(home: Path) -> Generator[Journal]:
    store = Journal(str(home / ".local/state/coretools-mcp"), 1_000_000, 30, 1_000_000)
    yield store
    store.close()


def write(home: Path, journal: Journal, name: str, content: str, client: str = "one") -> None:
    """Write a file and record the change, as a tool does."""
    workspace = Workspace([str(home)])
    author = Author(journal, client, "write_file")
    target = TargetFile(workspace, workspace.locate(name), None, AbortSignal(), author)
    make_change(
        target,
        lambda text, _: plan_write(target, text, expected_sha256=None, encoding=None, is_users=False),
        content,
        planned=None,
        answer=None,
        confirmed_state=None,
    )


def run(home: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_alone(home, *arguments, cwd=cwd, variables=IN_HOME)


def answer(home: Path, *arguments: str, **options: Any) -> tuple[int, str, str]:
    return answer_at_terminal(home, *arguments, variables=IN_HOME, **options)


@pytest.mark.requirement("undo.terminal")
def test_changes_of_every_client_are_listed_and_undone_without_a_server(home: Path, journal: Journal) -> None:
    (home / "a.txt").write_text("old\n")
    write(home, journal, "a.txt", "new\n", "one")
    write(home, journal, "b.txt", "x\n", "two")
    listing = run(home, "changes")
    assert listing.returncode == 0
    lines = listing.stdout.splitlines()
    assert lines[0].startswith("2  ")
    assert lines[0].endswith("  write_file  b.txt (+1 -0, new)")
    assert lines[-1] == "Changes by commands and other programs are not recorded."
    changes = json.loads(run(home, "changes", "--json").stdout)
    assert [(change["id"], change["path"], change["undone"]) for change in changes] == [
        (2, str(home / "b.txt"), False),
        (1, str(home / "a.txt"), False),
    ]
    assert "Change 2 was undone" in run(home, "undo", "--yes").stdout
    assert not (home / "b.txt").exists()
    code, stdout, stderr = answer(home, "undo")
    assert (code, (home / "a.txt").read_text()) == (0, "old\n")
    assert "Undo change 1 of a.txt (write_file)" in stderr
    assert "-new" in stderr
    assert "+old" in stderr
    assert "This is change 4" in stdout
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    assert run(home, "changes", cwd=elsewhere).stdout.startswith(f"There are no changes to undo in {elsewhere}.")
    assert run(home, "undo", "3", "--yes", cwd=elsewhere).returncode == 1
    assert run(home, "undo", "3", "--yes", "--workspace", str(home), cwd=elsewhere).returncode == 0
    assert (home / "b.txt").read_text() == "x\n"


@pytest.mark.requirement("undo.terminal")
def test_nothing_is_undone_without_a_yes_or_if_the_file_has_changed_since(home: Path, journal: Journal) -> None:
    write(home, journal, "a.txt", "new\n")
    without_terminal = run(home, "undo")
    assert without_terminal.returncode == 1
    assert "nothing was undone: nobody can answer here" in without_terminal.stderr
    assert answer(home, "undo", answer=b"n\n")[0] == 1
    code, _, stderr = answer(home, "undo", meanwhile=lambda: (home / "a.txt").write_text("mine\n"))
    assert code == 1
    assert "has changed since change 1" in stderr
    assert "+mine" in stderr
    assert (home / "a.txt").read_text() == "mine\n"
    for number in ("7", str(10**30)):
        assert f"There is no file change {number}" in run(home, "undo", number, "--yes").stderr
    assert run(home, "undo", "x").returncode == 2


@pytest.mark.requirement("undo.terminal")
def test_a_person_can_undo_changes_to_files_that_are_hidden_from_agents(home: Path, journal: Journal) -> None:
    (home / ".qwenignore").write_text("secret\n")
    (home / "secret").write_text("word\n")
    write(home, journal, "secret", "x\n")
    assert "+word" in run(home, "undo", "--yes").stderr
    assert (home / "secret").read_text() == "word\n"


@pytest.mark.requirement("undo.forget")
def test_the_whole_journal_is_deleted_after_a_question(home: Path, journal: Journal) -> None:
    (home / "a.txt").write_text("a very secret line\n")
    write(home, journal, "a.txt", "x\n")
    journal.close()
    store = home / ".local/state/coretools-mcp" / FILE
    assert run(home, "undo", "--forget").returncode == 1
    assert run(home, "undo", "1", "--forget").returncode == 2
    code, stdout, _ = answer(home, "undo", "--forget")
    assert (code, stdout) == (0, "Everything that was kept to undo changes was deleted.\n")
    assert b"a very secret line" not in store.read_bytes()
    store.write_bytes(b"damaged" * 1_000)
    listing = run(home, "changes")
    assert listing.returncode == 1
    message = "The change journal is damaged (run coretools-mcp undo --forget to start a new one)."
    assert listing.stderr == f"coretools-mcp: {message}\n"
    assert run(home, "undo", "--forget", "--yes").returncode == 0
    assert not store.exists()
    assert os.path.isfile(home / "a.txt")
