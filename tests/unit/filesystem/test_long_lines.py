"""Places in very long lines: `grep_search` finds them, and `read_file` shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.tables import each_of
from tests.variants import one_in
from tools.builtin.read_file import ReadFileTool
from tools.builtin.search_tools import GrepTool
from tools.call.base_tool import ToolContext
from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import TextPart, ToolResult
from tools.files.read import line_window
from tools.files.read.line_window import BLOCK, CharRange, Source, line_part
from tools.files.search import match_report

pytestmark = pytest.mark.anyio

RULE = "\n\n---\n\n"


async def read(context: ToolContext, **arguments: Any) -> tuple[str, str, ToolResult]:
    """Return the header, the text and the result of a read."""
    tool = ReadFileTool()
    result = await tool.execute(tool.validate_tool_params(arguments), context)
    assert isinstance(result.llm_content, list)
    (part,) = result.llm_content
    assert isinstance(part, TextPart)
    header, rule, text = part.text.partition(RULE)
    return (header, text, result) if rule else ("", header, result)


async def grep(context: ToolContext, **arguments: Any) -> str:
    tool = GrepTool()
    return str((await tool.execute(tool.validate_tool_params(arguments), context)).llm_content)


LINE = "".join(f"{number:05d} é世\U0001f600 " for number in range(6_000))
CHINESE = "".join(f"{number:05d} 中文文本文件 " for number in range(6_000))
TEXTS = {"utf-8": LINE, "utf-8-sig": LINE, "utf-16": LINE, "gb18030": CHINESE}
"""A long line for each encoding."""


@pytest.mark.requirement("read.chars")
@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\r\nshort\r\n"])
async def test_following_the_headers_leads_through_a_long_line_to_its_end(
    codec: str, ending: str, root: Path, context: ToolContext
) -> None:
    line = TEXTS[codec]
    (root / "a.txt").write_bytes((line + ending).encode(codec))
    header, text, _ = await read(context, file_path="a.txt")
    parts = [text[:2_000]]
    while next_part := re.search(r"offset=(-?\d+) and chars='(\d+)-'", header):
        assert int(next_part[2]) == sum(map(len, parts))
        header, text, result = await read(
            context, file_path="a.txt", offset=int(next_part[1]), chars=f"{next_part[2]}-"
        )
        parts.append(text)
        assert result.facts.get("next_char") == (sum(map(len, parts)) if "chars=" in header else None)
    assert "".join(parts) == line
    assert f"of {len(line)} in line 1 of" in header


@pytest.mark.requirement("read.chars")
async def test_any_characters_of_any_line_are_shown_alone(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes(f"first\r\n{LINE}\r\nlast".encode())
    for chars, line_part_text in {"0-5": LINE[:5], "12000-12007": LINE[12_000:12_007], "59990-": LINE[59_990:]}.items():
        for offset in (1, -2):
            header, text, _ = await read(context, file_path="a.txt", offset=offset, chars=chars)
            assert text == line_part_text
            assert f"of {len(LINE)} in line 2 of 3." in header
    assert (await read(context, file_path="a.txt", offset=2, chars="0-"))[1] == "last"
    header, text, _ = await read(context, file_path="a.txt", chars="5-")
    assert (header, text) == ("Showing none of 5 characters in line 1 of 3.", "")


@pytest.mark.requirement("read.chars")
@each_of("chars", ["-5", "5-5", "9-3", "a-b", "1-2-3", "9" * 13])
def test_an_invalid_range_of_characters_is_refused(chars: str) -> None:
    with pytest.raises(InvalidToolParamsError):
        ReadFileTool().validate_tool_params({"file_path": "a.txt", "chars": chars})


@pytest.mark.requirement("read.chars")
def test_damaged_characters_count_as_they_are_shown() -> None:
    data = b"ok \xe4\xb8 \xff\xe4 end" * (BLOCK // 10)
    shown_text = data.decode("utf-8", "replace")
    for start in (0, 3, 1_000, len(shown_text) - 7):
        part = line_part(Source.from_bytes(data), 0, CharRange(start, None), 50, AbortSignal())
        assert (part.text, part.is_decodable) == (shown_text[start : start + 50], False)


@pytest.mark.requirement("read.chars")
def test_a_place_too_far_from_the_beginning_of_its_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_window, "SOUGHT_BYTES", 2 * BLOCK)
    source = Source.from_bytes(b"x" * (4 * BLOCK))
    assert line_part(source, 0, CharRange(BLOCK, None), 10, AbortSignal()).text == "x" * 10
    with pytest.raises(ToolError) as error_info:
        line_part(source, 0, CharRange(3 * BLOCK, None), 10, AbortSignal())
    assert error_info.value.code is ToolErrorType.FILE_TOO_LARGE
    assert "grep_search" not in error_info.value.message


@pytest.mark.requirement("grep.long_lines")
@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
@pytest.mark.parametrize("ending", one_in(2, ["\n", "\r\n"]))
@pytest.mark.parametrize("decoded_limit", [match_report.MAX_DECODED_BYTES, 1])
async def test_the_text_around_a_match_is_shown_with_the_range_that_reads_it_again(
    codec: str, ending: str, decoded_limit: int, root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    if codec != "gb18030":
        monkeypatch.setattr(match_report, "MAX_DECODED_BYTES", decoded_limit)
    line = TEXTS[codec]
    (root / "a.txt").write_bytes(f"{line}{ending}{line}{ending}last".encode(codec))
    for pattern in ("00000 ", "03456 .[世文]", "05999"):
        text = await grep(context, pattern=pattern, path="a.txt")
        matches = re.findall(r"^L(\d)\[(\d+)-(\d+)\]: (.*)$", text, re.MULTILINE)
        assert [number for number, *_ in matches] == ["1", "2"]
        for number, start, end, part in matches:
            assert part == line[int(start) : int(end)]
            assert len(part) == 2_000
            assert re.search(pattern, part)
            arguments = {"file_path": "a.txt", "offset": int(number) - 1, "chars": f"{start}-{end}"}
            assert (await read(context, **arguments))[1] == part
        assert f"offset=0 and chars='{matches[0][1]}-{matches[0][2]}' for the first" in text


@pytest.mark.requirement("grep.long_lines")
async def test_a_long_neighbour_is_shown_from_its_beginning(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text(f"{'x' * 3_000}\nneedle\n")
    assert f"L1[0-2000]- {'x' * 2_000}\nL2: needle\n" in await grep(context, pattern="needle", before=1)


@pytest.mark.requirement("grep.long_lines")
async def test_a_match_deep_in_a_file_with_one_line_is_shown(root: Path, context: ToolContext) -> None:
    (root / "min.json").write_text(json.dumps([{"id": number, "name": f"item {number}"} for number in range(10_000)]))
    assert '{"id": 4321, "name": "item 4321"}' in await grep(context, pattern='"id": 4321', path="min.json")
