"""The client that the conformance suite tests in its login scenarios: the product, with a simulated person.

Usage: `login_client.py COMMAND... FOLDER URL`. COMMAND starts the product over stdio. URL is the suite's server, which
the product gets as its upstream. The client opens every link that it is shown, and calls all tools until none needs a
login. If not all calls succeed, it leaves a file in FOLDER with the name of the scenario.

The suite sets the scenario, the revision, and the client's prior knowledge in the environment. It judges by the
requests that its servers get.
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
"""Rounds of calls: one for a login, one for another login (for more rights or at another server), and one without."""


def oauth_settings(scenario: str, client_context: dict[str, str]) -> dict[str, Any]:
    """Return the product's login settings for what the suite says the client knows."""
    settings: dict[str, Any] = {}
    if "client_id" in client_context:
        settings["clientId"] = client_context["client_id"]
    if "client_secret" in client_context:
        settings["clientSecret"] = client_context["client_secret"]
    if "private_key_pem" in client_context:
        settings["privateKey"] = client_context["private_key_pem"]
        settings["signingAlgorithm"] = client_context.get("signing_algorithm", "ES256")
    if scenario.startswith("auth/client-credentials"):
        settings["grant"] = "client-credentials"
    if scenario == "auth/basic-cimd":
        settings["clientMetadataUrl"] = "https://conformance-test.local/client-metadata.json"
    return settings


async def accept_url(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Act as the person: open the link and agree."""
    del context
    assert isinstance(params, types.ElicitRequestURLParams)
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(params.url)
    return types.ElicitResult(action="accept")


async def run(command: list[str], url: str, folder: Path) -> bool:
    """Run all rounds, and return whether every call of the last round succeeded."""
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    is_modern = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] == MODERN
    entry = {
        "httpUrl": url,
        "trust": True,
        "protocol": MODERN if is_modern else "legacy",
        "oauth": oauth_settings(scenario, json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))),
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
    async with Client(stdio_client(parameters), mode=mode, cache=None, elicitation_callback=accept_url) as client:
        for _ in range(ROUNDS):
            names = [tool.name for tool in (await client.list_tools()).tools]
            results = [await client.call_tool(name, {}) for name in names]
            sys.stderr.write("".join(f"{name}: {result}\n" for name, result in zip(names, results, strict=True)))
            if names and LOGIN not in names:
                return not any(result.is_error for result in results)
    return False


def main() -> int:
    """Run as the client. Scenarios that are not supported login scenarios fail at once."""
    *command, notes, url = sys.argv[1:]
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if not is_login_scenario(scenario):
        return 1
    failure_note = Path(notes, scenario.removeprefix("auth/"))
    failure_note.touch()
    with tempfile.TemporaryDirectory() as folder:
        if anyio.run(run, command, url, Path(folder)):
            failure_note.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
