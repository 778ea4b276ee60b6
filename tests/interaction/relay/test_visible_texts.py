"""Texts of an upstream for people and models show every character; identifiers stay unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.upstreams.session.list_reader import tool_with_visible_texts
from tests.interaction.relay.clients import Json, listing_entry, proxy_client

HIDDEN = "A\u202eB\u200b"
VISIBLE = "A<U+202E>B<U+200B>"

HIDDEN_TEXTS = {"title": HIDDEN, "description": HIDDEN}
VISIBLE_TEXTS = {"title": VISIBLE, "description": VISIBLE}


@pytest.mark.anyio
@pytest.mark.requirement("proxy.visible_texts")
async def test_texts_of_prompts_resources_and_templates_hide_nothing(tmp_path: Path) -> None:
    argument = {"name": HIDDEN, **HIDDEN_TEXTS, "required": True}
    server = listing_entry(
        "up",
        prompts=[{"name": "greet", **HIDDEN_TEXTS, "arguments": [argument]}],
        resources=[{"uri": f"memo://{HIDDEN}", "name": HIDDEN, **HIDDEN_TEXTS, "mimeType": "text/plain"}],
        resourceTemplates=[{"uriTemplate": f"memo://{HIDDEN}/{{x}}", "name": HIDDEN, **HIDDEN_TEXTS}],
    )
    async with proxy_client(tmp_path, {"up": server}, "handshake") as client:
        (prompt,) = (await client.items_by_name("prompts")).values()
        (resource,) = (await client.items_by_name("resources")).values()
        (template,) = (await client.items_by_name("resourceTemplates")).values()
        result = await client.request("resources/read", {"uri": f"memo://{HIDDEN}"})
    for item in (prompt, resource, template):
        assert {key: item[key] for key in VISIBLE_TEXTS} == VISIBLE_TEXTS
    assert prompt["arguments"] == [{"name": HIDDEN, **VISIBLE_TEXTS, "required": True}]
    assert (resource["uri"], resource["name"]) == (f"memo://{HIDDEN}", VISIBLE)
    assert (template["uriTemplate"], template["name"]) == (f"memo://{HIDDEN}/{{x}}", VISIBLE)
    assert result["contents"][0]["text"] == "from up"


@pytest.mark.anyio
@pytest.mark.requirement("proxy.visible_texts")
async def test_a_servers_own_texts_in_its_status_hide_nothing(tmp_path: Path) -> None:
    server = listing_entry(HIDDEN)
    async with proxy_client(tmp_path, {"up": server}, "handshake", settings={"tools": {"builtIn": True}}) as client:
        (content,) = (await client.request("resources/read", {"uri": "coretools://upstreams"}))["contents"]
    assert VISIBLE in content["text"]


@pytest.mark.requirement("proxy.visible_texts")
def test_texts_of_a_schema_hide_nothing_and_its_values_stay() -> None:
    values: Json = {"enum": [HIDDEN], "const": HIDDEN, "default": HIDDEN}
    hidden_texts: Json = {
        **HIDDEN_TEXTS,
        "markdownDescription": HIDDEN,
        "enumNames": [HIDDEN],
        "enumDescriptions": [HIDDEN, 1],
    }
    schema: Json = {
        "type": "object",
        "properties": {"description": {**hidden_texts, **values}, "enumNames": {**HIDDEN_TEXTS}},
    }
    visible_properties = tool_with_visible_texts({"name": "t", "inputSchema": schema})["inputSchema"]["properties"]
    visible_texts: Json = {
        **VISIBLE_TEXTS,
        "markdownDescription": VISIBLE,
        "enumNames": [VISIBLE],
        "enumDescriptions": [VISIBLE, 1],
    }
    assert visible_properties == {"description": {**visible_texts, **values}, "enumNames": VISIBLE_TEXTS}
