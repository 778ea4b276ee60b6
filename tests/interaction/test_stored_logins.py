"""Stored logins are out of reach of the tools, and of commands in the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.upstreams.login.login_storage import TokenStore
from tests.harness import write_config
from tests.interaction.test_own_files import Person
from tests.interaction.test_undo import asking_client, text
from tests.unit.test_token_store import LOGIN, SECRETS, file_of
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("login.store_private")]

YOLO = ("--approval-mode", "yolo")


async def test_logins_that_lie_in_the_workspace_are_neither_read_nor_found_by_tools(root: Path) -> None:
    state = root / "state" / "coretools-mcp"
    TokenStore(str(state)).write(LOGIN)
    file = file_of(state)
    async with asking_client(root, state, Person("once"), *YOLO) as client:
        for tool, arguments in (
            ("read_file", {"absolute_path": str(file)}),
            ("write_file", {"file_path": str(file), "content": "x"}),
            ("list_directory", {"path": str(file.parent)}),
            ("read_many_files", {"paths": [str(file)]}),
            ("glob", {"pattern": "**/*", "respect_git_ignore": False}),
            ("grep_search", {"pattern": "token", "no_ignore": True}),
        ):
            output = await text(client, tool, **arguments)
            assert not any(secret in output for secret in SECRETS), tool
            assert file.name not in output.replace(str(file), ""), tool
    assert TokenStore(str(state)).all() == [LOGIN]


async def test_no_command_in_the_sandbox_sees_logins_whatever_else_is_kept(root: Path, tmp_path: Path) -> None:
    state = root / "state" / "coretools-mcp"
    settings = {"shell": {"sandbox": "required"}, "undo": {"enabled": False}, "proxy": {"catalogue": False}}
    async with asking_client(
        root, state, Person("once"), *YOLO, "--config", str(write_config(tmp_path, settings))
    ) as client:
        output = await text(client, "run_shell_command", command="sleep 0 && echo ran")
        if "sandbox" in output and "ran" not in output:
            pytest.skip("not run: no sandbox works here")
        wait = "touch began; until [ -e go ]; do sleep 0.05; done"
        look = f"cat {file_of(state)}; ls -A {state}; echo looked"
        job_text = await text(client, "run_shell_command", command=f"{wait}; ({look}) > seen 2>&1", is_background=True)
        assert "failed" not in job_text
        await until((root / "began").exists)
        TokenStore(str(state)).write(LOGIN)
        (root / "go").touch()
        wait = "until grep -qs looked seen; do sleep 0.05; done"
        output = await text(client, "run_shell_command", command=f"{wait}; {look}")
        all_output = output + (root / "seen").read_text()
        assert "looked" in all_output
        assert not any(secret in all_output for secret in SECRETS)
        assert file_of(state).name not in all_output.replace(str(file_of(state)), "")
