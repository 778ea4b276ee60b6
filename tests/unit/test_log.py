"""Log output on standard error. It is tested in a separate process, because loggers are global."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from server.administration.log import HISTORY_CHARS, LogHistory
from tests.harness import LAUNCHER
from tools.text.secrets import redact


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


@pytest.mark.requirement("log.one-line")
def test_the_log_goes_on_once_standard_error_can_be_written_again(tmp_path: Path) -> None:
    lines = [
        "import logging, resource",
        "from server.administration.log import flush_log, start_log",
        "start_log('info')",
        "_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))",
        "for _ in range(5):",
        "    logging.warning('x' * 500)",
        "    flush_log()",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))",
        "logging.warning('there is space again')",
        "flush_log()",
    ]
    path = tmp_path / "log"
    with path.open("wb") as log:
        command = [sys.executable, "-W", "error", "-c", "\n".join(lines)]
        subprocess.run(command, cwd=LAUNCHER.parent, stderr=log, timeout=60, check=True)
    assert "coretools-mcp: WARNING there is space again\n" in path.read_text()


@pytest.mark.requirement("cli.logs")
def test_a_secret_at_the_end_of_a_truncated_line_is_recognised_when_the_line_is_shown() -> None:
    history = LogHistory()
    url = f"https://user:hunter2-secret@host/{'y' * 99}"
    history.add("", f"{'x' * (HISTORY_CHARS - 24)} {url}")
    _, (line,) = history.since(0, None)
    assert len(line) == HISTORY_CHARS
    assert "hunter2" not in redact(line)
