"""PDF files: shown as text, page by page, or sent as they are if they have no text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.pdf_files import document, lines
from tests.readings import read_file, text_of
from tests.variants import one_in
from tools.builtin.read_file import ReadFileTool, ReadManyFilesTool
from tools.call.base_tool import ToolContext
from tools.contract.call_options import Limits, MediaHandling
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import FileDataPart, InlineDataPart, TextPart, ToolResult, package
from tools.files.read.media_files import FileKind
from tools.files.read.pdf import Pages
from tools.machine.installation import install_command

RULE = "\n\n---\n\n"

TWO_PAGES = document(lines("Hello", "World"), lines("Second page"))
LONG = document(*[lines(*[f"page {page} line {line}" for line in range(1, 11)]) for page in range(1, 41)])
"""40 pages. The text of each page is a marker, an empty line, ten lines and an empty line."""


@pytest.mark.requirement("pdf.text")
@pytest.mark.parametrize("name", ["a.pdf", "report.txt"])
def test_a_pdf_is_shown_as_the_text_of_its_pages(name: str, root: Path, context: ToolContext) -> None:
    (root / name).write_bytes(TWO_PAGES)
    reading = read_file(context, name)
    assert text_of(reading) == "--- Page 1 of 2 ---\n\nHello\nWorld\n\n--- Page 2 of 2 ---\n\nSecond page\n"
    assert (reading.kind, reading.is_text, reading.pages) == (FileKind.PDF, True, 2)
    assert (reading.start, reading.end, reading.total, reading.truncated) == (1, 8, 8, False)


@pytest.mark.requirement("pdf.text")
@pytest.mark.parametrize("media", list(MediaHandling))
def test_the_text_of_a_pdf_does_not_depend_on_the_setting_for_media(
    media: MediaHandling, root: Path, context: ToolContext
) -> None:
    (root / "a.pdf").write_bytes(TWO_PAGES)
    assert "Hello" in text_of(read_file(context, "a.pdf", media=media))


@pytest.mark.requirement("pdf.text")
def test_offset_and_limit_count_lines_of_the_text(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(TWO_PAGES)
    reading = read_file(context, "a.pdf", 2, 2)
    header, _, body = text_of(reading).partition(RULE)
    assert body == "Hello\nWorld"
    assert header.startswith("Showing lines 3-4 of ")
    assert (reading.truncated, reading.next_offset) == (True, 4)
    assert text_of(read_file(context, "a.pdf", -1)).endswith(f"{RULE}Second page\n")


@pytest.mark.requirement("pdf.text")
def test_only_the_pages_that_are_shown_are_read_and_the_result_says_so(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(LONG)
    reading = read_file(context, "a.pdf", limit=20)
    assert "This is pages 1-2 of 40; request other pages with, for example, pages='3-'." in text_of(reading)
    assert (reading.end, reading.total, reading.next_offset, reading.pages) == (20, None, 20, 40)


@pytest.mark.requirement("pdf.text")
def test_following_the_next_offsets_gives_every_line_of_a_document_once(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(LONG)
    limits = Limits(read_lines=200, read_chars=3_000)
    text_lines: list[str] = []
    offset: int | None = 0
    while offset is not None:
        reading = read_file(context, "a.pdf", offset, limits=limits)
        text_lines += text_of(reading).partition(RULE)[2].splitlines()
        offset = reading.next_offset
    whole_text = text_of(read_file(context, "a.pdf", limits=Limits(read_chars=1_000_000)))
    assert text_lines == whole_text.splitlines()
    assert whole_text.count("--- Page ") == 40


@pytest.mark.requirement("pdf.text")
@pytest.mark.parametrize(
    ("page_range", "first", "last"),
    one_in(2, [("39", 39, 39), ("3-5", 3, 5), ("39-", 39, 40), ("40-99", 40, 40), (" 3 - 4 ", 3, 4)]),
)
def test_single_pages_can_be_requested(
    page_range: str, first: int, last: int, root: Path, context: ToolContext
) -> None:
    (root / "a.pdf").write_bytes(LONG)
    text = text_of(read_file(context, "a.pdf", pages=Pages.parse(page_range)))
    assert text.startswith(f"--- Page {first} of 40 ---\n\npage {first} line 1\n")
    assert text.endswith(f"page {last} line 10\n")
    assert text.count("--- Page ") == last - first + 1


@pytest.mark.requirement("pdf.text")
@pytest.mark.parametrize("page_range", ["0", "5-3", "a", "1,2", "-3", "1-2-3", "1 2"])
def test_an_invalid_range_of_pages_is_refused(page_range: str) -> None:
    with pytest.raises(InvalidToolParamsError, match="'pages' must look like"):
        ReadFileTool().validate_tool_params({"absolute_path": "/a.pdf", "pages": page_range})


@pytest.mark.requirement("pdf.text")
def test_a_missing_page_is_refused_with_the_number_of_pages(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(TWO_PAGES)
    with pytest.raises(ToolError, match="has 2 pages, so there is no page 3") as error_info:
        read_file(context, "a.pdf", pages=Pages(3, 3))
    assert error_info.value.code is ToolErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("pdf.no_text")
def test_a_scanned_document_is_sent_as_a_file(root: Path, context: ToolContext) -> None:
    data = document(b"", b"")
    (root / "a.pdf").write_bytes(data)
    reading = read_file(context, "a.pdf")
    media, note = reading.parts
    assert media == InlineDataPart("application/pdf", data, (root / "a.pdf").as_uri())
    assert isinstance(note, TextPart)
    assert "no text on pages 1-2 of 2" in note.text
    assert not reading.is_text


@pytest.mark.requirement("pdf.no_text")
def test_pages_without_text_say_so_between_the_others(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(document(b"", lines("words")))
    assert text_of(read_file(context, "a.pdf")).startswith("--- Page 1 of 2 ---\n\n[No text on this page.]\n\n")


@pytest.mark.requirement("pdf.no_text")
@pytest.mark.parametrize(
    ("media", "part_type"),
    [(MediaHandling.INLINE, InlineDataPart), (MediaHandling.RESOURCE_LINK, FileDataPart), (MediaHandling.NOTICE, None)],
)
def test_without_the_extra_a_pdf_comes_as_media_and_the_extra_is_named(
    media: MediaHandling, part_type: type | None, root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)  # as if pypdf were not installed
    (root / "a.pdf").write_bytes(TWO_PAGES)
    *parts, note = read_file(context, "a.pdf", media=media).parts
    assert isinstance(note, TextPart)
    assert install_command("pdf") in note.text
    assert [type(part) for part in parts if not isinstance(part, TextPart)] == ([part_type] if part_type else [])


async def call(context: ToolContext, **arguments: object) -> ToolResult:
    tool = ReadFileTool()
    return await tool.execute(tool.validate_tool_params(arguments), context)


@pytest.mark.anyio
@pytest.mark.requirement("pdf.text")
async def test_the_display_and_the_facts_mention_the_pages(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(LONG)
    result = await call(context, absolute_path=str(root / "a.pdf"), pages="2-3")
    assert result.return_display == "Read PDF as text: a.pdf"
    assert result.facts["pages"] == 40
    assert (result.facts["kind"], result.facts["total"]) == ("pdf", 25)


@pytest.mark.anyio
@pytest.mark.requirement("pdf.many")
async def test_a_pdf_among_several_files_is_text_under_its_name(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(TWO_PAGES)
    (root / "b.txt").write_text("text")
    (root / "broken.pdf").write_bytes(b"%PDF-1.7\n")
    tool = ReadManyFilesTool()
    result = await tool.execute(tool.validate_tool_params({"paths": ["a.pdf", "b.txt", "broken.pdf"]}), context)
    text = "".join(part.text for part in package("read_many_files", result).parts if isinstance(part, TextPart))
    assert f"--- {root / 'a.pdf'} ---\n\n--- Page 1 of 2 ---\n\nHello\n" in text
    assert result.facts["files"] == [str(root / "a.pdf"), str(root / "b.txt")]
    assert "damaged" in result.facts["skipped"][0]["reason"]
