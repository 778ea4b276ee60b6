"""Files of the workspace as resources: URIs, contents, errors and completion, over real clients in every revision."""

from __future__ import annotations

import base64
import os
from pathlib import Path, PureWindowsPath
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate

from server.protocol.file_uris import (
    FILE_TEMPLATE,
    MAX_URI_CHARS,
    UriRefusedError,
    path_of_uri,
    template_value,
    typed_path,
)
from server.requests.prompts_and_resources import RESOURCE_NOT_FOUND
from tests.harness import HANDSHAKE, HANDSHAKES, MODERN, REVISIONS, in_memory, write_config
from tools.builtin.internal_file_tools import MAX_BLOB_BYTES
from tools.files.read.media_files import MAX_INLINE_BYTES

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20
TEMPLATE = types.ResourceTemplateReference(uri=FILE_TEMPLATE)


async def contents_of(client: Client, uri: str) -> types.TextResourceContents | types.BlobResourceContents:
    (contents,) = (await client.read_resource(uri)).contents
    assert contents.uri == uri
    return contents


async def text_of(client: Client, uri: str) -> str:
    contents = await contents_of(client, uri)
    assert isinstance(contents, types.TextResourceContents)
    return contents.text


async def refusal(client: Client, uri: str) -> Any:
    with pytest.raises(MCPError) as error_info:
        await client.read_resource(uri)
    return error_info.value.error


async def completions(client: Client, value: str) -> list[str]:
    return (await client.complete(TEMPLATE, {"name": "path", "value": value})).completion.values


@pytest.mark.requirement("resources.template")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_a_file_is_reached_by_expanding_the_template(mode: str, root: Path) -> None:
    (root / "read me.md").write_text("# Title\n")
    async with in_memory(mode, root) as client:
        assert (await client.list_resources()).resources == []
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == FILE_TEMPLATE
        (value,) = await completions(client, f"{root}/read"[1:])
        uri = UriTemplate.parse(template.uri_template).expand({"path": value})
        assert uri == (root / "read me.md").as_uri()
        contents = await contents_of(client, uri)
        assert isinstance(contents, types.TextResourceContents)
        assert (contents.text, contents.mime_type) == ("# Title\n", "text/markdown")


