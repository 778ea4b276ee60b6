"""The prompt `at`, which is `@` for any client, and its completion, in every protocol revision."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from server.protocol.request_table import RequestTable
from server.questions.client_confirmer import ConsentPolicy
from server.requests.prompts_and_resources import FileRequests, MemoryResources
from server.store.replica import lone_replica
from tests.harness import HANDSHAKE, HANDSHAKES, MODERN, REVISIONS, in_memory, write_config
from tests.image_files import png
from tests.in_process import in_process
from tests.interaction.test_lifecycle import INITIALIZED, running
from tests.interaction.test_revisions import initialize
from tools.builtin.all_tools import builtin_tools
from tools.builtin.todo_write import TodoLists
from tools.call.base_tool import ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.memory.memory_files import MemoryFiles
from tools.permissions.permission_policy import Permission, PermissionPolicy, Verdict

pytestmark = pytest.mark.anyio

PNG = png()
AT = types.PromptReference(name="at")


async def prompt_result(client: Client, paths: str) -> types.GetPromptResult:
    return await client.get_prompt("at", {"paths": paths})


async def at_text(client: Client, paths: str) -> str:
    """Return the text of the first message, which is all that some clients use."""
    result = await prompt_result(client, paths)
    assert {message.role for message in result.messages} == {"user"}
    first_content = result.messages[0].content
    assert isinstance(first_content, types.TextContent)
    return first_content.text


async def refusal(client: Client, paths: str) -> MCPError:
    with pytest.raises(MCPError) as error_info:
        await prompt_result(client, paths)
    return error_info.value


async def completions(client: Client, line: str) -> list[str]:
    result = await client.complete(AT, {"name": "paths", "value": line})
    return result.completion.values


@pytest.mark.requirement("at.prompt")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_several_paths_folders_and_globs_come_in_one_text(mode: str, root: Path) -> None:
    for path in ("src/app.ts", "src/view.tsx", "src/style.css", "docs/my notes.md", "docs/a,b.md"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(f"in {path}\n")
    async with in_memory(mode, root) as client:
        text = await at_text(client, '@src/*.{ts,tsx}, "docs/my notes.md"')
        assert [line for line in text.splitlines() if line.startswith("in ")] == [
            "in docs/my notes.md",
            "in src/app.ts",
            "in src/view.tsx",
        ]
        assert text.endswith("--- End of content ---")
        for line in ("src", "src/", f"@{root}/src", "./src/"):
            assert "in src/style.css" in await at_text(client, line)
        for line in (r"docs/my\ notes.md", "@'docs/my notes.md'", (root / "docs/my notes.md").as_uri()):
            assert "in docs/my notes.md" in await at_text(client, line)
        assert "in docs/a,b.md" in await at_text(client, '@"docs/a,b.md"')
        result = await prompt_result(client, "src")
        assert result.description == "Content of 3 files"
        assert (result.meta or {})["coretools-mcp/facts"]["files"] == [
            str(root / "src" / name) for name in ("app.ts", "style.css", "view.tsx")
        ]


@pytest.mark.requirement("at.typed")
async def test_a_path_whose_quotes_the_client_removed_is_still_read(root: Path) -> None:
    (root / "my notes.md").write_text("noted\n")
    async with in_memory(HANDSHAKE, root) as client:
        assert "noted" in await at_text(client, "@my notes.md")
        assert "noted" in await at_text(client, "my notes.md")
        error = await refusal(client, "my absent notes.md")
    assert "absent: does not exist" in error.error.message


@pytest.mark.requirement("at.prompt")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_media_follow_the_text_in_messages_of_their_own(mode: str, root: Path) -> None:
    (root / "a.png").write_bytes(PNG)
    (root / "b.wav").write_bytes(b"RIFF\0\0\0\0WAVEfmt ")
    (root / "c.txt").write_text("words\n")
    (root / "d.mp4").write_bytes(b"\0\0\0\x18ftypmp42\0\0\0\0")
    async with in_memory(mode, root) as client:
        result = await prompt_result(client, "a.png b.wav c.txt d.mp4")
    kinds = [message.content.type for message in result.messages]
    # The first revision has no audio yet.
    assert kinds == ["text", "image", "resource" if mode == "2024-11-05" else "audio", "resource"]
    text = result.messages[0].content
    assert isinstance(text, types.TextContent)
    assert f"{(root / 'a.png').as_uri()} (image/png) is attached" in text.text
    assert "words" in text.text
    video = result.messages[3].content
    assert isinstance(video, types.EmbeddedResource)
    assert video.resource.uri == (root / "d.mp4").as_uri()


@pytest.mark.requirement("at.prompt")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_what_cannot_be_read_is_an_error_that_says_why(mode: str, root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("classified\n")
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    os.mkfifo(root / "pipe")
    (root / ".coretoolsignore").write_text("hidden.txt\n")
    (root / "hidden.txt").write_text("classified\n")
    async with in_memory(mode, root) as client:
        for line, reason in (
            ("absent.txt", "absent.txt: does not exist"),
            ("link.txt", "outside the workspace"),
            (str(tmp_path / "outside.txt"), "outside the workspace"),
            ("../outside.txt", "outside the workspace"),
            ("pipe", "not a regular file"),
            ("hidden.txt", "hidden from agents by .coretoolsignore"),
            ("a" * 300, "a: "),
            ("a\0b", "NUL"),
            ('"open', "is not closed"),
            ("file://evil/etc/passwd", "another machine"),
            ("", "'paths' is required"),
            (" @ ,", "'paths' is required"),
        ):
            error = (await refusal(client, line)).error
            assert error.code == types.INVALID_PARAMS, line
            assert reason in error.message, line
            assert "classified" not in error.message
        with pytest.raises(MCPError, match="'paths' is required"):
            await client.get_prompt("at")
        with pytest.raises(MCPError, match=r"^Unknown prompt\. Use the exact names listed\.$"):
            await client.get_prompt("absent", {"paths": "a"})


@pytest.mark.requirement("at.uris")
async def test_a_uri_means_exactly_one_path(root: Path) -> None:
    for name in ("a1.txt", "a2.txt", "README.md", "quoted.txt", "blank.txt"):
        (root / name).write_text(f"content of {name}\n")
    absent = ["a%2A.txt", "a%3F.txt", "a%5B12%5D.txt", "%7Ba1,a2%7D.txt", "%2A%2A", "readme.md", "%22quoted.txt%22"]
    absent += ["%20blank.txt", "a%5C1.txt", "absent.txt"]
    async with in_memory(HANDSHAKE, root) as client:
        for name in absent:
            for line in (f"file://{root}/{name}", f"@file://{root}/{name} a1.txt"):
                error = (await refusal(client, line)).error
                assert (error.code, error.data) == (types.INVALID_PARAMS, {"type": "file_not_found"}), name
                assert "content of" not in error.message
        (root / "a*.txt").write_text("the star itself\n")
        text = await at_text(client, f"file://{root}/a%2A.txt README.md")
    assert "the star itself" in text
    assert "content of README.md" in text
    assert "content of a1.txt" not in text


@pytest.mark.requirement("at.uris")
async def test_a_uri_outside_the_workspace_is_refused_whether_or_not_the_file_exists(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside.txt").write_text("classified\n")
    async with in_memory(HANDSHAKE, root) as client:
        errors = [(await refusal(client, f"file://{tmp_path}/{name}.txt")).error for name in ("outside", "absenty")]
    assert [error.data for error in errors] == [{"type": "path_not_in_workspace"}] * 2
    assert errors[0].message.replace("outside.txt", "") == errors[1].message.replace("absenty.txt", "")


@pytest.mark.requirement("at.prompt")
async def test_the_text_names_the_files_that_were_left_out(root: Path) -> None:
    (root / "a.txt").write_text("words\n")
    async with in_memory(HANDSHAKE, root) as client:
        text = await at_text(client, "a.txt absent.txt")
    assert "words" in text
    assert "- absent.txt: does not exist" in text


@pytest.mark.requirement("at.prompt")
async def test_the_limits_of_read_many_files_hold(root: Path, tmp_path: Path) -> None:
    for number in range(4):
        (root / f"{number}.txt").write_text(f"content {number}\n")
    config = write_config(tmp_path, {"limits": {"readManyFiles": 2}})
    async with in_memory(HANDSHAKE, root, config) as client:
        text = await at_text(client, "*.txt")
    assert "content 1" in text
    assert "content 2" not in text
    assert "2 more files not read" in text


@pytest.mark.requirement("at.completion")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_the_last_path_is_completed_and_the_rest_of_the_line_kept(mode: str, root: Path) -> None:
    for path in ("src/app.py", "src/deep/x.py", "setup.py", "my notes.txt", "@types/x.ts", "a,b.txt"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    async with in_memory(mode, root) as client:
        assert await completions(client, "") == ["@@types/", "src/", '"a,b.txt"', '"my notes.txt"', "setup.py"]
        assert await completions(client, "@s") == ["@src/", "@setup.py"]
        assert await completions(client, "@setup.py, @src/") == ["@setup.py, @src/deep/", "@setup.py, @src/app.py"]
        assert await completions(client, 'x "my') == ['x "my notes.txt"']
        assert await completions(client, "@@t") == ["@@types/"]
        assert await completions(client, f"{root}/set") == [f"{root}/setup.py"]
        assert await completions(client, str(root)[:-3]) == [f"{root}/"]
        assert await completions(client, "app") == ["src/app.py"], "a file in a folder below was not found"
        for line in ("../", "/etc/pass", "absent/", "a\0", "x" * 20_000, "~root/"):
            assert await completions(client, line) == [], line[:20]
        for value in await completions(client, ""):
            assert "x" in await at_text(client, value)


@pytest.mark.requirement("at.completion")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_at_most_a_hundred_values_come_with_their_number(mode: str, root: Path) -> None:
    for number in range(150):
        (root / f"{number:03}.txt").write_text("")
    async with in_memory(mode, root) as client:
        completion = (await client.complete(AT, {"name": "paths", "value": ""})).completion
        assert (len(completion.values), completion.total, completion.has_more) == (100, 150, True)
        for ref, argument in ((AT, "absent"), (types.PromptReference(name="absent"), "paths")):
            with pytest.raises(MCPError) as error_info:
                await client.complete(ref, {"name": argument, "value": ""})
            assert error_info.value.error.code == types.INVALID_PARAMS


@pytest.mark.requirement("at.completion")
async def test_a_name_that_is_no_text_is_not_proposed_since_it_cannot_be_typed(root: Path) -> None:
    (root / os.fsdecode(b"odd\xff.txt")).write_text("x")
    (root / "odder.txt").write_text("x")
    async with in_memory(HANDSHAKE, root) as client:
        completion = (await client.complete(AT, {"name": "paths", "value": "odd"})).completion
    assert (completion.values, completion.total) == (["odder.txt"], 1)


@pytest.mark.requirement("at.permissions")
async def test_the_clients_roots_count_for_the_prompt_as_for_tools(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / f"in-{folder.name}.txt").write_text(f"{folder.name}\n")

    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(folder.as_uri())) for folder in (first, second)])

    async with in_memory(HANDSHAKE, None, list_roots_callback=roots) as client:
        assert await completions(client, "in-") == ["in-first.txt", "in-second.txt"]
        assert "second" in await at_text(client, "in-second.txt")


@pytest.mark.requirement("at.permissions")
async def test_without_a_workspace_the_error_names_the_setting(tmp_path: Path) -> None:
    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl((tmp_path / "absent").as_uri()))])

    async with in_memory(HANDSHAKE, None, list_roots_callback=roots) as client:
        for request in (
            prompt_result(client, "a.txt"),
            completions(client, "a"),
            client.read_resource("file:///a.txt"),
        ):
            with pytest.raises(MCPError, match="--workspace") as error_info:
                await request
            assert error_info.value.error.data["type"] == "no_workspace"


@pytest.mark.requirement("at.capabilities")
@pytest.mark.parametrize("revision", HANDSHAKES)
def test_every_handshake_revision_announces_prompts_resources_and_completions(revision: str, root: Path) -> None:
    (root / "a.txt").write_text("words\n")
    get = {"name": "at", "arguments": {"paths": "a.txt"}}
    with running(root) as server:
        server.send(initialize(revision), INITIALIZED)
        capabilities = server.answer()["result"]["capabilities"]
        assert capabilities["prompts"] == {"listChanged": False}
        assert capabilities["resources"] == {"listChanged": False, "subscribe": False}
        assert capabilities["completions"] == {}
        server.send({"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": get})
        result = server.answer()["result"]
        assert result["messages"][0]["content"]["text"].count("words") == 1
        assert "resultType" not in result


@pytest.mark.requirement("at.capabilities")
async def test_the_modern_revision_is_promised_no_notifications_that_never_come(root: Path) -> None:
    async with in_memory("auto", root) as client:
        assert client.protocol_version == MODERN
        capabilities = client.server_capabilities
    assert capabilities.prompts == types.PromptsCapability(list_changed=False)
    assert capabilities.resources == types.ResourcesCapability(subscribe=False, list_changed=False)
    assert capabilities.completions is not None


class AskingPolicy(PermissionPolicy):
    """Asks about every call."""

    def judge_details(self, *_: Any, **__: Any) -> Permission:
        return Permission(Verdict.ASK, "a rule")


def features_of(names: set[str], policy: PermissionPolicy, context: ToolContext) -> RequestTable:
    """Return a server that offers only the prompt, resources and completions of these built-in tools."""
    registry = ToolRegistry()
    for tool in builtin_tools():
        if tool.name in names:
            registry.register_tool(tool)

    async def context_of(_ctx: Any) -> ToolContext:
        return context

    table = RequestTable()
    consent = ConsentPolicy("client", 60, "form", lone_replica())
    memory = MemoryResources(MemoryFiles(), TodoLists())
    FileRequests(ToolRunner(registry, policy), context_of, lambda _: nullcontext(), consent, memory).register(table)
    return table


@pytest.mark.requirement("at.capabilities")
@pytest.mark.parametrize(
    ("names", "features"),
    [
        (set[str](), set[str]()),
        ({"read_many_files"}, {"prompts"}),
        ({"read_file"}, {"resources"}),
        ({"read_many_files", "list_directory"}, {"prompts", "completions"}),
        ({"list_directory"}, set[str]()),
    ],
)
async def test_only_what_the_tools_make_possible_is_announced(
    names: set[str], features: set[str], context: ToolContext
) -> None:
    async with Client(in_process(features_of(names, PermissionPolicy(), context)), mode=HANDSHAKE) as client:
        capabilities: Mapping[str, Any] = client.server_capabilities.model_dump(exclude_none=True)
    assert set(capabilities) & {"prompts", "resources", "completions"} == features


@pytest.mark.requirement("at.permissions")
@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_a_rule_that_asks_about_reading_asks_for_the_prompt_and_for_resources(
    mode: str, root: Path, context: ToolContext
) -> None:
    path = root / "a.txt"
    path.write_text("words\n")
    questions: list[str] = []
    decision = "once"

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": decision})

    server = features_of({"read_many_files", "read_file", "list_directory"}, AskingPolicy(), context)
    async with Client(in_process(server), mode=mode, elicitation_callback=person, cache=None) as client:
        assert "words" in await at_text(client, "a.txt")
        (contents,) = (await client.read_resource(path.as_uri())).contents
        assert isinstance(contents, types.TextResourceContents)
        assert contents.text == "words\n"
        assert len(questions) == 2
        assert "a.txt" in questions[0]
        assert await completions(client, "a") == [], "completion never asks the user, so nothing is listed"
        assert len(questions) == 2
        decision = "deny"
        for request in (prompt_result(client, "a.txt"), client.read_resource(path.as_uri())):
            with pytest.raises(MCPError, match="refused") as error_info:
                await request
            assert error_info.value.error.data["type"] == "execution_denied"


@pytest.mark.requirement("at.permissions")
async def test_an_internal_error_shows_the_client_no_details(context: ToolContext) -> None:
    class Broken(PermissionPolicy):
        def judge_details(self, *_: Any, **__: Any) -> Permission:
            raise RuntimeError("a secret of ours")

    server = features_of({"read_file", "list_directory"}, Broken(), context)
    async with Client(in_process(server), mode=HANDSHAKE) as client:
        with pytest.raises(MCPError) as error_info:
            await client.read_resource((Path(context.workspace.first_root) / "a.txt").as_uri())
    assert error_info.value.error.code == types.INTERNAL_ERROR
    assert "secret" not in str(error_info.value.error)
