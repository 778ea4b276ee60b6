"""Every encoding with every kind of line ending: an edit changes one line, no other byte, and not the file's mode."""

from __future__ import annotations

import codecs
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.builtin.edit import EditTool
from tools.call.base_tool import ToolContext
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Language:
    """An encoding, and text that it is used for.

    Args:
        codec: Python's name of the encoding.
        lines: The other lines of the file, without the line that is edited.
        sample: Characters beyond ASCII that the encoding can hold.
        unencodable: Characters that it cannot hold, if there are any.
        mark: The byte order mark.
    """

    codec: str
    lines: tuple[str, ...]
    sample: str
    unencodable: str | None = None
    mark: bytes = b""

    @property
    def is_recognized(self) -> bool:
        """Whether the encoding is recognized from the file's bytes."""
        return self.codec.startswith("utf-")


UNICODE_LINES = (
    "na\u00efve caf\u00e9",
    "\u4e2d\u6587 \u8868",
    "\u30bd\u30fc\u30b9",
    "\U0001f600 \u20ac",
    "",
    "\ttab  ",
)
LANGUAGES = {
    "utf-8": Language("utf-8", UNICODE_LINES, "\u00fc \u4e2d \U0001f600"),
    "utf-8-bom": Language("utf-8", UNICODE_LINES, "\u00fc \u4e2d \U0001f600", mark=codecs.BOM_UTF8),
    "utf-16-le": Language("utf-16-le", UNICODE_LINES, "\u00fc \u4e2d \U0001f600", mark=codecs.BOM_UTF16_LE),
    "utf-16-be": Language("utf-16-be", UNICODE_LINES, "\u00fc \u4e2d \U0001f600", mark=codecs.BOM_UTF16_BE),
    "latin-1": Language("latin-1", ("na\u00efve caf\u00e9", "\u00e9", "", "\u00fcber  "), "\u00e5", "\u4e2d"),
    "gb18030": Language("gb18030", ("\u4e2d\u6587", "\u8868\u683c \u20ac", "", "\u957f  "), "\u5b57 \u00e9"),
    "shift_jis": Language(
        # The second bytes of these characters are ASCII letters, brackets and a backslash.
        "shift_jis",
        ("\u8868\u793a", "\u30bd\u30fc\u30b9 \u80fd", "", "\u4e88\u5b9a  "),
        "\u8868\u4e88",
        "\uac00\u00e9",
    ),
}
ENDINGS = {"LF": ["\n"], "CRLF": ["\r\n"], "CR": ["\r"], "mixed": ["\r\n", "\n", "\r", "\n", "\r\n"]}
MODES = [0o644, 0o755, 0o600]

OLD = "line = to_edit(1) \\ [x]"
NEW = "line = edited(2, 3) \\ [y]"


def content(language: Language, endings: list[str], line: str, *, is_closed: bool) -> bytes:
    """Return the bytes of a file with this line in its middle."""
    half = len(language.lines) // 2
    lines = [*language.lines[:half], line, *language.lines[half:], "last"]
    text = "".join(
        body + (endings[number % len(endings)] if is_closed or number < len(lines) - 1 else "")
        for number, body in enumerate(lines)
    )
    return language.mark + text.encode(language.codec)


async def edit(
    context: ToolContext, old: str, new: str, encoding: str | None = None, path: str = "a.txt"
) -> ToolResult:
    tool = EditTool()
    arguments = {"file_path": path, "old_string": old, "new_string": new}
    params = tool.validate_tool_params(arguments | ({"encoding": encoding} if encoding else {}))
    await tool.should_confirm_execute(params, context)
    return await tool.execute(params, context)


@pytest.mark.requirement("edit.bytes")
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "open"])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", LANGUAGES)
async def test_one_ascii_line_is_edited_and_every_other_byte_and_the_mode_stay(
    *, name: str, ending: str, is_closed: bool, root: Path, context: ToolContext
) -> None:
    language = LANGUAGES[name]
    for mode in MODES:
        path = root / f"{mode:o}.txt"
        path.write_bytes(content(language, ENDINGS[ending], OLD, is_closed=is_closed))
        path.chmod(mode)
        await edit(context, OLD, NEW, path=path.name)
        assert path.read_bytes() == content(language, ENDINGS[ending], NEW, is_closed=is_closed)
        assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.requirement("edit.bytes")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", LANGUAGES)
async def test_a_line_beyond_ascii_is_edited_if_the_encoding_is_recognized_or_named(
    name: str, ending: str, root: Path, context: ToolContext
) -> None:
    language, path = LANGUAGES[name], root / "a.txt"
    old, new = f"{language.sample} = 1", f"{language.sample}{language.sample} = 2"
    path.write_bytes(content(language, ENDINGS[ending], old, is_closed=True))
    await edit(context, old, new, None if language.is_recognized else language.codec)
    assert path.read_bytes() == content(language, ENDINGS[ending], new, is_closed=True)


@pytest.mark.requirement("edit.bytes")
@pytest.mark.parametrize("name", [name for name, language in LANGUAGES.items() if not language.is_recognized])
async def test_an_edit_beyond_ascii_without_the_name_of_the_encoding_is_refused_with_advice(
    name: str, root: Path, context: ToolContext
) -> None:
    language, path = LANGUAGES[name], root / "a.txt"
    original = content(language, ["\r\n"], OLD, is_closed=True)
    path.write_bytes(original)
    for old, new in ((OLD, language.sample), (language.lines[0], "ascii")):
        with pytest.raises(ToolError, match="name the encoding") as error_info:
            await edit(context, old, new)
        assert error_info.value.code is ToolErrorType.READ_CONTENT_FAILURE
        assert "encoding='" in error_info.value.message
    assert path.read_bytes() == original


@pytest.mark.requirement("edit.bytes")
@pytest.mark.parametrize("name", [name for name, language in LANGUAGES.items() if language.unencodable])
async def test_text_that_the_encoding_cannot_hold_is_refused_with_advice(
    name: str, root: Path, context: ToolContext
) -> None:
    language, path = LANGUAGES[name], root / "a.txt"
    assert language.unencodable is not None
    original = content(language, ["\n"], OLD, is_closed=True)
    path.write_bytes(original)
    with pytest.raises(ToolError) as error_info:
        await edit(context, OLD, f"{language.sample}{language.unencodable}", language.codec)
    assert error_info.value.code is ToolErrorType.INVALID_TOOL_PARAMS
    assert f"U+{ord(language.unencodable[0]):04X}" in error_info.value.message
    assert "write_file" in error_info.value.message or "utf-8" in error_info.value.message.lower()
    assert path.read_bytes() == original


@pytest.mark.requirement("edit.bytes")
@pytest.mark.parametrize("name", LANGUAGES)
async def test_half_a_surrogate_pair_is_refused_in_every_encoding(name: str, root: Path, context: ToolContext) -> None:
    language, path = LANGUAGES[name], root / "a.txt"
    original = content(language, ["\n"], OLD, is_closed=True)
    path.write_bytes(original)
    with pytest.raises(ToolError):
        await edit(context, OLD, "half \ud83d", None if language.is_recognized else language.codec)
    assert path.read_bytes() == original
