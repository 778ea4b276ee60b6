"""Nothing that a token does not grant can be reached another way: by lists, resources, errors, folders or headers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from tests.harness import HANDSHAKE, MODERN, PEERS, command_line, write_config
from tests.interaction.network.test_access_tokens import RESOURCE, client_with, names_of, server_trusting, sign_token
from tests.interaction.network.test_who_is_let_in import ACCEPT, INITIALIZE, serving
from tests.scripted_issuer import ScriptedIssuer, scripted_issuer
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])


@pytest.fixture
def issuer() -> Generator[ScriptedIssuer]:
    with scripted_issuer() as issuer:
        yield issuer


def entry(name: str) -> dict[str, Any]:
    """Return the settings of a server with a resource and an app's tool, whose names are the same for all servers."""
    app = {"ui": {"visibility": ["app"], "resourceUri": f"ui://{name}"}}
    lists = {
        "tools": [{"name": "refresh", "inputSchema": {"type": "object"}, "_meta": app}],
        "resources": [{"uri": "x://shared", "name": "shared"}],
    }
    orders = json.dumps({"name": name, **lists})
    return {"command": sys.executable, "args": ["-S", str(PEERS / "listing_upstream.py"), orders], "trust": True}


@pytest.mark.requirement("oauth.scopes")
@ERAS
async def test_without_the_scope_to_read_nothing_readable_is_listed_or_read(
    root: Path, tmp_path: Path, issuer: ScriptedIssuer, mode: str
) -> None:
    (root / "AGENTS.md").write_text("remembered")
    todos = {"todos": [{"id": "1", "content": "hers", "status": "pending"}]}
    async with server_trusting(root, tmp_path, issuer) as url:
        async with client_with(url, sign_token(issuer.base, {"scope": "read"}), mode) as client:
            assert not (await client.call_tool("todo_write", todos)).is_error
            assert "hers" in str(await client.read_resource("todo://list"))
            assert {str(resource.uri) for resource in (await client.list_resources()).resources} >= {"todo://list"}
            assert (await client.list_prompts()).prompts
            assert (await client.list_resource_templates()).resource_templates
        async with client_with(url, sign_token(issuer.base, {"scope": "run"}), mode) as client:
            assert not (await client.list_resources()).resources
            assert not (await client.list_prompts()).prompts
            assert not (await client.list_resource_templates()).resource_templates
            for uri in ("todo://list", "memory://project", f"file://{root}/AGENTS.md"):
                with pytest.raises(MCPError, match="needs the scope read"):
                    await client.read_resource(uri)
            with pytest.raises(MCPError, match="needs the scope read"):
                await client.get_prompt("at", {"paths": "AGENTS.md"})


@pytest.mark.requirement("oauth.scopes")
@ERAS
async def test_no_error_names_a_server_that_a_token_does_not_name_and_it_causes_no_ambiguity(
    root: Path, tmp_path: Path, issuer: ScriptedIssuer, mode: str
) -> None:
    servers = {name: entry(name) for name in ("docs", "bank", "till")}
    async with server_trusting(root, tmp_path, issuer, mcpServers=servers) as url:
        async with client_with(url, sign_token(issuer.base, {"scope": "upstream:docs"}), mode) as client:
            assert str(root) not in (client.instructions or ""), "the client has no workspace"
            assert "from docs" in str(await client.read_resource("x://shared"))
            with pytest.raises(MCPError) as refusal:
                await client.call_tool("refresh", {})
            assert "bank" not in f"{refusal.value.error}"
        async with client_with(url, sign_token(issuer.base, {"scope": "upstream:docs upstream:bank"}), mode) as client:
            with pytest.raises(MCPError) as ambiguity:
                await client.read_resource("x://shared")
            assert ambiguity.value.error.data["names"] == ["docs+x://shared", "bank+x://shared"]
            with pytest.raises(MCPError, match="docs__refresh or bank__refresh") as refusal:
                await client.call_tool("refresh", {})
            assert "till" not in f"{ambiguity.value.error} {refusal.value.error}"
        async with client_with(url, sign_token(issuer.base, {"scope": "read"}), mode) as client:
            with pytest.raises(MCPError, match="needs the scope upstream:"):
                await client.read_resource("x://shared")


