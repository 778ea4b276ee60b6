"""What the conformance suite takes for a client that logs in: our server, with a person before it.

`login_client.py COMMAND... FOLDER URL`, where COMMAND starts our server over stdio, and a file in FOLDER with the name
of the scenario says that not all calls have succeeded. The suite says in the environment which scenario it is, in which
revision, and what a client knows before. Our server gets an entry for the suite's server, and a client that opens every
address it is shown; all tools are called until none is left that wants a login. The suite judges by what its servers
have seen.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.background_servers import free_port
from tests.conformance.suite import is_login_scenario

MODERN = "2026-07-28"

ALIAS = "fixture"
LOGIN = f"{ALIAS}__login"

ROUNDS = 3
"""A login, a further one for more rights or at another server, and one to see that it is not asked for again."""


def oauth(scenario: str, known: dict[str, str]) -> dict[str, Any]:
    """What our settings say of a login, from what the suite says that a client knows."""
    said: dict[str, Any] = {}
    if "client_id" in known:
        said["clientId"] = known["client_id"]
    if "client_secret" in known:
        said["clientSecret"] = known["client_secret"]
    if "private_key_pem" in known:
        said["privateKey"] = known["private_key_pem"]
        said["signingAlgorithm"] = known.get("signing_algorithm", "ES256")
    if scenario.startswith("auth/client-credentials"):
        said["grant"] = "client-credentials"
    if scenario == "auth/basic-cimd":
        said["clientMetadataUrl"] = "https://conformance-test.local/client-metadata.json"
    return said


async def look(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Be the person, who opens an address and agrees."""
    del context
    assert isinstance(params, types.ElicitRequestURLParams)
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(params.url)
    return types.ElicitResult(action="accept")


async def run(command: list[str], url: str, folder: Path) -> bool:
    """Whether every call has succeeded in the end."""
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    is_modern = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] == MODERN
    entry = {
        "httpUrl": url,
        "trust": True,
        "protocol": MODERN if is_modern else "legacy",
        "oauth": oauth(scenario, json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))),
    }
    config = folder / "config.json"
    proxy = {"loginPort": free_port(), "firstListWait": 30_000}
    config.write_text(json.dumps({"mcpServers": {ALIAS: entry}, "proxy": proxy}))
    program, *arguments = command
    arguments += ["--config", str(config)]
    parameters = StdioServerParameters(
        command=program, args=arguments, env={"XDG_STATE_HOME": str(folder / "state")}, cwd=folder
    )
    mode = MODERN if is_modern else "legacy"
    async with Client(stdio_client(parameters), mode=mode, cache=None, elicitation_callback=look) as client:
        for _ in range(ROUNDS):
            names = [tool.name for tool in (await client.list_tools()).tools]
            results = [await client.call_tool(name, {}) for name in names]
            sys.stderr.write("".join(f"{name}: {result}\n" for name, result in zip(names, results, strict=True)))
            if names and LOGIN not in names:
                return not any(result.is_error for result in results)
    return False


def main() -> int:
    """Be the client; what is no scenario of logins fails at once."""
    *command, notes, url = sys.argv[1:]
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if not is_login_scenario(scenario):
        return 1
    failed = Path(notes, scenario.removeprefix("auth/"))
    failed.touch()
    with tempfile.TemporaryDirectory() as folder:
        if anyio.run(run, command, url, Path(folder)):
            failed.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