@pytest.mark.requirement("resources.contents")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_text_comes_as_text_and_everything_else_as_its_bytes(mode: str, root: Path, tmp_path: Path) -> None:
    texts = {"a.py": "text/x-python", "b.svg": "image/svg+xml", "c": "text/plain", "d.json": "application/json"}
    blobs = {
        "a.png": (PNG, "image/png"),
        "b.wav": (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        "c.bin": (bytes(range(256)), "application/octet-stream"),
        "d.pdf": (b"%PDF-1.4\n%\xff\n", "application/pdf"),
    }
    for name in texts:
        (root / name).write_text(f"<!-- {name} -->\n")
    for name, (data, _) in blobs.items():
        (root / name).write_bytes(data)
    # This setting limits the media in results. A client that asks for the file itself still gets it.
    config = write_config(tmp_path, {"media": "notice"})
    async with in_memory(mode, root, config) as client:
        for name, mime_type in texts.items():
            contents = await contents_of(client, (root / name).as_uri())
            assert isinstance(contents, types.TextResourceContents)
            assert (contents.text, contents.mime_type) == (f"<!-- {name} -->\n", mime_type)
        for name, (data, mime_type) in blobs.items():
            contents = await contents_of(client, (root / name).as_uri())
            assert isinstance(contents, types.BlobResourceContents)
            assert (base64.b64decode(contents.blob), contents.mime_type) == (data, mime_type)


@pytest.mark.requirement("resources.contents")
async def test_the_link_in_a_result_leads_to_the_resource(root: Path) -> None:
    data = PNG + bytes(MAX_INLINE_BYTES)
    (root / "large ä.png").write_bytes(data)
    async with in_memory(HANDSHAKE, root) as client:
        result = await client.call_tool("read_file", {"file_path": "large ä.png"})
        (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
        contents = await contents_of(client, link.uri)
    assert isinstance(contents, types.BlobResourceContents)
    assert base64.b64decode(contents.blob) == data


@pytest.mark.requirement("resources.contents")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_long_text_is_cut_as_by_read_file_and_large_binaries_are_refused(mode: str, root: Path) -> None:
    (root / "long.txt").write_text("line\n" * 1_000_000)
    with (root / "huge.bin").open("wb") as huge:
        huge.truncate(MAX_BLOB_BYTES + 1)
    async with in_memory(mode, root) as client:
        contents = await contents_of(client, (root / "long.txt").as_uri())
        assert isinstance(contents, types.TextResourceContents)
        assert len(contents.text) < 30_000
        assert contents.text.startswith("Showing lines 1-2000 of 1000000 total lines.")
        facts = (contents.meta or {})["coretools-mcp/facts"]
        assert (facts["truncated"], facts["next_offset"]) == (True, 2_000)
        error = await refusal(client, (root / "huge.bin").as_uri())
    assert error.code == types.INVALID_PARAMS
    assert error.data["type"] == "file_too_large"


@pytest.mark.requirement("resources.uris")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_odd_names_are_encoded_byte_by_byte_and_come_back(mode: str, root: Path) -> None:
    names = ["a b.txt", "ä.txt", "100%.txt", "a%20b.txt", "q?.txt", "h#.txt", "new\nline.txt", "back\\slash.txt", "~"]
    names += [os.fsdecode(b"no-utf8-\xff.txt"), " blank ", "%2e%2e"]
    for name in names:
        (root / name).write_text(ascii(name))
    async with in_memory(mode, root) as client:
        for name in names:
            assert await text_of(client, (root / name).as_uri()) == ascii(name)
        values = await completions(client, f"{root}/")
        assert len(values) == len(names)
        for value in values:
            uri = UriTemplate.parse(FILE_TEMPLATE).expand({"path": value})
            assert await text_of(client, uri) in map(ascii, names), value
        assert await text_of(client, f"file://localhost{root}/a b.txt") == ascii("a b.txt")
        # The URI is decoded only once, so a name that looks encoded is not taken for another.
        assert await text_of(client, f"file://{root}/a%2520b.txt") == ascii("a%20b.txt")
        assert (await refusal(client, f"file://{root}/back%5C%5Cslash.txt")).data["type"] == "file_not_found"


@pytest.mark.requirement("resources.refused")
@pytest.mark.parametrize(
    ("mode", "not_found"),
    [*((revision, RESOURCE_NOT_FOUND) for revision in HANDSHAKES), (MODERN, types.INVALID_PARAMS)],
)
async def test_what_is_no_resource_is_refused_with_the_code_of_the_revision(
    mode: str, not_found: int, root: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("classified\n")
    (root / "link.txt").symlink_to(secret)
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    (root / ".qwenignore").write_text("hidden/\n")
    (root / "hidden").mkdir()
    (root / "hidden" / "a.txt").write_text("classified\n")
    (root / "laundered.txt").symlink_to(root / "hidden" / "a.txt")
    os.mkfifo(root / "pipe")
    (root / "my file.txt").write_text("x")
    root_uri = root.as_uri()
    absent_uris = [
        f"{root_uri}/absent.txt",
        f"{root_uri}/link.txt",
        f"{root_uri}/out/secret.txt",
        f"{root_uri}/hidden/a.txt",
        f"{root_uri}/laundered.txt",
        f"{root_uri}/pipe",
        f"{root_uri}/loop",
        f"{root_uri}/my%5C%20file.txt",
        root_uri,
        f"{root_uri}/",
        secret.as_uri(),
        "file:///etc/passwd",
        "file:///",
        "file:////etc/passwd",
        "file://localhost/etc/passwd",
        "file:///~/.ssh/id_rsa",
        "file:///dev/zero",
        "file:///proc/self/environ",
        "file:///{+path}",
    ]
    malformed_uris = [
        "file://evil/etc/passwd",
        "file://127.0.0.1/etc/passwd",
        "file://user@localhost/etc/passwd",
        f"{root_uri}/../secret.txt",
        f"{root_uri}/%2e%2e/secret.txt",
        f"{root_uri}/%2E%2E%2Fsecret.txt",
        f"{root_uri}/out/../a.txt",
        f"{root_uri}/a%00.txt",
        f"{root_uri}/a.txt?x=1",
        f"{root_uri}/a.txt#top",
        "http://localhost/etc/passwd",
        "/etc/passwd",
        "file:etc/passwd",
        "file://",
        "",
        "file:///" + "a" * 20_000,
    ]
    async with in_memory(mode, root) as client:
        for uri in absent_uris:
            error = await refusal(client, uri)
            assert error.code == not_found, uri
            assert error.data["uri"] == uri
            assert "classified" not in str(error)
        for uri in malformed_uris:
            error = await refusal(client, uri)
            assert error.code == types.INVALID_PARAMS, uri
            assert error.data == {"uri": uri[:MAX_URI_CHARS]}, "refused before anything was looked for"
        error = await refusal(client, f"{root_uri}/{'a' * 300}")
        assert error.code in (types.INVALID_PARAMS, not_found)
        # The answer does not show whether a file outside the workspace exists.
        outside_error = await refusal(client, secret.as_uri())
        absent_error = await refusal(client, secret.with_name("absent.txt").as_uri())
        assert outside_error.message.replace("secret.txt", "absent.txt") == absent_error.message


@pytest.mark.requirement("resources.ledger")
async def test_reading_a_resource_does_not_count_as_reading_before_an_edit(root: Path) -> None:
    path = root / "a.txt"
    path.write_text("one\n")
    edit = {"file_path": str(path), "old_string": "one", "new_string": "two"}
    async with in_memory(HANDSHAKE, root) as client:
        await client.call_tool("read_file", {"file_path": str(path)})
        path.write_text("one and more\n")
        # Now the person has seen the change, but the model has not, and must read the file again.
        assert await text_of(client, path.as_uri()) == "one and more\n"
        result = await client.call_tool("edit", edit)
    assert result.is_error
    assert (result.meta or {})["coretools-mcp/error"]["type"] == "file_changed_since_read"


@pytest.mark.requirement("resources.template")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_the_templates_path_is_completed_to_absolute_paths(mode: str, root: Path, tmp_path: Path) -> None:
    (root / "src").mkdir()
    for name in ("src/app.py", "README.md", "who?.txt"):
        (root / name).write_text("x")
    (tmp_path / "outside.txt").write_text("x")
    (root / "readable").symlink_to(tmp_path / "outside.txt")
    base = str(root)[1:]
    async with in_memory(mode, root) as client:
        assert await completions(client, "") == [
            f"{base}/",
            f"{base}/src/",
            f"{base}/README.md",
            f"{base}/who%3F.txt",
        ]
        assert await completions(client, f"{base}/") == [
            f"{base}/src/",
            f"{base}/README.md",
            f"{base}/who%3F.txt",
        ]
        assert await completions(client, f"/{base}/src/a") == [f"{base}/src/app.py"]
        assert await completions(client, base[:-2]) == [f"{base}/"]
        for relative in ("READ", "src/a", "app", "who%3F"):
            (value,) = await completions(client, relative)
            assert value.startswith(f"{base}/"), relative
        for line in ("etc/pass", f"{base}/../", f"{base}/src/../", "a%00", "x" * 20_000):
            assert await completions(client, line) == [], line[:20]
        inspector = await client.complete(TEMPLATE, {"name": "+path", "value": "READ"})
        assert inspector.completion.values == [f"{base}/README.md"], "the client took the operator as part of the name"
        with pytest.raises(MCPError):
            await client.complete(types.ResourceTemplateReference(uri="file:///{other}"), {"name": "path", "value": ""})


@pytest.mark.requirement("resources.uris")
@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("C:\\src\\a b.txt", "file:///C:/src/a%20b.txt"),
        ("d:\\ä\\100%.txt", "file:///d:/%C3%A4/100%25.txt"),
        ("C:\\a#b\\q.txt", "file:///C:/a%23b/q.txt"),
    ],
)
def test_a_windows_path_becomes_a_uri_and_a_path_again(path: str, uri: str) -> None:
    assert path_of_uri(uri, windows=True) == path
    value = template_value(path, windows=True)
    assert UriTemplate.parse(FILE_TEMPLATE).expand({"path": value}).replace("c%3A", "c:") == uri
    assert PureWindowsPath(typed_path(value, windows=True)) == PureWindowsPath(path)


@pytest.mark.requirement("resources.uris")
@pytest.mark.parametrize(
    "uri",
    [
        "file:///src/a.txt",
        "file:///C:",
        "file://server/share/a.txt",
        "file:////server/share/a.txt",
        "file:///C:/a/..%5C..%5Cb",
        "file:///C:/%FF.txt",
    ],
)
def test_on_windows_a_uri_needs_a_drive_and_text(uri: str) -> None:
    with pytest.raises(UriRefusedError):
        path_of_uri(uri, windows=True)


@pytest.mark.requirement("resources.uris")
def test_a_uri_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(UriRefusedError):
        path_of_uri("file:///a\udcff.txt")
