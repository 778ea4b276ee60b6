"""The script behind `make demo` works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from docs.demo.record import COLUMNS, DEMO, PICTURE, demo_output, excerpt, picture

MAX_ROWS = 20


@pytest.fixture(scope="module")
def demo_text() -> str:
    """The output of the demo, which must succeed."""
    return demo_output()


@pytest.mark.requirement("project.fresh-machine")
def test_the_demo_runs_to_the_end(demo_text: str) -> None:
    headings = [line for line in demo_text.splitlines() if line.startswith("== ")]
    assert len(headings) == 6
    assert demo_text.count("The server asks:") == 2
    assert '-    return f"Helo, {name}!"' in demo_text
    assert '+    return f"Hello, {name}!"' in demo_text
    assert "demo__echo" in demo_text


@pytest.mark.long
@pytest.mark.requirement("project.fresh-machine")
def test_the_demo_fails_with_a_message_if_the_command_is_missing(tmp_path: Path) -> None:
    # An interpreter in another folder has no coretools-mcp command next to it.
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.symlink_to(sys.executable)
    site = Path(pytest.__file__).parent.parent
    code = f"import runpy, sys; sys.path.insert(0, {str(site)!r}); runpy.run_path({str(DEMO)!r}, run_name='__main__')"
    result = subprocess.run([python, "-P", "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert result.returncode == 1
    assert "The demo failed" in result.stderr


@pytest.mark.requirement("project.recording")
def test_the_picture_shows_what_the_demo_prints(demo_text: str) -> None:
    svg = picture(excerpt(demo_text))
    assert PICTURE.read_text(encoding="utf-8") == svg, "run .venv/bin/python -P docs/demo/record.py"
    assert svg.count("<text") <= MAX_ROWS


@pytest.mark.requirement("project.recording")
def test_the_picture_contains_the_text_in_lines_that_fit() -> None:
    svg = picture("== Search\n\n    > grep_search <&>\n    | -old\n" + "    word" * 60)
    assert svg != picture("== Search\n")
    root = ET.fromstring(svg)  # noqa: S314 - made by our own code
    texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:3] == ["== Search", "    > grep_search <&>", "    | -old"]
    assert len(texts) > 4
    assert max(len(text) for text in texts) <= COLUMNS
