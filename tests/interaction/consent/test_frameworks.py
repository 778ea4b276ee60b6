"""Agent frameworks, which have no dialog. The server knows them by the names that they give themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from server.questions.client_confirmer import FRAMEWORKS
from tests.harness import ROOT, write_config
from tests.in_process import in_process
from tests.interaction.relay.clients import Json, accept_forms, app_of, client_on

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("consent.frameworks")]

PERSONAL_CLIENTS = ("claude-code", "gemini-cli-mcp-client", "MCP", "mcp-client", "Visual Studio Code")
FORMS: Json = {"elicitation": {"form": {}}}
LINKS: Json = {"elicitation": {"url": {}}}


async def outcome(tmp_path: Path, era: str, name: str, capabilities: Json, **settings: Any) -> str:
    """Make a call that needs consent. Return `edited`, or the text of the refusal."""
    file = tmp_path / "a.txt"
    file.unlink(missing_ok=True)
    config = write_config(tmp_path, {"workspace": {"roots": [str(tmp_path)]}, **settings})
    app = app_of(config)
    async with (
        app.running(),
        client_on(in_process(app), era, capabilities, accept_forms({"decision": "once"}), name=name) as client,
    ):
        result = await client.call("write_file", {"file_path": str(file), "content": "x"})
    return "edited" if file.exists() else result["content"][0]["text"]


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_framework_without_a_dialog_is_refused_and_every_other_client_asks_by_itself(
    era: str, tmp_path: Path
) -> None:
    for name in FRAMEWORKS:
        for capabilities in (Json(), LINKS):
            refusal = await outcome(tmp_path, era, name, capabilities)
            assert f"it calls itself '{name}'" in refusal
            assert "confirmation.whenUnavailable" in refusal
            assert "[execution_denied]" in refusal
        assert await outcome(tmp_path, era, name, FORMS) == "edited"
    for name in PERSONAL_CLIENTS:
        assert await outcome(tmp_path, era, name, {}) == "edited", name
    confirmation = {"whenUnavailable": "client"}
    assert await outcome(tmp_path, era, "mcp", {}, confirmation=confirmation) == "edited"
    refusal = await outcome(tmp_path, era, "claude-code", {}, confirmation={"whenUnavailable": "deny"})
    assert "calls itself" not in refusal


def test_the_page_on_permissions_lists_the_frameworks() -> None:
    page = (ROOT / "docs" / "permissions.md").read_text(encoding="utf-8")
    table = re.findall(
        r"^\| `([^`]+)` \| (.+) \|$", page.partition("### Agent frameworks")[2].partition("## Rules")[0], re.MULTILINE
    )
    assert dict(table) == dict(FRAMEWORKS)
