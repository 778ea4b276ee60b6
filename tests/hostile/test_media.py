"""Images, PDF files and notebooks that lie, are damaged, or are crafted to cost time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import anyio
import pytest

from tests.harness import HANDSHAKE, connected
from tests.image_files import png
from tests.pdf_files import CATALOG, document, lines, page_objects, pdf, stream
from tests.readings import read_file, text_of
from tests.tables import each_of
from tests.variants import long, one_in
from tools.call.base_tool import ToolContext
from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import FileDataPart, InlineDataPart
from tools.files import html_and_pdf_worker
from tools.files.read import pdf as pdf_module
from tools.files.read.media_files import FileKind
from tools.files.read.pdf import ALL_PAGES, MAX_MEMORY, Pages, extract

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="not run: /proc is Linux only")


def children() -> set[int]:
    """Return the child processes of this process."""
    pids: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        pids |= {int(pid) for pid in Path("/proc/self/task", task, "children").read_text().split()}
    return pids


def slow_page(operators: int = 600_000) -> bytes:
    """Return a page whose text takes many seconds to read: a few kB that unpack to very many operators."""
    return compressed_stream(lines("words") + b"BT /F1 12 Tf " + b"(a) Tj " * operators + b"ET")


def compressed_stream(content: bytes) -> bytes:
    return stream(zlib.compress(content, 9), b"/Filter /FlateDecode")


SLOW = pdf(page_objects(stream(lines("first")), *[slow_page() for _ in range(8)]))
"""A document with one quick page, and further pages that together take longer than any time limit here."""


@pytest.mark.requirement("pdf.damage")
def test_what_was_read_in_time_is_shown_and_the_rest_is_reported(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(SLOW)
    reading = read_file(context, "a.pdf", seconds=3)
    text = text_of(reading)
    assert "--- Page 1 of 9 ---\n\nfirst\n" in text
    assert "could be read: it would take longer than 3 s; request other pages" in text
    assert reading.truncated
    assert reading.total is None


@pytest.mark.requirement("pdf.damage")
def test_a_first_page_that_takes_too_long_is_a_failure_with_advice(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(SLOW)
    with pytest.raises(ToolError, match=r"longer than 1 s.*other pages") as error_info:
        read_file(context, "a.pdf", pages=Pages(2), seconds=1)
    assert error_info.value.code is ToolErrorType.READ_CONTENT_FAILURE


@only_linux
@pytest.mark.requirement("pdf.child")
def test_cancelling_a_read_kills_the_process_and_leaves_nothing(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(SLOW)
    location = context.workspace.locate("a.pdf")
    signal = AbortSignal()
    before = children()
    pids: set[int] = set()

    def cancel_after_the_first_page(text: str) -> bool:
        pids.update(children() - before)
        signal.abort()
        return False

    with context.workspace.open_file(location) as file, pytest.raises(ToolError) as error_info:
        extract(file, "a.pdf", pages=ALL_PAGES, is_enough=cancel_after_the_first_page, signal=signal)
    assert error_info.value.code is ToolErrorType.CANCELLED
    assert len(pids) == 1
    assert not children() & pids
    assert not Path("/proc", str(*pids)).exists()


@only_linux
@pytest.mark.requirement("pdf.child")
def test_the_process_has_limits_its_own_session_and_nothing_of_our_environment(
    root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", str(root))
    (root / "json.py").write_text("raise SystemExit('a trap was imported')")
    monkeypatch.chdir(root)
    (root / "a.pdf").write_bytes(document(lines("one"), lines("two")))
    location = context.workspace.locate("a.pdf")
    before = children()
    facts: dict[str, str] = {}

    def inspect_process(text: str) -> bool:
        (pid,) = children() - before
        facts["limits"] = Path(f"/proc/{pid}/limits").read_text()
        facts["environment"] = Path(f"/proc/{pid}/environ").read_text()
        facts["command"] = Path(f"/proc/{pid}/cmdline").read_text()
        facts["session"] = str(os.getsid(pid) == pid)
        facts["descriptors"] = " ".join(sorted(os.listdir(f"/proc/{pid}/fd")))
        return True

    with context.workspace.open_file(location) as file:
        # The process waits until its second page is read, so it is alive while it is inspected.
        extract(file, "a.pdf", pages=ALL_PAGES, is_enough=inspect_process, signal=AbortSignal())
    assert f"{MAX_MEMORY}" in next(
        line for line in facts["limits"].splitlines() if line.startswith("Max address space")
    )
    assert facts["environment"].strip("\0") == "PATH="
    assert facts["command"].split("\0")[1:3] == ["-P", os.path.abspath(html_and_pdf_worker.__file__)]
    assert facts["session"] == "True"
    assert {"0", "1", "2"} <= set(facts["descriptors"].split())


@pytest.mark.requirement("pdf.child")
def test_the_server_never_imports_the_pdf_library(root: Path) -> None:
    (root / "a.pdf").write_bytes(document(lines("one")))
    script = (
        "import sys, anyio\n"
        "from tools.call.base_tool import ClientState, Limits, ToolContext\n"
        "from tools.builtin.read_file import ReadFileTool\n"
        "from tools.files.workspace import Workspace\n"
        "context = ToolContext(Workspace([sys.argv[1]]), Limits(), ClientState('test'))\n"
        "tool = ReadFileTool()\n"
        "params = tool.validate_tool_params({'absolute_path': sys.argv[1] + '/a.pdf'})\n"
        "result = anyio.run(tool.execute, params, context)\n"
        "assert 'one' in result.llm_content[0].text\n"
        "print('pypdf' in sys.modules)\n"
    )
    checkout = Path(pdf_module.__file__).parents[3]
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(root)], cwd=checkout, capture_output=True, check=False
    )
    assert (result.stdout, result.stderr) == (b"False\n", b"")


def cyclic_tree() -> bytes:
    return pdf({1: CATALOG, 2: b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>", 3: b"<< /Type /Pages /Kids [2 0 R] >>"})


def deep_tree() -> bytes:
    nodes = {number: b"<< /Type /Pages /Count 1 /Kids [%d 0 R] >>" % (number + 1) for number in range(2, 20_000)}
    return pdf({1: CATALOG, **nodes, 20_000: b"<< /Type /Page >>"})


def wide_tree() -> bytes:
    """Return a tree whose nodes name the next node twenty times: twenty to the power of thirty pages."""
    nodes = {
        number: b"<< /Type /Pages /Count 9 /Kids [%s] >>" % (b"%d 0 R " % (number + 1) * 20) for number in range(2, 32)
    }
    return pdf({1: CATALOG, **nodes, 32: b"<< /Type /Page >>"})


def doubly_compressed() -> bytes:
    zeros = zlib.compressobj(9)
    inner = b"".join(zeros.compress(bytes(1 << 20)) for _ in range(120)) + zeros.flush()
    return pdf(page_objects(stream(zlib.compress(inner, 9), b"/Filter [/FlateDecode /FlateDecode]")))


def nested_arrays() -> bytes:
    return b"%PDF-1.7\n1 0 obj\n" + b"[" * 200_000 + b"\nendobj\ntrailer << /Root 1 0 R >>\nstartxref\n9\n%%EOF"


def encrypted(algorithm: str, password: str) -> bytes:
    import pypdf

    writer = pypdf.PdfWriter(clone_from=BytesIO(document(lines("secret words"))))
    writer.encrypt(password, "owner", algorithm=algorithm)
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.mark.requirement("pdf.damage")
@pytest.mark.parametrize(
    "make",
    [cyclic_tree, *map(long, (deep_tree, wide_tree, doubly_compressed)), nested_arrays, lambda: b"%PDF-1.7\nnonsense"],
)
def test_a_bomb_or_a_damaged_file_is_a_failure_with_advice(
    make: Callable[[], bytes], root: Path, context: ToolContext
) -> None:
    (root / "a.pdf").write_bytes(make())
    with pytest.raises(ToolError, match=r"'a\.pdf' .*Ask ") as error_info:
        read_file(context, "a.pdf")
    assert error_info.value.code is ToolErrorType.READ_CONTENT_FAILURE


@pytest.mark.requirement("pdf.many")
@pytest.mark.parametrize("algorithm", one_in(2, ["RC4-128", "AES-128", "AES-256"]))
def test_an_encrypted_file_is_a_failure_that_asks_for_a_copy(algorithm: str, root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(encrypted(algorithm, "password"))
    with pytest.raises(ToolError, match=r"encrypted with a password.*copy without a password") as error_info:
        read_file(context, "a.pdf")
    assert error_info.value.code is ToolErrorType.READ_CONTENT_FAILURE


@pytest.mark.requirement("pdf.many")
def test_a_file_that_is_encrypted_with_an_empty_password_is_read(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(encrypted("AES-256", ""))
    assert "secret words" in text_of(read_file(context, "a.pdf"))


@pytest.mark.long
@pytest.mark.requirement("pdf.damage")
def test_ten_thousand_pages_cost_no_more_than_those_that_are_shown(root: Path, context: ToolContext) -> None:
    (root / "a.pdf").write_bytes(document(*[lines("word " * 200)] * 10_000))
    reading = read_file(context, "a.pdf")
    assert "This is pages 1-" in text_of(reading)
    assert (reading.pages, reading.total) == (10_000, None)
    assert "--- Page 9999 of 10000 ---" in text_of(read_file(context, "a.pdf", pages=Pages(9_999, 9_999)))


@pytest.mark.requirement("pdf.damage")
def test_pictures_in_a_page_are_not_decoded(root: Path, context: ToolContext) -> None:
    objects = page_objects(stream(lines("caption") + b" q 600 0 0 800 0 0 cm /Im Do Q"))
    objects[4] = objects[4].replace(b"/Font", b"/XObject << /Im 6 0 R >> /Font")
    size = b"/Type /XObject /Subtype /Image /Width 100000 /Height 100000 /ColorSpace /DeviceGray /BitsPerComponent 1"
    objects[6] = stream(b"\0\0\0\0\x30\0\1\0\0\0\x13" + b"\xff" * 19, size + b" /Filter /JBIG2Decode")
    (root / "a.pdf").write_bytes(pdf(objects))
    assert text_of(read_file(context, "a.pdf")) == "--- Page 1 of 1 ---\n\ncaption\n"


@pytest.mark.requirement("pdf.damage")
def test_a_damaged_page_does_not_stop_the_others_from_being_read(root: Path, context: ToolContext) -> None:
    objects = page_objects(
        stream(lines("one")), stream(b"\0" * 100, b"/Filter [/LZWDecode /Unknown]"), stream(lines("three"))
    )
    (root / "a.pdf").write_bytes(pdf(objects))
    text = text_of(read_file(context, "a.pdf"))
    assert "--- Page 2 of 3 ---\n\n[This page could not be read.]\n\n--- Page 3 of 3 ---\n\nthree\n" in text


@pytest.mark.anyio
@pytest.mark.requirement("pdf.child")
async def test_the_server_answers_others_while_it_waits_for_a_slow_document(root: Path) -> None:
    (root / "a.pdf").write_bytes(pdf(page_objects(slow_page(20_000))))
    answer_count = 0
    async with connected("stdio", HANDSHAKE, root) as client, anyio.create_task_group() as group:
        is_done = anyio.Event()

        async def read_slowly() -> None:
            await client.call_tool("read_file", {"absolute_path": str(root / "a.pdf")})
            is_done.set()

        group.start_soon(read_slowly)
        while not is_done.is_set():
            await client.call_tool("list_directory", {"path": str(root)})
            answer_count += 1
    assert answer_count > 1


@pytest.mark.requirement("read.media")
@each_of(
    "image",
    [
        png(100_000, 100_000),
        b"II*\0\x08\0\0\0\xff\xff" + b"\0\x01\x04\0\x01\0\0\0\xff\xff\xff\xff" * 9,
        b"\xff\xd8" + b"\xff" * 100_000,
        b"\xff\xd8\xff\xe0\0\0" * 1_000,
        b"\0\0\0\x18ftypheic" + b"ispe" * 100_000,
        b"GIF89a\1\0\1\0\0\0\0" + b"!\xf9\0" * 10_000,
        b"\0\0\x01\0\xff\xff" + b"\0" * 40,
    ],
)
def test_an_image_that_lies_about_itself_becomes_a_link(image: bytes, root: Path, context: ToolContext) -> None:
    (root / "a.ico").write_bytes(image)
    text, link = read_file(context, "a.ico").parts
    assert isinstance(link, FileDataPart)
    assert f"{len(image):,} bytes" in getattr(text, "text", "")


@pytest.mark.requirement("read.type")
def test_svg_is_text_whatever_it_would_do_in_a_viewer(root: Path, context: ToolContext) -> None:
    text = (
        '<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">'
        '<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<svg><script>alert(1)</script>&b;&x;</svg>\n'
    )
    (root / "a.svg").write_text(text)
    reading = read_file(context, "a.svg")
    assert (reading.kind, text_of(reading)) == (FileKind.SVG, text)


@pytest.mark.requirement("read.type")
@pytest.mark.parametrize(
    ("name", "data", "mime_type"),
    [
        ("a.png", b"ID3\x04\0\0\0\0\0\0" + b"\xff\xfb" * 8, "audio/mpeg"),
        ("a.svg", b"\xff\xd8\xff\xe0\0\x10JFIF\0", "image/jpeg"),
        ("a.ipynb", b"RIFF\x24\0\0\0WAVEfmt \0", "audio/wav"),
        ("a.pdf", b"fLaC\0\0\0\x22", "audio/flac"),
        ("a.md", b"OggS\0\x02\0\0", "audio/ogg"),
    ],
)
def test_the_type_that_is_sent_is_the_type_of_the_content(
    name: str, data: bytes, mime_type: str, root: Path, context: ToolContext
) -> None:
    (root / name).write_bytes(data)
    part = read_file(context, name).parts[-1]
    assert isinstance(part, InlineDataPart | FileDataPart)
    assert part.mime_type == mime_type


@pytest.mark.requirement("read.notebook")
@pytest.mark.parametrize(
    "content",
    [
        '{"cells": ' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"cells": {"0": {"source": "x"}}}',
        '{"cells": "text"}',
        '{"cells": [',
    ],
)
def test_an_invalid_notebook_is_shown_as_text(content: str, root: Path, context: ToolContext) -> None:
    (root / "a.ipynb").write_text(content)
    reading = read_file(context, "a.ipynb")
    assert content[:100] in text_of(reading)


@pytest.mark.requirement("read.notebook")
@pytest.mark.parametrize("size", [10_000_000, 50_000_000])
@pytest.mark.parametrize("text", ["y", "\x1b["])
def test_a_notebook_with_a_huge_output_is_cut(size: int, text: str, root: Path, context: ToolContext) -> None:
    output = {"output_type": "stream", "text": text * (size // len(json.dumps(text)[1:-1]))}
    cells = [{"cell_type": "code", "source": "x", "outputs": [output]}, {"cell_type": "markdown", "source": "after"}]
    (root / "a.ipynb").write_text(json.dumps({"cells": cells}))
    assert len(text_of(read_file(context, "a.ipynb"))) < 30_000


@pytest.mark.requirement("read.notebook")
def test_a_notebook_of_countless_values_is_not_parsed(root: Path, context: ToolContext) -> None:
    (root / "a.ipynb").write_text('{"cells": [' + "[]," * 400_000 + "{}]}")
    assert text_of(read_file(context, "a.ipynb")).partition("---\n\n")[2].startswith('{"cells": [[],[],')
