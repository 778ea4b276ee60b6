"""The files that describe a release: the release check, server.json for the registry, and the desktop bundle."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from docs.release_check import BUNDLE, CHANGELOG, CODE, DESCRIPTIONS, IMAGE, MANIFEST, PYPROJECT, README, REGISTRY
from server.cli import parse
from tests.packaging.building import ROOT
from tests.variants import one_in
from tools.web.search_settings import SEARCH_VARIABLES

SERVER: dict[str, Any] = json.loads((ROOT / REGISTRY).read_text(encoding="utf-8"))
BUNDLE_MANIFEST: dict[str, Any] = json.loads((ROOT / MANIFEST).read_text(encoding="utf-8"))
VERSION: str = SERVER["version"]
OWNER: str = re.findall(r"\.([^.]+)/", SERVER["name"])[0]

TEXT = {"type": "string", "minLength": 1}
EXACT = {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"}
HTTPS = {"type": "string", "pattern": "^https://"}


def closed_object(required: list[str], /, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties only."""
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


INPUT = {"description": TEXT, "isRequired": {"type": "boolean"}, "isSecret": {"type": "boolean"}}
PACKAGE = closed_object(
    ["registryType", "identifier", "version", "transport"],
    registryType={"const": "pypi"},
    identifier=TEXT,
    version=EXACT,
    runtimeHint={"const": "uvx"},
    transport=closed_object(["type"], type={"const": "stdio"}),
    packageArguments={
        "type": "array",
        "items": closed_object(
            ["type", "name"],
            **INPUT,
            type={"const": "named"},
            name={"type": "string", "pattern": "^--"},
            valueHint=TEXT,
            format={"enum": ["string", "number", "boolean", "filepath"]},
            isRepeated={"type": "boolean"},
        ),
    },
    environmentVariables={"type": "array", "items": closed_object(["name"], **INPUT, name=TEXT)},
)
SERVER_SCHEMA = closed_object(
    ["$schema", "name", "description", "version", "packages"],
    name={"type": "string", "pattern": r"^io\.github\.[A-Za-z0-9-]+/[A-Za-z0-9._-]+$", "maxLength": 200},
    title=TEXT,
    description={**TEXT, "maxLength": 100},
    version=EXACT,
    websiteUrl=HTTPS,
    repository=closed_object(["url", "source"], url=HTTPS, source={"enum": ["github", "gitlab"]}),
    packages={"type": "array", "items": PACKAGE, "minItems": 1},
)
SERVER_SCHEMA["properties"]["$schema"] = {
    "const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
}
"""The part of the registry's schema that we use."""

SETTING = closed_object(
    ["type", "title", "description"],
    type={"enum": ["string", "number", "boolean", "directory", "file"]},
    title=TEXT,
    description=TEXT,
    multiple={"type": "boolean"},
    required={"type": "boolean"},
    sensitive={"type": "boolean"},
    default={},
)
MANIFEST_SCHEMA = closed_object(
    ["manifest_version", "name", "version", "description", "author", "server"],
    manifest_version={"const": "0.4"},
    name={"type": "string", "pattern": "^[a-z0-9-]+$"},
    display_name=TEXT,
    version=EXACT,
    description=TEXT,
    author=closed_object(["name"], name=TEXT, url=HTTPS, email=TEXT),
    repository=closed_object(["type", "url"], type={"const": "git"}, url=HTTPS),
    homepage=HTTPS,
    documentation=HTTPS,
    support=HTTPS,
    license=TEXT,
    keywords={"type": "array", "items": TEXT},
    server=closed_object(
        ["type", "entry_point", "mcp_config"],
        type={"const": "uv"},
        entry_point=TEXT,
        # One validator requires it for every type.
        mcp_config=closed_object(
            ["command", "args"], command={"const": "uv"}, args={"type": "array"}, env={"type": "object"}
        ),
    ),
    tools_generated={"type": "boolean"},
    prompts_generated={"type": "boolean"},
    user_config={"type": "object", "additionalProperties": SETTING},
    compatibility=closed_object(
        [],
        platforms={"type": "array", "items": {"enum": ["darwin", "linux", "win32"]}},
        # Ranges as in semver: separated by spaces, not by commas.
        runtimes=closed_object([], python={"type": "string", "pattern": r"^>=\d+\.\d+( <\d+\.\d+)?$"}),
    ),
)
"""The part of the schema of desktop bundles that we use."""


