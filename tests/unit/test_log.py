"""Log output on standard error. It is tested in a separate process, because loggers are global."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.harness import LAUNCHER


def log_of(*lines: str) -> str:
    script = "\n".join(
        ["import logging", "from server.administration.log import flush_log, start_log", *lines, "flush_log()"]
    )
    command = [sys.executable, "-W", "error", "-c", script]
    result = subprocess.run(command, cwd=LAUNCHER.parent, capture_output=True, text=True, timeout=60, check=True)
    return result.stderr


@pytest.mark.requirement("log.addresses")
@pytest.mark.parametrize("library", ["httpx", "httpcore.connection", "httpx2", "httpcore2.http11"])
def test_http_libraries_log_no_addresses_and_headers_at_any_level(library: str) -> None:
    stderr = log_of(
        "start_log('debug')",
        f"logging.getLogger('{library}').info('GET https://search.example/?key=k-123')",
        f"logging.getLogger('{library}').debug('authorization: k-123')",
        "logging.getLogger('server').debug('still here')",
    )
    assert "k-123" not in stderr
    assert "still here" in stderr


@pytest.mark.requirement("log.one-line")
def test_a_record_stays_one_line_and_marks_invisible_characters() -> None:
    stderr = log_of(
        "start_log('info')",
        "logging.getLogger('server').warning('agent %s', 'x\\nforged \\x1b]0;title\\x07 \\u202e')",
    )
    assert stderr == "coretools-mcp: WARNING agent x␊forged ␛]0;title␇ <U+202E>\n"


@pytest.mark.requirement("log.one-line")
def test_a_traceback_keeps_its_lines_but_no_terminal_controls() -> None:
    stderr = log_of(
        "start_log('info')",
        "try:",
        "    raise ValueError('\\x1b[2J')",
        "except ValueError:",
        "    logging.getLogger('server').exception('failed')",
    )
    assert stderr.startswith("coretools-mcp: ERROR failed\nTraceback (most recent call last):\n")
    assert stderr.endswith("ValueError: ␛[2J\n")


@pytest.mark.requirement("cli.logs")
def test_a_record_about_a_server_is_kept_in_its_history_whatever_its_text() -> None:
    stderr = log_of(
        "from server.administration.log import HISTORY",
        "from server.upstreams.catalog.upstream_tool import ToolHistory",
        "start_log('info')",
        "tools = ToolHistory()",
        "tools.note('up', {'tool': 'as it was'})",
        "tools.note('up', {'tool': 'as it is'})",
        "logging.getLogger('server').warning('there is no upstream %s', 'up')",
        "_, (line,) = HISTORY.since(0, 'up')",
        "assert \"has changed its tool 'tool'\" in line, line",
    )
    assert "no upstream up" in stderr
