"""What settings must never do: reveal a secret, or enable yolo mode from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.settings import load_settings
from tests.settings_cases import load, refusal, write
from tools.contract.call_options import ApprovalMode

SECRETS = [
    {"mcpServers": {"a": "hunter2"}},
    {"mcpServers": {"a": {"command": ["hunter2"]}}},
    {"mcpServers": {"a": {"command": "x", "args": "--key hunter2"}}},
    {"mcpServers": {"a": {"command": "x", "args": ["hunter2\0"]}}},
    {"mcpServers": {"a": {"command": "x", "env": "hunter2"}}},
    {"mcpServers": {"a": {"command": "x", "env": {"K": ["hunter2"]}}}},
    {"mcpServers": {"a": {"command": "x", "env": {"K": "hunter2\0"}}}},
    {"mcpServers": {"a": {"url": "http://x", "headers": ["hunter2"]}}},
    {"mcpServers": {"a": {"url": "http://x", "headers": {"A": "hunter2\n"}}}},
    {"mcpServers": {"a": {"url": "ftp://hunter2@x"}}},
    {"mcpServers": {"a": {"httpUrl": "hunter2"}}},
    {"mcpServers": "hunter2"},
    {"http": {"tokens": {"me": "hunter2"}}},
    {"http": {"tokens": "hunter2"}},
    {"http": {"tokens": {"me": {"file": ["hunter2"]}}}},
    {"web": {"search": "hunter2"}},
    {"shell": {"env": {"K": {"x": "hunter2"}}}},
    {"agents": "hunter2"},
    {"memory": "hunter2"},
    {"tools": {"callCommand": {"x": "hunter2"}}},
    {"tools": {"callCommand": "'hunter2"}},
    {"web": {"search": {"tavily": {"apiKey": ["hunter2"]}}}},
    {"agents": {"a": {"args": ["hunter2"]}}},
]


@pytest.mark.requirement("settings.bad-values")
@pytest.mark.parametrize("content", SECRETS, ids=[json.dumps(content)[:70] for content in SECRETS])
def test_no_error_shows_a_possible_secret(environ: dict[str, str], file: Path, content: dict[str, Any]) -> None:
    assert "hunter2" not in refusal(file, content, environ)


@pytest.mark.requirement("settings.bad-values")
def test_neither_warnings_nor_representations_show_a_possible_secret(environ: dict[str, str], file: Path) -> None:
    content = {
        "mcpServers": {
            "a": {
                "command": "x",
                "args": ["hunter2"],
                "env": {"A": "hunter2", "B": "$A_MISSING_ONE"},
                "auth": {"clientSecret": "hunter2"},
            },
            "b": {
                "url": "http://hunter2@x/",
                "command": "x",
                "headers": {"A": "${SECRET}"},
                "oauth": {"clientId": "${SECRET}", "clientSecret": "hunter2", "privateKey": None},
            },
        },
        "web": {"search": {"tavily": {"apiKey": "hunter2"}}},
        "shell": {"env": {"K": "hunter2"}},
    }
    report = load(file, content, {**environ, "SECRET": "hunter2"})
    assert report.settings.mcp_servers["b"].headers == {"A": "hunter2"}
    assert len(report.warnings) == 3
    assert "hunter2" not in repr(report)
    assert "hunter2" not in str(report.settings)


@pytest.mark.requirement("settings.merge")
@pytest.mark.parametrize("content", [{"approvalMode": "yolo"}, {"tools": {"approvalMode": "yolo"}}], ids=json.dumps)
def test_yolo_in_a_file_is_ignored_with_a_warning(
    environ: dict[str, str], tmp_path: Path, content: dict[str, Any]
) -> None:
    plan = write(tmp_path / "plan.json", {"approvalMode": "plan"})
    yolo = write(tmp_path / "yolo.json", content)
    report = load_settings([plan, yolo], {}, environ)
    assert report.settings.approval_mode is ApprovalMode.PLAN
    assert report.warnings == (
        f'{yolo}: approvalMode "yolo" is ignored: it is accepted only on the command line, as --approval-mode yolo.',
    )


@pytest.mark.requirement("settings.merge")
def test_yolo_on_the_command_line_counts(environ: dict[str, str], file: Path) -> None:
    report = load(file, {"approvalMode": "plan"}, environ, approvalMode="yolo")
    assert (report.settings.approval_mode, report.warnings) == (ApprovalMode.YOLO, ())