def problems(document: Any, schema: dict[str, Any]) -> list[str]:
    validator: Any = Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors(document)]


def refusals(folder: Path) -> list[str]:
    """Return the problems that the release check finds in a folder. Its exit code must be 1 if there are any."""
    command = [sys.executable, "-P", ROOT / "docs" / "release_check.py", folder]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (result.returncode, result.stderr) == (1 if result.stdout else 0, "")
    return result.stdout.splitlines()


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A folder with the files that describe a release, and without placeholders."""
    for name in DESCRIPTIONS:
        text = (ROOT / name).read_text(encoding="utf-8").replace("example.invalid", "github.com")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace(OWNER, "somebody"), encoding="utf-8")
    return tmp_path


@pytest.mark.requirement("project.release-check")
def test_only_placeholders_block_a_release_at_present() -> None:
    lines = refusals(ROOT)
    assert [line for line in lines if " has a placeholder: " not in line] == []
    incomplete = {name for name in DESCRIPTIONS if "OWNER" in (ROOT / name).read_text(encoding="utf-8")}
    assert {line.partition(":")[0] for line in lines} == incomplete
    assert incomplete in ({PYPROJECT, README, REGISTRY, MANIFEST, IMAGE}, set())  # all of them or none


@pytest.mark.requirement("project.release-check")
def test_a_release_without_placeholders_passes_the_check(ready: Path) -> None:
    assert refusals(ready) == []


@pytest.mark.requirement("project.release-check")
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (CODE, f'VERSION = "{VERSION}"', 'VERSION = "9.9.9"'),
        (REGISTRY, f'"version": "{VERSION}",\n  "websiteUrl"', '"version": "9.9.9",\n  "websiteUrl"'),
        (REGISTRY, f'"version": "{VERSION}",\n      "runtimeHint"', '"version": "9.9.9",\n      "runtimeHint"'),
        (REGISTRY, '"identifier": "coretools-mcp"', '"identifier": "coretools"'),
        (REGISTRY, '"url": "https://github.com/somebody/', '"url": "https://github.com/else/'),
        (MANIFEST, f'"version": "{VERSION}"', '"version": "9.9.9"'),
        (MANIFEST, '"name": "coretools-mcp"', '"name": "coretools"'),
        (MANIFEST, '"git", "url": "https://github.com/somebody/', '"git", "url": "https://github.com/else/'),
        (BUNDLE, f'version = "{VERSION}"', 'version = "9.9.9"'),
        (BUNDLE, f"coretools-mcp[full]=={VERSION}", "coretools-mcp[full]==9.9.9"),
        (CHANGELOG, f"## [{VERSION}]", "## [9.9.9]"),
        (README, "mcp-name: io.github.somebody/", "mcp-name: io.github.else/"),
        (README, "mcp-name:", "name:"),
        (IMAGE, "io.github.somebody/", "io.github.else/"),
    ],
)
def test_a_file_that_disagrees_is_named(ready: Path, name: str, before: str, after: str) -> None:
    text = (ready / name).read_text(encoding="utf-8")
    assert before in text
    (ready / name).write_text(text.replace(before, after), encoding="utf-8")
    (line,) = refusals(ready)
    assert name in line


@pytest.mark.requirement("project.registry")
def test_server_json_is_valid_for_the_registry() -> None:
    assert problems(SERVER, SERVER_SCHEMA) == []


@pytest.mark.requirement("project.registry")
@pytest.mark.parametrize(
    "change",
    [
        {"description": "x" * 101},
        {"version": "latest"},
        {"version": ">=0.1.0"},
        {"status": "active"},
        {"name": "coretools-mcp"},
        {"packages": [{**SERVER["packages"][0], "registry_type": "pypi"}]},
        {"packages": [{key: value for key, value in SERVER["packages"][0].items() if key != "transport"}]},
    ],
)
def test_the_schema_refuses_what_the_registry_refuses(change: dict[str, Any]) -> None:
    assert problems({**SERVER, **change}, SERVER_SCHEMA) != []


@pytest.mark.requirement("project.registry")
def test_server_json_offers_only_valid_arguments_and_every_variable_of_a_search_provider() -> None:
    (package,) = SERVER["packages"]
    for argument in package["packageArguments"]:
        parse(["serve", argument["name"], "value", *([argument["name"], "other"] if argument["isRepeated"] else [])])
    expected_names = [name for variables in SEARCH_VARIABLES.values() for name in variables.values() if name]
    assert [variable["name"] for variable in package["environmentVariables"]] == expected_names


@pytest.mark.requirement("project.bundle")
def test_the_manifest_has_the_required_fields_and_asks_for_what_it_uses() -> None:
    assert problems(BUNDLE_MANIFEST, MANIFEST_SCHEMA) == []
    server = BUNDLE_MANIFEST["server"]
    assert (ROOT / MANIFEST).with_name(server["entry_point"]).is_file()
    assert server["entry_point"] in server["mcp_config"]["args"]
    settings_used = re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(server))
    assert sorted(settings_used) == sorted(BUNDLE_MANIFEST["user_config"])
    for setting in BUNDLE_MANIFEST["user_config"].values():
        assert setting["required"] or "default" in setting  # otherwise the client passes the placeholder itself
        assert setting["type"] == "directory" or setting["sensitive"]


@pytest.mark.requirement("project.bundle")
def test_the_manifest_schema_refuses_missing_fields_and_ranges_with_commas() -> None:
    for field in MANIFEST_SCHEMA["required"]:
        assert problems({key: value for key, value in BUNDLE_MANIFEST.items() if key != field}, MANIFEST_SCHEMA) != []
    comma = {**BUNDLE_MANIFEST, "compatibility": {"runtimes": {"python": ">=3.11,<3.15"}}}
    assert problems(comma, MANIFEST_SCHEMA) != []


@pytest.mark.anyio
@pytest.mark.requirement("project.bundle")
@pytest.mark.parametrize("key", one_in(2, ["", "a-key"]))
async def test_the_bundle_serves_only_the_selected_folders(tmp_path: Path, key: str) -> None:
    bundle = shutil.copytree((ROOT / MANIFEST).parent, tmp_path / "bundle")
    folders = [tmp_path / name for name in ("one", "another folder", "not chosen")]
    for folder in folders:
        folder.mkdir()
        (folder / "note.txt").write_text(f"in {folder.name}\n", encoding="utf-8")
    config = BUNDLE_MANIFEST["server"]["mcp_config"]
    words = config["args"][config["args"].index("start.py") :]
    selection = [str(folder) for folder in folders[:2]]
    args = [argument for word in words for argument in (selection if word == "${user_config.workspace}" else [word])]
    variables = {name: value.replace("${user_config.tavily_api_key}", key) for name, value in config["env"].items()}
    variables["HOME"] = str(tmp_path)
    parameters = StdioServerParameters(command=sys.executable, args=args, env=variables, cwd=bundle)
    async with Client(stdio_client(parameters)) as client:
        assert ("web_search" in {tool.name for tool in (await client.list_tools()).tools}) is bool(key)
        for folder in folders:
            result = await client.call_tool("read_file", {"absolute_path": str(folder / "note.txt")})
            text = "".join(block.text for block in result.content if isinstance(block, types.TextContent))
            assert (f"in {folder.name}" in text) is (str(folder) in selection)
            assert result.is_error is (str(folder) not in selection)
