"""For any text file: an edit followed by its inverse gives back every byte, through the tool itself."""

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
from tools.contract.limits import Limits
from tools.files.workspace import Workspace

TOOL = EditTool()
OLD, NEW = "<<old>>", "<<new>>"
"""Only once in any file, since no other character of a file is an angle bracket."""


@dataclass(frozen=True)
class Form:
    """How a file keeps its text.

    Args:
        codec: Python's name.
        mark: The byte order mark.
        named: What the call has to name, since the file does not say it.
    """

    codec: str
    mark: bytes = b""
    named: str | None = None


FORMS = [
    Form("utf-8"),
    Form("utf-8", codecs.BOM_UTF8),
    Form("utf-16-le", codecs.BOM_UTF16_LE),
    Form("utf-16-be", codecs.BOM_UTF16_BE),
    Form("utf-32-le", codecs.BOM_UTF32_LE),
    Form("latin-1", named="latin-1"),
    Form("gb18030", named="gb18030"),
    Form("shift_jis", named="shift_jis"),
    Form("latin-1"),
]

ASCII = st.text(
    st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs"), exclude_characters="<>"), max_size=9
)
ANY = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="<>\ufeff\u2028\u2029"), max_size=9)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str, bool]:
    """What stands before and after the span, and whether lines end in more than one way."""
    mixed = draw(st.booleans())
    endings = ["\n", "\r\n", "\r"] if mixed else [draw(st.sampled_from(["\n", "\r\n", "\r"]))]
    body = st.tuples(ANY, st.sampled_from(endings)).map("".join)
    head, tail = (draw(st.lists(body, max_size=4)) for _ in range(2))
    return "".join(head) + draw(ANY), draw(ANY) + "".join(tail) + draw(ANY), mixed


spans = st.lists(ASCII, min_size=1, max_size=3)


async def replace(path: Path, context: ToolContext, old: str, new: str, named: str | None) -> None:
    arguments = {"file_path": str(path), "old_string": old, "new_string": new}
    params = TOOL.validate_tool_params(arguments | ({"encoding": named} if named else {}))
    await TOOL.should_confirm_execute(params, context)
    result = await TOOL.execute(params, context)
    assert result.structured is not None
    assert result.structured["replacements"] == 1


def check(around: tuple[str, str, bool], old_lines: list[str], new_lines: list[str], form: Form) -> None:
    head, tail, mixed = around
    if form == FORMS[-1]:
        head += " "  # what follows a character that is not ASCII may be its second half, and is refused
    if mixed:
        # Where lines end in several ways, only a span within one line has one inverse.
        old_lines, new_lines = old_lines[:1], new_lines[:1]
    ending = next((ending for ending in ("\r\n", "\r") if ending in head + tail), "\n")
    if not (set("\r\n") & set(head + tail)):
        old_lines, new_lines = old_lines[:1], new_lines[:1]
    old, new = (f"{mark}{ending.join(body)}{mark[::-1]}" for mark, body in ((OLD, old_lines), (NEW, new_lines)))
    before, span, after, put = (part.encode(form.codec, "ignore") for part in (head, old, tail, new))
    data = form.mark + before + span + after
    # An older encoding without a name is for files that are no UTF-8, and for spans that begin a character for sure.
    is_utf_8 = _is_utf_8(data)
    assume(form.codec == "utf-8" or form.mark or not is_utf_8 or data.isascii())
    assume(form.codec in {"utf-8", "utf-16-le", "utf-16-be", "utf-32-le"} or b"\0" not in data)

    async def there_and_back(path: Path) -> None:
        context = ToolContext(workspace=Workspace([str(path.parent)]), limits=Limits(), client=ClientState(key="test"))
        # A model spells line endings as LF whatever the file has.
        await replace(path, context, old.replace(ending, "\n"), new.replace(ending, "\n"), form.named)
        assert path.read_bytes() == form.mark + before + put + after
        await replace(path, context, new.replace(ending, "\n"), old.replace(ending, "\n"), form.named)
        assert path.read_bytes() == data

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "a.txt"
        path.write_bytes(data)
        anyio.run(there_and_back, path)
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
def test_an_edit_and_its_inverse_give_every_byte_back(
    around: tuple[str, str, bool], old: list[str], new: list[str], form: Form
) -> None:
    check(around, old, new, form)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.requirement("edit.bytes")
@settings(max_examples=8_000, deadline=None, database=None)
@given(files(), spans, spans, st.sampled_from(FORMS))
def test_an_edit_and_its_inverse_give_every_byte_back_long(
    around: tuple[str, str, bool], old: list[str], new: list[str], form: Form
) -> None:
    check(around, old, new, form)
