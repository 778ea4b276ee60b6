"""For any text file: an edit with the tool, followed by its inverse, restores every byte."""

from __future__ import annotations

import codecs
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tools.builtin.edit import EditTool
from tools.call.base_tool import ClientState, ToolContext
from tools.contract.call_options import Limits
from tools.files.workspace import Workspace

TOOL = EditTool()
OLD, NEW = "<<old>>", "<<new>>"
"""Each occurs at most once in a file, because the rest of a file has no angle brackets."""


@dataclass(frozen=True)
class FileForm:
    """How a file encodes its text.

    Args:
        codec: Python's name of the encoding.
        mark: The byte order mark.
        encoding_argument: The encoding that the call must name, if it is not recognized from the file.
    """

    codec: str
    mark: bytes = b""
    encoding_argument: str | None = None


FORMS = [
    FileForm("utf-8"),
    FileForm("utf-8", codecs.BOM_UTF8),
    FileForm("utf-16-le", codecs.BOM_UTF16_LE),
    FileForm("utf-16-be", codecs.BOM_UTF16_BE),
    FileForm("utf-32-le", codecs.BOM_UTF32_LE),
    FileForm("latin-1", encoding_argument="latin-1"),
    FileForm("gb18030", encoding_argument="gb18030"),
    FileForm("shift_jis", encoding_argument="shift_jis"),
    FileForm("latin-1"),
]

ASCII = st.text(
    st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs"), exclude_characters="<>"), max_size=9
)
ANY = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="<>\ufeff\u2028\u2029"), max_size=9)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str, bool]:
    """Generate the text before and after the span, and whether it has several kinds of line endings."""
    has_mixed_endings = draw(st.booleans())
    endings = ["\n", "\r\n", "\r"] if has_mixed_endings else [draw(st.sampled_from(["\n", "\r\n", "\r"]))]
    body = st.tuples(ANY, st.sampled_from(endings)).map("".join)
    head, tail = (draw(st.lists(body, max_size=4)) for _ in range(2))
    return "".join(head) + draw(ANY), draw(ANY) + "".join(tail) + draw(ANY), has_mixed_endings


spans = st.lists(ASCII, min_size=1, max_size=3)


async def replace(path: Path, context: ToolContext, old: str, new: str, encoding: str | None) -> None:
    arguments = {"file_path": str(path), "old_string": old, "new_string": new}
    params = TOOL.validate_tool_params(arguments | ({"encoding": encoding} if encoding else {}))
    await TOOL.should_confirm_execute(params, context)
    result = await TOOL.execute(params, context)
    assert result.structured is not None
    assert result.structured["replacements"] == 1


def check(around: tuple[str, str, bool], old_lines: list[str], new_lines: list[str], form: FileForm) -> None:
    head, tail, has_mixed_endings = around
    if form == FORMS[-1]:
        head += " "  # a span right after a byte beyond ASCII is refused: it may be half a character
    if has_mixed_endings:
        # If line endings are mixed, only an edit within one line can be inverted.
        old_lines, new_lines = old_lines[:1], new_lines[:1]
    ending = next((ending for ending in ("\r\n", "\r") if ending in head + tail), "\n")
    if not (set("\r\n") & set(head + tail)):
        old_lines, new_lines = old_lines[:1], new_lines[:1]
    old, new = (f"{mark}{ending.join(body)}{mark[::-1]}" for mark, body in ((OLD, old_lines), (NEW, new_lines)))
    head_bytes, old_bytes, tail_bytes, new_bytes = (
        part.encode(form.codec, "ignore") for part in (head, old, tail, new)
    )
    data = form.mark + head_bytes + old_bytes + tail_bytes
    # A file in an older encoding must not be valid UTF-8 beyond ASCII, or it is read as that. NUL bytes make it binary.
    is_utf_8 = _is_utf_8(data)
    assume(form.codec == "utf-8" or form.mark or not is_utf_8 or data.isascii())
    assume(form.codec in {"utf-8", "utf-16-le", "utf-16-be", "utf-32-le"} or b"\0" not in data)

    async def edit_and_revert(path: Path) -> None:
        context = ToolContext(workspace=Workspace([str(path.parent)]), limits=Limits(), client=ClientState(key="test"))
        # Models write line endings as LF, whatever the file has.
        await replace(path, context, old.replace(ending, "\n"), new.replace(ending, "\n"), form.encoding_argument)
        assert path.read_bytes() == form.mark + head_bytes + new_bytes + tail_bytes
        await replace(path, context, new.replace(ending, "\n"), old.replace(ending, "\n"), form.encoding_argument)
        assert path.read_bytes() == data

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "a.txt"
        path.write_bytes(data)
        anyio.run(edit_and_revert, path)
        assert os.listdir(path.parent) == ["a.txt"]


def _is_utf_8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.requirement("edit.bytes")
@examples(70, database=None)
@given(files(), spans, spans, st.sampled_from(FORMS))
def test_an_edit_and_its_inverse_restore_every_byte(
    around: tuple[str, str, bool], old: list[str], new: list[str], form: FileForm
) -> None:
    check(around, old, new, form)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.requirement("edit.bytes")
@settings(max_examples=8_000, deadline=None, database=None)
@given(files(), spans, spans, st.sampled_from(FORMS))
def test_an_edit_and_its_inverse_restore_every_byte_long(
    around: tuple[str, str, bool], old: list[str], new: list[str], form: FileForm
) -> None:
    check(around, old, new, form)
