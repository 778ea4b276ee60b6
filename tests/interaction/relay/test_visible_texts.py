"""What people and models read of an upstream shows every character; what names something stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.upstreams.session.list_reader import tool_with_visible_texts
from tests.interaction.relay.clients import Json, listing_entry, proxy_client

HIDING = "A\u202eB\u200b"
SHOWN = "A<U+202E>B<U+200B>"

TEXTS = {"title": HIDING, "description": HIDING}
READ = {"title": SHOWN, "description": SHOWN}


@pytest.mark.anyio
@pytest.mark.requirement("proxy.visible_texts")
async def test_prompts_resources_and_templates_hide_nothing_in_their_texts(tmp_path: Path) -> None:
    argument = {"name": HIDING, **TEXTS, "required": True}
    server = listing_entry(
        "up",
        prompts=[{"name": "greet", **TEXTS, "arguments": [argument]}],
        resources=[{"uri": f"memo://{HIDING}", "name": HIDING, **TEXTS, "mimeType": "text/plain"}],
        resourceTemplates=[{"uriTemplate": f"memo://{HIDING}/{{x}}", "name": HIDING, **TEXTS}],
    )
    async with proxy_client(tmp_path, {"up": server}, "handshake") as client:
        (prompt,) = (await client.items_by_name("prompts")).values()
        (resource,) = (await client.items_by_name("resources")).values()
        (template,) = (await client.items_by_name("resourceTemplates")).values()
        read = await client.request("resources/read", {"uri": f"memo://{HIDING}"})
    for item in (prompt, resource, template):
        assert {key: item[key] for key in READ} == READ
    assert prompt["arguments"] == [{"name": HIDING, **READ, "required": True}]
    assert (resource["uri"], resource["name"]) == (f"memo://{HIDING}", SHOWN)
    assert (template["uriTemplate"], template["name"]) == (f"memo://{HIDING}/{{x}}", SHOWN)
    assert read["contents"][0]["text"] == "from up"


@pytest.mark.anyio
@pytest.mark.requirement("proxy.visible_texts")
async def test_the_status_of_a_server_hides_nothing_that_it_says_of_itself(tmp_path: Path) -> None:
    server = listing_entry(HIDING)
    async with proxy_client(tmp_path, {"up": server}, "handshake", settings={"tools": {"builtIn": True}}) as client:
        (content,) = (await client.request("resources/read", {"uri": "coretools://upstreams"}))["contents"]
    assert SHOWN in content["text"]


@pytest.mark.requirement("proxy.visible_texts")
def test_a_schema_hides_nothing_in_its_texts_and_its_values_stay() -> None:
    values: Json = {"enum": [HIDING], "const": HIDING, "default": HIDING}
    texts: Json = {**TEXTS, "markdownDescription": HIDING, "enumNames": [HIDING], "enumDescriptions": [HIDING, 1]}
    schema: Json = {"type": "object", "properties": {"description": {**texts, **values}, "enumNames": {**TEXTS}}}
    shown = tool_with_visible_texts({"name": "t", "inputSchema": schema})["inputSchema"]["properties"]
    read: Json = {**READ, "markdownDescription": SHOWN, "enumNames": [SHOWN], "enumDescriptions": [SHOWN, 1]}
    assert shown == {"description": {**read, **values}, "enumNames": READ}
