"""The folder in which an upstream's program starts, and the roots that it gets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.harness import HANDSHAKE, PEERS, in_memory, write_config
from tests.interaction.relay.clients import Json, proxy_client, text_or_json
from tests.interaction.relay.eras import by_eras, by_eras_each_way

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("relay.place")]

NO_ROOTS: Json = {"elicitation": {"form": {}}}


def placed_entry(era: str, **fields: Any) -> Json:
    return {"command": sys.executable, "args": ["-S", str(PEERS / "placed_upstream.py"), era], "trust": True, **fields}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a home folder, and run in the root of the file system, where desktop programs start."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir("/")
    return tmp_path


@by_eras_each_way
async def test_a_program_starts_in_the_first_workspace_folder_and_gets_them_all_as_roots(
    client_era: str, upstream_era: str, home: Path
) -> None:
    first, second = home / "first é", home / "second"
    for folder in (first, second):
        folder.mkdir()
    settings = {"workspace": {"roots": [str(first), str(second)]}}
    servers = {"up": placed_entry(upstream_era)}
    async with proxy_client(home, servers, client_era, settings=settings, capabilities=NO_ROOTS) as client:
        place = text_or_json(await client.call("up__place", {}))
        assert (place["cwd"], place["roots"]) == (str(first), [first.as_uri(), second.as_uri()])
        assert not client.questions


@by_eras
async def test_without_a_workspace_a_program_starts_in_an_empty_folder_and_not_in_a_home(
    client_era: str, upstream_era: str, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for own_folder in (home, Path("/")):
        monkeypatch.chdir(own_folder)
        async with proxy_client(home, {"up": placed_entry(upstream_era)}, client_era, capabilities=NO_ROOTS) as client:
            place = text_or_json(await client.call("up__place", {}))
            assert (place["roots"], place["files"]) == (None, [])
            assert Path(place["cwd"]) not in (home, Path("/"), Path.cwd())
            assert "starts in an empty folder: no workspace is known for it. Set one with --workspace" in caplog.text
        assert not Path(place["cwd"]).exists()


@pytest.mark.parametrize("cwd", ["inside", "{home}/else"])
async def test_a_program_starts_in_the_folder_of_its_entry(cwd: str, home: Path) -> None:
    workspace = home / "workspace"
    for folder in (workspace / "inside", home / "else"):
        folder.mkdir(parents=True)
    servers = {"up": placed_entry("handshake", cwd=cwd.format(home=home))}
    settings = {"workspace": {"roots": [str(workspace)]}}
    async with proxy_client(home, servers, "handshake", settings=settings, capabilities=NO_ROOTS) as client:
        place = text_or_json(await client.call("up__place", {}))
        expected_folder = workspace / "inside" if cwd == "inside" else home / "else"
        assert (place["cwd"], place["roots"]) == (str(expected_folder), [workspace.as_uri()])


async def test_the_roots_of_a_client_are_the_workspace_if_the_operator_sets_none(home: Path) -> None:
    project = home / "project"
    project.mkdir()

    async def roots(_: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": project.as_uri()})])

    config = write_config(home, {"mcpServers": {"up": placed_entry("handshake")}})
    async with in_memory(HANDSHAKE, None, config, list_roots_callback=roots) as client:
        place: Json = {"roots": None}
        while place["roots"] is None:  # the server asks the client for its roots in the background
            (block,) = (await client.call_tool("up__place", {})).content
            assert isinstance(block, types.TextContent)
            place = json.loads(block.text)
        assert (place["cwd"], place["roots"]) == (str(project), [project.as_uri()])
