"""Text that is not UTF-8 and has no byte order mark: how its encoding is guessed, and which bytes edits keep."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.tables import each_of
from tools.builtin.edit import EditTool, WriteFileTool
from tools.builtin.read_file import ReadFileTool
from tools.call.base_tool import ToolContext
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import TextPart, ToolResult, package
from tools.files.read.file_reader import HASHED_BYTES
from tools.files.text_encodings import STEP_BYTES, Encoding, decode_as, encode, encoding_named, guess

pytestmark = pytest.mark.anyio

RULE = "\n\n---\n\n"

TEXTS = [
    (
        "windows-1252",
        "Le café était fermé à cause de la grève \u2013 déjà annoncée.\n",
    ),
    ("windows-1252", "# Größe der Fläche\nx = 1\n"),
    ("windows-1250", "Zażółć gęślą jaźń. Cześć, jak się masz?\n"),
    (
        "windows-1251",
        "Привет, мир! Это текст.\n",
    ),
    (
        "koi8-r",
        "Привет, мир! Это текст.\n",
    ),
    (
        "cp932",
        "日本語のテキストです。表示を確認。\n",
    ),
    (
        "euc-jp",
        "日本語のテキストです。表示を確認。\n",
    ),
    ("gb18030", "这是一个中文文本文件。用来测试。\n"),
    ("big5", "這是一個中文文字檔。用來測試。\n"),
    (
        "cp949",
        "안녕하세요. 한국어 텍스트 파일입니다.\n",
    ),
]
"""Encodings, each with a text to write in it."""


async def call(tool: Any, context: ToolContext, **arguments: Any) -> ToolResult:
    return await tool.execute(tool.validate_tool_params(arguments), context)


async def read_text(context: ToolContext, path: Path, **arguments: Any) -> str:
    result = await call(ReadFileTool(), context, absolute_path=str(path), **arguments)
    (part,) = package("read_file", result).parts
    assert isinstance(part, TextPart)
    return part.text


async def refusal(tool: Any, context: ToolContext, **arguments: Any) -> ToolError:
    path = context.workspace.locate(arguments["file_path"]).path
    content = Path(path).read_bytes()
    with pytest.raises(ToolError) as error_info:
        await call(tool, context, **arguments)
    assert Path(path).read_bytes() == content
    return error_info.value


@pytest.mark.requirement("encoding.guess")
@pytest.mark.parametrize(("name", "text"), TEXTS)
@pytest.mark.parametrize("repetitions", [1, 500])
async def test_a_text_is_shown_in_the_encoding_that_makes_sense(
    name: str, text: str, repetitions: int, root: Path, context: ToolContext
) -> None:
    data = (text * repetitions).encode(name)
    (root / "a.txt").write_bytes(data)
    header, _, body = (await read_text(context, root / "a.txt")).partition(RULE)
    assert body.startswith(text)
    assert f"It is shown as {name}, a" in header
    assert "guess" in header


@pytest.mark.requirement("encoding.guess")
@each_of(
    "text",
    [
        "Le café est à côté du marché, où l'été déjà brûle.",
        "Où est-ce déjà ? À côté, là-bas, très près.",
        "Hyvää päivää! Tämä on äärimmäisen hyvä. Yö, työ, ääni.",
        "Älä pelkää, se on täällä. Sää tänään.",
        "prix: 10 £ ± 5 %",
    ],
)
def test_a_western_european_text_is_recognised_however_many_accents_it_has(text: str) -> None:
    encoding_guess = guess(text.encode("latin-1"))
    assert encoding_guess is not None
    assert (encoding_guess.name, encoding_guess.decoded.text) == ("windows-1252", text)


@pytest.mark.requirement("encoding.guess")
@each_of("name, text", [("windows-1250", "Árvíztűrő tükörfúrógép. Jó napot kívánok, hogy vagy?"), *TEXTS[2:]])
def test_windows_1252_is_named_as_an_alternative_only_if_the_text_makes_sense_in_it(name: str, text: str) -> None:
    encoding_guess = guess(text.encode(name))
    assert encoding_guess is not None
    assert encoding_guess.name == name
    assert ("windows-1252" in encoding_guess.how) == (text[0] == "Á")


@pytest.mark.requirement("encoding.guess")
async def test_a_long_text_without_a_space_is_decoded(root: Path, context: ToolContext) -> None:
    text = "这是一个中文文本文件" * 1_000
    (root / "a.txt").write_bytes(b"x" + text.encode("gb18030"))
    assert f"{RULE}x{text[:100]}" in await read_text(context, root / "a.txt")


@pytest.mark.requirement("encoding.guess")
async def test_an_uncertain_guess_names_other_possible_encodings(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes("ok\ncafé\n".encode("latin-1"))
    text = await read_text(context, root / "a.txt")
    assert "shown as windows-1252, an uncertain guess; it could also be windows-1251 or" in text
    assert text.endswith(f"{RULE}ok\ncafé\n")


@pytest.mark.requirement("encoding.guess")
async def test_a_program_is_told_that_the_encoding_is_a_guess(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes("café\n".encode("latin-1"))
    (root / "b.txt").write_bytes("café\n".encode())
    facts = [(await call(ReadFileTool(), context, file_path=name)).facts for name in ("a.txt", "b.txt")]
    assert [fact["encoding"] for fact in facts] == ["windows-1252", "utf-8"]
    assert [fact.get("encoding_is_guess") for fact in facts] == [True, None]


@pytest.mark.requirement("encoding.guess")
async def test_a_window_of_a_large_file_is_decoded_too(root: Path, context: ToolContext) -> None:
    line = "日本語のテキストです。\n".encode("cp932")
    count = HASHED_BYTES // len(line) + 100
    (root / "a.log").write_bytes(line * count)
    text = await read_text(context, root / "a.log", offset=count - 1)
    assert text.endswith(f"{RULE}{line.decode('cp932')}")
    assert f"Showing lines {count}-{count} of {count}" in text


@pytest.mark.requirement("encoding.guess")
async def test_utf_8_with_a_few_damaged_bytes_stays_utf_8(root: Path, context: ToolContext) -> None:
    data = "Grüße aus Köln, 世界\n".encode() + b"caf\xe9\n"
    (root / "a.txt").write_bytes(data)
    header, _, body = (await read_text(context, root / "a.txt")).partition(RULE)
    assert body == "Grüße aus Köln, 世界\ncaf\ufffd\n"
    assert "could not be decoded" in header


@pytest.mark.requirement("encoding.edit")
@pytest.mark.parametrize(("name", "text"), TEXTS)
async def test_an_edit_in_a_named_encoding_changes_nothing_else(
    name: str, text: str, root: Path, context: ToolContext
) -> None:
    head, tail = (text * 3).encode(name), (text + "\r\nend\n").encode(name)
    old, new = text.strip()[2:6], text.strip()[4:7] + "!\n" + text.strip()[:2]
    (root / "a.txt").write_bytes(head + b"[" + old.encode(name) + b"]" + tail)
    result = await call(
        EditTool(), context, file_path="a.txt", old_string=f"[{old}]", new_string=f"[{new}]", encoding=name.upper()
    )
    assert (root / "a.txt").read_bytes() == head + b"[" + new.encode(name) + b"]" + tail
    assert result.structured is not None
    assert result.structured["encoding"] == name


@pytest.mark.requirement("encoding.edit")
async def test_without_a_named_encoding_only_ascii_is_edited_and_the_error_names_the_guess(
    root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_bytes("café name\n".encode("latin-1"))
    error = await refusal(EditTool(), context, file_path="a.txt", old_string="café", new_string="tea")
    assert error.code is ToolErrorType.READ_CONTENT_FAILURE
    assert "encoding='windows-1252'" in error.message


@pytest.mark.requirement("encoding.edit")
async def test_the_second_half_of_a_character_is_no_match_in_a_named_encoding(root: Path, context: ToolContext) -> None:
    data = "表示 = 'C:\\x'\n".encode("cp932")
    assert data.count(b"\\") == 2
    (root / "a.txt").write_bytes(data)
    await call(
        EditTool(), context, file_path="a.txt", old_string="\\", new_string="/", encoding="shift_jis", replace_all=True
    )
    assert (root / "a.txt").read_bytes() == "表示 = 'C:/x'\n".encode("cp932")


@pytest.mark.requirement("encoding.edit")
@pytest.mark.parametrize(
    ("codec", "new", "message_part"),
    [("windows-1252", "世", "'世' (U+4E16), which windows-1252"), ("shift_jis", "\u00a5", "'\u00a5' (U+00A5)")],
)
async def test_a_text_that_the_encoding_cannot_hold_is_refused_with_a_way_out(
    codec: str, new: str, message_part: str, root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_bytes("\u00b4 name\n".encode(codec))
    error = await refusal(EditTool(), context, file_path="a.txt", old_string="name", new_string=new, encoding=codec)
    assert error.code is ToolErrorType.INVALID_TOOL_PARAMS
    assert message_part in error.message
    assert "UTF-8" in error.message


@pytest.mark.requirement("encoding.edit")
@pytest.mark.parametrize(
    ("data", "encoding", "code"),
    [
        (b"caf\xe9 name\n", "no-such", ToolErrorType.INVALID_TOOL_PARAMS),
        (b"caf\xe9 name\n", "iso2022_jp", ToolErrorType.INVALID_TOOL_PARAMS),
        (b"caf\xe9 name\n", "utf-16", ToolErrorType.INVALID_TOOL_PARAMS),
        (b"caf\xe9 name\n", "rot13", ToolErrorType.INVALID_TOOL_PARAMS),
        (b"caf\x81 name\n", "windows-1252", ToolErrorType.INVALID_TOOL_PARAMS),
        ("café name\n".encode(), "windows-1252", ToolErrorType.INVALID_TOOL_PARAMS),
        (b"\xff\xfen\0a\0m\0e\0", "gb18030", ToolErrorType.INVALID_TOOL_PARAMS),
        # cp932 has two codes for this character. Encoding the text again would replace the first code with the second.
        (b"\xfa\x5b name \x81\xe6\n", "cp932", ToolErrorType.READ_CONTENT_FAILURE),
    ],
)
async def test_an_encoding_that_does_not_fit_changes_nothing(
    data: bytes, encoding: str, code: ToolErrorType, root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_bytes(data)
    error = await refusal(EditTool(), context, file_path="a.txt", old_string="name", new_string="x", encoding=encoding)
    assert error.code is code


@pytest.mark.requirement("encoding.edit")
@pytest.mark.parametrize(
    ("data", "encoding", "new_data"),
    [
        ("café name".encode(), "utf-8", "café 世".encode()),
        ("\ufeffname".encode("utf-16-le"), "UTF-16-LE", "\ufeff世".encode("utf-16-le")),
        (b"plain name", "gb18030", "plain 世".encode("gb18030")),
    ],
)
async def test_naming_the_actual_encoding_or_any_encoding_of_an_ascii_file_is_allowed(
    data: bytes, encoding: str, new_data: bytes, root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_bytes(data)
    await call(EditTool(), context, file_path="a.txt", old_string="name", new_string="世", encoding=encoding)
    assert (root / "a.txt").read_bytes() == new_data


@pytest.mark.requirement("encoding.write")
async def test_a_file_is_written_in_the_encoding_that_is_named(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes("café\r\n".encode("latin-1"))
    await call(WriteFileTool(), context, file_path="a.txt", content="thé\n", encoding="windows-1252")
    assert (root / "a.txt").read_bytes() == b"th\xe9\r\n"
    await call(WriteFileTool(), context, file_path="new.txt", content="日本\n", encoding="shift_jis")
    assert (root / "new.txt").read_bytes() == "日本\n".encode("shift_jis")
    error = await refusal(WriteFileTool(), context, file_path="a.txt", content="日本\n", encoding="windows-1252")
    assert error.code is ToolErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("encoding.write")
async def test_without_a_named_encoding_the_new_content_is_utf_8_and_the_result_says_how_to_keep_the_encoding(
    root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_bytes("café\n".encode("latin-1"))
    result = await call(WriteFileTool(), context, file_path="a.txt", content="thé\n")
    assert (root / "a.txt").read_bytes() == "thé\n".encode()
    assert "encoding='windows-1252'" in str(result.llm_content)


@pytest.mark.requirement("encoding.write")
async def test_a_file_with_a_byte_order_mark_is_not_written_in_another_encoding(
    root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_bytes("\ufeffa\n".encode("utf-16-le"))
    error = await refusal(WriteFileTool(), context, file_path="a.txt", content="b", encoding="gb18030")
    assert "byte order mark of utf-16-le" in error.message


@pytest.mark.requirement("encoding.guess")
def test_a_character_across_the_end_of_a_step_is_decoded() -> None:
    data = b"a" * (STEP_BYTES - 1) + "日本".encode("cp932")
    decoded_text = decode_as(data, Encoding("cp932", "cp932"))
    assert decoded_text is not None
    assert decoded_text.text.endswith("日本")
    assert encode(decoded_text.text, decoded_text.encoding) == data


@pytest.mark.requirement("encoding.guess")
@pytest.mark.parametrize(
    "data", [b"\xff" * 100_000, b"\x80 " * 50_000, bytes(range(48, 256)) * 1_000, b"a" * 100_000 + b"\xe9"]
)
def test_any_bytes_get_some_text(data: bytes) -> None:
    encoding_guess = guess(data)
    assert encoding_guess is not None
    assert encoding_guess.decoded.text


@pytest.mark.requirement("encoding.edit")
@pytest.mark.parametrize(
    ("name", "public_name"),
    [
        ("CP1252", "windows-1252"),
        ("latin1", "iso-8859-1"),
        ("Shift_JIS", "shift_jis"),
        ("GBK", "gbk"),
        ("utf-7", None),
        ("x" * 500, None),
        ("a\0b", None),
    ],
)
def test_encodings_are_found_by_any_of_their_names(name: str, public_name: str | None) -> None:
    encoding_name = None
    with suppress(ToolError):
        encoding_name = encoding_named(name).name
    assert encoding_name == public_name
