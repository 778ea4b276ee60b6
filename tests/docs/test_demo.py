"""`make demo` works: the script behind it, run as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from docs.demo.record import COLUMNS, DEMO, PICTURE, excerpt, picture, printed

MAX_ROWS = 20


@pytest.fixture(scope="module")
def told() -> str:
    """What the demo prints; it has not failed."""
    return printed()


@pytest.mark.requirement("project.fresh-machine")
def test_the_demo_tells_its_story_to_the_end(told: str) -> None:
    headings = [line for line in told.splitlines() if line.startswith("== ")]
    assert len(headings) == 6
    assert told.count("The server asks:") == 2
    assert '-    return f"Helo, {name}!"' in told
    assert '+    return f"Hello, {name}!"' in told
    assert "demo__echo" in told


@pytest.mark.long
@pytest.mark.requirement("project.fresh-machine")
def test_the_demo_fails_loudly_where_the_command_is_missing(tmp_path: Path) -> None:
    # An interpreter in another folder has no command beside it.
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.symlink_to(sys.executable)
    site = Path(pytest.__file__).parent.parent
    code = f"import runpy, sys; sys.path.insert(0, {str(site)!r}); runpy.run_path({str(DEMO)!r}, run_name='__main__')"
    done = subprocess.run([python, "-P", "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert "The demo failed" in done.stderr


@pytest.mark.requirement("project.recording")
def test_the_picture_shows_what_the_demo_prints(told: str) -> None:
    drawn = picture(excerpt(told))
    assert PICTURE.read_text(encoding="utf-8") == drawn, "run .venv/bin/python -P docs/demo/record.py"
    assert drawn.count("<text") <= MAX_ROWS


@pytest.mark.requirement("project.recording")
def test_a_picture_of_another_conversation_is_another_one() -> None:
    shown = picture("== Search\n\n    > grep_search <&>\n    | -old\n" + "    word" * 60)
    assert shown != picture("== Search\n")
    drawn = ET.fromstring(shown)  # noqa: S314 - drawn here, a line above
    texts = [element.text or "" for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:3] == ["== Search", "    > grep_search <&>", "    | -old"]
    assert len(texts) > 4
    assert max(len(text) for text in texts) <= COLUMNS