@pytest.mark.requirement("oauth.scopes")
async def test_a_client_that_may_run_commands_can_read_the_output_of_its_background_jobs(
    root: Path, tmp_path: Path, issuer: ScriptedIssuer
) -> None:
    async with (
        server_trusting(root, tmp_path, issuer, permissions={"allow": ["Bash"]}) as url,
        client_with(url, sign_token(issuer.base, {"scope": "run"})) as client,
    ):
        assert await names_of(client) == {
            *("run_shell_command", "list_background_jobs", "read_background_output", "stop_background_job")
        }
        job_result = await client.call_tool(
            "run_shell_command", {"command": "echo said; sleep 300", "is_background": True}
        )
        assert not job_result.is_error, job_result.content
        assert "echo said" in str((await client.call_tool("list_background_jobs", {})).content)


@pytest.mark.requirement("oauth.principals")
async def test_a_remote_persons_roots_give_access_to_no_folder_of_this_machine(
    tmp_path: Path, issuer: ScriptedIssuer
) -> None:
    (private := tmp_path / "private").mkdir()
    (private / "key.txt").write_text("a key")
    (own := tmp_path / "own").mkdir()

    async def roots(context: object) -> types.ListRootsResult:
        del context
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(f"file://{private}"))])

    oauth = {"issuer": issuer.base, "resource": RESOURCE, "principals": {"bob": {"workspace": [str(own)]}}}
    token = {"token": "t" * 30}
    (tmp_path / "token").write_text(token["token"])
    (tmp_path / "token").chmod(0o600)
    tokens = {"laptop": {"file": str(tmp_path / "token")}}
    config = write_config(tmp_path, {"http": {"oauth": oauth, "tokens": tokens}, "shell": {"sandbox": "off"}})
    people = {name: sign_token(issuer.base, {"sub": name}) for name in ("alice", "bob")}
    async with serving(None, config) as url:
        for name, bearer_token in {**people, "laptop": token["token"]}.items():
            async with (
                httpx2.AsyncClient(headers={"authorization": f"Bearer {bearer_token}"}, timeout=30) as http,
                Client(
                    streamable_http_client(f"{url}/mcp", http_client=http),
                    mode=HANDSHAKE,
                    cache=None,
                    list_roots_callback=roots,
                ) as client,
            ):
                read_result = await client.call_tool("read_file", {"absolute_path": str(private / "key.txt")})
                # The token in the settings belongs to somebody whom the operator knows.
                assert ("a key" in str(read_result.content)) == (name == "laptop"), name


@pytest.mark.requirement("network.tokens")
async def test_of_two_tokens_in_one_request_neither_counts(root: Path, tmp_path: Path, issuer: ScriptedIssuer) -> None:
    alice, bob = (sign_token(issuer.base, {"sub": name}) for name in ("alice", "bob"))
    async with server_trusting(root, tmp_path, issuer) as url, httpx2.AsyncClient(base_url=url) as http:
        for request_tokens in ((alice,), (alice, bob), (alice, alice), ("x", alice), (alice, "x")):
            headers = [*ACCEPT.items(), *(("authorization", f"Bearer {token}") for token in request_tokens)]
            answer = await http.post("/mcp", json=INITIALIZE, headers=headers)
            assert answer.status_code == (200 if len(request_tokens) == 1 else 401), request_tokens


@pytest.mark.requirement("network.profiles")
@pytest.mark.parametrize("command", [("config", "check"), ("doctor",)])
def test_a_mistake_in_a_rule_of_a_token_is_reported_like_one_in_a_general_rule(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    tokens = {"bot": {"env": "BOT", "rules": {"allow": ["Edit(("], "deny": ["Read("]}}}
    oauth = {
        "issuer": "https://login.example.com",
        "resource": RESOURCE,
        "principals": {"ada": {"rules": {"ask": ["Bash("]}}},
    }
    config = write_config(tmp_path, {"http": {"tokens": tokens, "oauth": oauth}})
    arguments = command_line(*command, "--config", str(config))
    process = subprocess.run(
        arguments, check=False, capture_output=True, text=True, timeout=CEILING, env={**os.environ, "BOT": "b" * 30}
    )
    output = process.stdout + process.stderr
    assert "http.tokens.bot.rules.allow: the rule 'Edit((' is ignored" in output
    assert "http.tokens.bot.rules.deny: the rule 'Read(' applies to every call to Read" in output
    assert "http.oauth.principals.ada.rules.ask: the rule 'Bash(' applies to every call to Bash" in output
    assert process.returncode == 0, "a mistake in a rule must not be an error"
