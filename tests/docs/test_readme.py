"""The README and the documentation are short and current, and their snippets and links work."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from bench.peer_rows import FILE_ROWS
from bench.peers import FILESYSTEM
from server.console.known_clients import client_configs
from server.settings import load_settings
from tests.fork_server import forked
from tests.harness import command_line, listening

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLIENTS = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*.md")])

MAX_WORDS = 1_000

FENCES = re.findall(r"^```(\w+)\n(.*?)^```$", README + CLIENTS, flags=re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^    (coretools-mcp\b[^#\n\[]*)", README + CLIENTS, flags=re.MULTILINE)


@pytest.mark.requirement("project.readme")
def test_the_readme_is_short() -> None:
    assert len(README.split()) <= MAX_WORDS


@pytest.mark.requirement("project.readme")
def test_the_page_of_tools_is_current_and_the_readme_has_their_number() -> None:
    checks = forked([str(ROOT / "docs" / "tool_tables.py"), "--check"])
    result = subprocess.run([sys.executable, *checks], check=False)
    assert result.returncode == 0, "run .venv/bin/python -P docs/tool_tables.py"
    names = re.findall(r"^\| \[`\w+`\]", (ROOT / "docs" / "tools.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"{len(names)} tools" in README


def comparison() -> dict[str, str]:
    """Return what the comparison says about this server, by subject."""
    match = re.search(r"^## Compared with others\n\n(.*?)\n\n", README, re.MULTILINE | re.DOTALL)
    assert match is not None
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in match[1].splitlines()]
    assert rows[0][1] == "coretools-mcp"
    assert {len(row) for row in rows} == {len(rows[0])}
    return {row[0]: row[1] for row in rows[2:]}


@pytest.mark.requirement("project.comparison")
def test_every_claim_of_the_comparison_links_to_its_proof() -> None:
    assert len(comparison()) >= 8
    for subject, claim in comparison().items():
        link = re.fullmatch(r"\[[^\]]+\]\((tests/\S+/test_\w+\.py|bench/\w+_rows\.py)\)", claim)
        assert link is not None, subject
        proof = (ROOT / link[1]).read_text(encoding="utf-8")
        assert re.search(r"^(async )?def test_|^ROWS\b", proof, re.MULTILINE), link[1]


@pytest.mark.requirement("project.comparison")
def test_the_comparison_claims_no_more_speed_than_the_benchmark_guarantees() -> None:
    assert "at most as long as server-filesystem" in comparison()["finding files by name"]
    rows = [row for row in FILE_ROWS if row.figures[0].name.startswith("files by name among")]
    assert rows
    assert all(row.figures[0].bar <= 1 and FILESYSTEM in row.targets for row in rows)


@pytest.mark.requirement("project.readme")
def test_every_snippet_is_valid_and_contains_our_command_or_address() -> None:
    entries: list[dict[str, Any]] = []
    for language, text in FENCES:
        content = tomllib.loads(text) if language == "toml" else json.loads(text)
        (key,) = content
        assert key in {"mcpServers", "servers", "mcp_servers"}
        entries += content[key].values()
    stdio = [entry for entry in entries if "command" in entry]
    assert len(stdio) >= 3
    assert {entry["command"] for entry in stdio} == {"coretools-mcp"}
    assert len(remote_entries()) == len(entries) - len(stdio) == 3


def remote_entries() -> list[dict[str, Any]]:
    """Return the entries of the clients that connect over the network, as the clients read them."""
    contents = [tomllib.loads(text) if language == "toml" else json.loads(text) for language, text in FENCES]
    entries: list[dict[str, Any]] = [
        entry for table in contents for servers in table.values() for entry in servers.values()
    ]
    return [entry for entry in entries if "command" not in entry]


def sent_header(entry: dict[str, Any], token: str) -> str:
    """Return the header that a client with this entry sends if the token is in its environment."""
    if "bearer_token_env_var" in entry:
        assert entry["bearer_token_env_var"] == "CORETOOLS_MCP_TOKEN"
        return f"Bearer {token}"
    return str(entry["headers"]["Authorization"]).replace("${CORETOOLS_MCP_TOKEN}", token)


@pytest.mark.anyio
@pytest.mark.requirement("project.readme")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="not run: openssl is not installed")
async def test_clients_that_follow_the_section_on_the_network_can_list_the_tools(tmp_path: Path) -> None:
    match = re.search(
        r"^## Over the network\n\n    (.*?) +#.*\n    coretools-mcp (.*?) +# (\S+), SSE: (\S+)$", CLIENTS, re.MULTILINE
    )
    assert match is not None
    export, options, address, sse = match.groups()
    token_result = await anyio.run_process(["sh", "-c", f'{export}; printf %s "$CORETOOLS_MCP_TOKEN"'])
    token = token_result.stdout.decode()
    words = options.replace("/path/to/project", str(tmp_path)).split()
    command = ["env", f"CORETOOLS_MCP_TOKEN={token}", *command_line(*words, "--port", "0")]
    # Another port, because the documented one may be in use.
    async with listening(command, r"serving MCP at (http://\S+?),") as url:
        paths = [(sse, sent_header(remote_entries()[0], token))]
        for entry in remote_entries():
            assert entry.get("url", entry.get("httpUrl")) == address
            paths.append((address.partition(":8808")[2], sent_header(entry, token)))
        bridge = re.search(r"`npx mcp-remote (\S+) --header 'Authorization: (.*)'`", CLIENTS)
        assert bridge is not None
        assert bridge[1] == address
        paths.append((address.partition(":8808")[2], bridge[2].replace("TOKEN", token)))
        for path, header in paths:
            headers = {"Authorization": header}
            async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
                reach: Any = (
                    sse_client(url + path, headers=headers)
                    if path == sse
                    else streamable_http_client(url + path, http_client=http)
                )
                async with Client(reach, cache=None) as client:
                    assert "read_file" in {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.requirement("project.readme")
def test_the_settings_in_the_documentation_are_valid(tmp_path: Path) -> None:
    pages = ("docs/servers.md", "docs/logins.md", "docs/network.md", "deploy/README.md")
    guide = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"^```json\n(.*?)^```$", guide, flags=re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`(\{.*?\})`", guide)
    assert (len(blocks), len(inline)) == (9, 2)
    for number, text in enumerate([*blocks, *inline]):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "value")
        assert load_settings([str(path)], {}, variables).warnings == ()


@pytest.mark.requirement("project.readme")
def test_every_security_promise_links_to_its_test() -> None:
    page = ROOT / "docs" / "security.md"
    tables = re.findall(
        r"^\| promise \| enforced by \| test \|\n\|[- |]+\n((?:\|.*\n)+)",
        page.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) >= 80
    for row in rows:
        links = re.findall(r"\[\w+\]\((\.\./tests/\S+/test_\w+\.py)\)", row.split(" | ")[-1])
        assert links, row
        for link in links:
            assert re.search(r"^(async )?def test_", (page.parent / link).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.requirement("project.readme")
def test_every_client_is_documented_with_its_file() -> None:
    places = [
        ("Claude Code", ".mcp.json"),
        ("VS Code", ".vscode/mcp.json"),
        ("Cursor", ".cursor/mcp.json"),
        ("Claude Desktop", "claude_desktop_config.json"),
        ("Qwen Code", ".qwen/settings.json"),
        ("Gemini", ".gemini/settings.json"),
        ("Codex", "~/.codex/config.toml"),
    ]
    assert [client for client, file in places if client not in CLIENTS or file not in CLIENTS] == []


@pytest.mark.requirement("install.table")
def test_the_page_of_clients_agrees_with_the_code() -> None:
    rows = {row[0]: row[1:] for row in re.findall(r"^\| ([a-z-]+) \|(.*)\|(.*)\|(.*)\|(.*)\|$", CLIENTS, re.MULTILINE)}
    clients = client_configs({"HOME": "/h"}, "linux")
    assert list(rows)[2:] == list(clients)  # without the header of the table
    folders = {"roots": "the open folders", "cwd": "the working folder", "none": "`--workspace`"}
    for key, client in clients.items():
        file, project, workspace, variables = (cell.strip() for cell in rows[key])
        assert Path(client.files[0]).name in file
        assert project.strip("`") == client.project_file
        assert workspace == folders[client.folder]
        variables_key = (
            "env_vars" if client.names_variables else "env" if client.passes != "all" and client.reference else ""
        )
        assert (variables == "all") is (client.passes == "all")
        assert f"`{variables_key}`" in variables or not variables_key
        assert key in README


@pytest.mark.requirement("project.readme")
@pytest.mark.parametrize("name", ["README.md", "mcp.json.example"])
def test_no_way_to_start_is_documented_that_bypasses_the_launcher(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"python[\d.]*\s+(-\S+\s+)*-m\s+server|\"-m\",\s*\"server|PYTHONPATH", text)


@pytest.mark.requirement("project.readme")
def test_the_documented_commands_are_valid() -> None:
    assert len(COMMANDS) >= 4
    for command in COMMANDS:
        words = command.split()[1:]
        subcommand = words[0] if words and not words[0].startswith("-") else "serve"
        help_command = command_line(subcommand, "--help")
        result = subprocess.run(help_command, capture_output=True, encoding="utf-8", check=True)
        for option in (word for word in words if word.startswith("--")):
            assert option in result.stdout, command


@pytest.mark.requirement("project.readme")
@pytest.mark.skipif(shutil.which("make") is None, reason="not run: make is not installed")
def test_the_documented_make_targets_exist() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^    make ([\w-]+)", README + contributing, flags=re.MULTILINE))
    assert {"demo", "test", "check"} <= targets
    for target in targets:
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, check=True)


@pytest.mark.requirement("project.layout")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.relative_to(ROOT).as_posix())
def test_every_link_inside_the_project_has_a_target(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


@pytest.mark.requirement("project.layout")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.relative_to(ROOT).as_posix())
def test_every_link_to_a_heading_has_a_target(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", document.read_text(encoding="utf-8"))
    local = [(link, anchor) for link, anchor in links if "://" not in link]
    assert [
        (link, anchor) for link, anchor in local if anchor not in anchors(document.parent / link if link else document)
    ] == []


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.requirement("project.layout")
def test_every_module_in_the_map_of_the_project_exists() -> None:
    names = re.findall(r"`([\w/]+\.py)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    paths = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if ".venv" not in path.parts]
    assert names
    assert [name for name in names if not any(f"/{path}".endswith(f"/{name}") for path in paths)] == []
