"""`grep_search` in files that are not in UTF-8: it finds and shows the text that `read_file` shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tables import each_of
from tools.builtin.search_tools import GrepTool
from tools.call.base_tool import ToolContext
from tools.contract.tool_results import ToolResult
from tools.files import text_encodings
from tools.files.search import content_search
from tools.files.search.ripgrep import Query
from tools.files.text_encodings import ShownText
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio

PORTUGUESE = "// esta linha tem três funções\nend\n".encode("latin-1")
CHINESE = "你好世界这是一个测试\n第二行 if x\n".encode("gb18030")
JAPANESE = "日本語の表示を確認。\n能力 if x\n".encode(
    "cp932"
)  # the last byte of some of these characters is a backslash
RUSSIAN = "Привет, мир! Это текст.\nФиниш\n".encode("windows-1251")
DAMAGED = b"damaged \xff " + "Grüße 世界 мир\n".encode() + b"caf\xe9\n"
FILES = {
    "a/l1.pas": PORTUGUESE,
    "b.py": "世界 = 'функции'\n".encode(),
    "c/gbk.txt": CHINESE,
    "d.txt": JAPANESE,
    "e.txt": RUSSIAN,
    "f.txt": DAMAGED,
    "g.txt": b"if x\n",
}


@pytest.fixture
def text_folder(root: Path) -> Path:
    for name, data in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    return root


async def grep(context: ToolContext, pattern: str, **arguments: Any) -> ToolResult:
    tool = GrepTool()
    return await tool.execute(tool.validate_tool_params({"pattern": pattern, **arguments}), context)


async def lines(context: ToolContext, pattern: str, **arguments: Any) -> dict[str, list[str]]:
    """Return the lines that were found, by file."""
    lines_by_file: dict[str, list[str]] = {}
    for block in str((await grep(context, pattern, **arguments)).llm_content).split("\nFile: ")[1:]:
        name, *block_lines = block.split("\n")
        lines_by_file[name] = [line for line in block_lines if line.startswith("L")]
    return lines_by_file


SEARCHES: list[tuple[str, dict[str, Any], dict[str, list[str]]]] = [
    ("funções", {}, {"a/l1.pas": ["L1: // esta linha tem três funções"]}),
    ("FUNÇÕES$", {}, {"a/l1.pas": ["L1: // esta linha tem três funções"]}),
    ("FUNÇÕES", {"case_sensitive": True}, {}),
    ("tem.*fun\\w{4}", {}, {"a/l1.pas": ["L1: // esta linha tem três funções"]}),
    ("linha", {}, {"a/l1.pas": ["L1: // esta linha tem três funções"]}),
    ("世界|мир", {}, {
        "b.py": ["L1: 世界 = 'функции'"], "c/gbk.txt": ["L1: 你好世界这是一个测试"],
        "e.txt": ["L1: Привет, мир! Это текст."], "f.txt": ["L1: damaged \ufffd Grüße 世界 мир"],
    }),
    ("世界", {"fixed_strings": True, "exclude_pattern": "好|Gr"}, {"b.py": ["L1: 世界 = 'функции'"]}),
    ("\\\\", {}, {}),
    ("\\", {"fixed_strings": True}, {}),
    ("if x", {}, {"c/gbk.txt": ["L2: 第二行 if x"], "d.txt": ["L2: 能力 if x"], "g.txt": ["L1: if x"]}),
    ("финиш", {"path": "e.txt", "before": 1}, {"e.txt": ["L1- Привет, мир! Это текст.", "L2: Финиш"]}),
    ("caf.$", {"glob": "f*"}, {"f.txt": ["L2: caf\ufffd"]}),
    ("[в-я]+", {"glob": "*.txt", "limit": 1}, {"e.txt": ["L1: Привет, мир! Это текст."]}),
    ("тест|мир", {"names_only": True}, {}),
]  # fmt: skip


@pytest.mark.requirement("grep.encodings")
async def test_the_text_that_a_read_shows_is_found_and_shown(text_folder: Path, context: ToolContext) -> None:
    for pattern, arguments, matching_lines in SEARCHES:
        assert await lines(context, pattern, **arguments) == matching_lines, pattern
    result = await grep(context, "мир", names_only=True)
    assert str(result.llm_content).split("\n")[2:] == ["e.txt", "f.txt"]


@pytest.mark.requirement("grep.encodings")
async def test_files_are_decoded_in_batches_and_the_encoding_is_guessed_only_for_matching_ones(
    root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_search, "FILES_AT_ONCE", 3)
    monkeypatch.setattr(content_search, "MAX_READ_BYTES", 2_000)
    decoded_files: list[bytes] = []

    def shown_text(data: bytes) -> ShownText:
        decoded_files.append(data)
        return text_encodings.shown_text(data)

    monkeypatch.setattr(content_search, "shown_text", shown_text)
    for number in range(10):
        text = f"Текст номер {number}, написанный давно.\n" * (100 if number == 4 else 1)
        (root / f"{number}.txt").write_bytes(text.encode("windows-1251"))
    lines_by_file = await lines(context, "номер [37]", limit=5)
    assert lines_by_file == {f"{number}.txt": [f"L1: Текст номер {number}, написанный давно."] for number in (3, 7)}
    assert {data[12:13] for data in decoded_files} <= {b"3", b"4", b"7"}


@pytest.mark.requirement("grep.encodings")
async def test_a_file_too_large_to_be_decoded_is_searched_as_bytes_and_reported(
    text_folder: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_search, "MAX_DECODED_BYTES", len(PORTUGUESE) - 1)
    result = await grep(context, "funções|esta", glob="*.pas")
    assert result.facts["matches"] == 1
    assert "[Searched as bytes, so only ASCII text could be found: 1 file over 16 MB" in str(result.llm_content)


@pytest.mark.requirement("grep.encodings")
async def test_hidden_files_are_not_found_in_any_encoding(text_folder: Path, context: ToolContext) -> None:
    (text_folder / ".gitignore").write_text("e.txt\n")
    (text_folder / ".git").mkdir()
    (text_folder / ".qwenignore").write_text("/c\n")
    workspace = Workspace([str(text_folder)], forbidden=lambda path: "Read" if path.endswith("f.txt") else None)
    assert list(await lines(replace(context, workspace=workspace), "世界|мир")) == ["b.py"]
    assert list(await lines(replace(context, workspace=workspace), "世界|мир", no_ignore=True)) == ["b.py", "e.txt"]


@pytest.mark.requirement("grep.encodings")
@each_of(
    ("pattern", "is_fixed", "needs_decoding"),
    [
        ("TODO|FIXME(:|$)", False, False),
        ("foo\\(bar\\)\\.", False, False),
        ("a.b", False, True),
        ("[ab]", False, True),
        ("\\w+", False, True),
        ("\\\\", False, True),
        ("é", False, True),
        ("a.b[c]", True, False),
        ("é", True, True),
        ("\\", True, True),
    ],
)
def test_other_encodings_are_tried_only_for_patterns_that_can_match_more_than_ascii(
    pattern: str, is_fixed: bool, needs_decoding: bool
) -> None:
    assert Query(pattern, is_fixed, ignore_case=True).is_about_characters is needs_decoding


@pytest.mark.requirement("grep.encodings")
async def test_files_that_are_not_searched_as_text_are_reported(root: Path, context: ToolContext) -> None:
    (root / "wide.txt").write_text("needle\n", "utf-32")
    (root / "unmarked.txt").write_bytes(RUSSIAN.decode("windows-1251").encode("utf-16-le"))
    for name in ("wide.txt", "unmarked.txt"):
        text = str((await grep(context, "needle", path=name)).llm_content)
        assert "not searched as text" in text
        assert "; 0 files searched." in text
    hebrew = "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd.\n" * 3
    (root / "he.txt").write_bytes(hebrew.encode("windows-1255"))
    for path in (".", "he.txt"):
        assert "he.txt as windows-1255" in str((await grep(context, "\u05e9\u05dc\u05d5\u05dd", path=path)).llm_content)
    assert "windows-1255" not in str((await grep(context, "nothing of it")).llm_content)
