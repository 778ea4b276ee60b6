"""Hostile paths: no spelling and no link leads a tool out of the workspace, and paths that stay inside work."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client

from tests.harness import HANDSHAKE, connected, in_memory, write_config
from tests.hostile.conftest import Neighbourhood
from tests.hostile.every_tool import (
    MARKER,
    ToolAnswer,
    answers,
    assert_alive,
    assert_refused,
    call,
    changers_of,
    is_refused,
    readers_of,
    searches_for,
)

pytestmark = pytest.mark.anyio

OUT = "path_not_in_workspace"

LEADING_OUT = [
    "{sibling}",
    "{root}/../workspace-evil/secret",
    "{root}/missing/deeper/../../../workspace-evil",
    "./.././workspace-evil//secret",
    "{root}//..//out/deep",
    "{root}/..",
    "//etc/passwd",
    "\t{outside}/f ",
    "{outside}/\\f",
]
"""Spellings of paths next to and above the workspace."""


@pytest.mark.requirement("paths.contained")
@pytest.mark.parametrize("spelling", LEADING_OUT)
async def test_every_tool_refuses_a_path_that_leads_out(spelling: str, around: Neighbourhood, client: Client) -> None:
    before = around.state()
    path = spelling.format(root=around.root, sibling=around.sibling, outside=around.outside)
    await assert_refused(client, path, OUT)
    assert around.state() == before
    assert not os.listdir(around.root)
    await assert_alive(client)


LINKS: dict[str, tuple[Callable[[Neighbourhood], object], list[str]]] = {
    "to a file": (lambda around: (around.root / "l").symlink_to(around.outside / "f"), ["l", "l/x"]),
    "to nothing": (lambda around: (around.root / "n").symlink_to(around.outside / "new"), ["n", "n/e/f"]),
    "to a folder": (
        lambda around: (around.root / "d").symlink_to(around.outside),
        ["d", "d/f", "d/x", "d/e/f/x", "d/deep", "d/deep/g", "d/deep/../f", "d/."],
    ),
    "up": (lambda around: (around.root / "u").symlink_to(".."), ["u", "u/out/f", "u/workspace-evil/secret"]),
    "below a folder": (
        lambda around: ((around.root / "sub").mkdir(), (around.root / "sub" / "s").symlink_to(around.sibling)),
        ["sub/s/secret", "sub/s", "sub/s/new", "sub/s/new/deep"],
    ),
    "with dots after it": (
        lambda around: (around.root / "o").symlink_to(around.outside / "deep"),
        ["o/..", "o/../f", "o/../new", "o/../../workspace-evil/secret"],
    ),
}


@pytest.mark.requirement("paths.links")
@pytest.mark.parametrize("kind", LINKS)
async def test_every_tool_refuses_a_link_that_leads_out(kind: str, around: Neighbourhood, client: Client) -> None:
    make, paths = LINKS[kind]
    make(around)
    inside, before = sorted(os.walk(around.root)), around.state()
    for path in paths:
        await assert_refused(client, path, OUT)
    await assert_refused(client, str(around.root / paths[0]), OUT)
    assert sorted(os.walk(around.root)) == inside
    assert around.state() == before
    await assert_alive(client)


@pytest.mark.requirement("paths.links")
async def test_walks_and_listings_show_nothing_behind_a_link_that_leads_out(
    around: Neighbourhood, client: Client
) -> None:
    (around.root / "folder").symlink_to(around.outside)
    (around.root / "file").symlink_to(around.outside / "f")
    (around.root / "mine.txt").write_text("mine\n")
    calls = [
        ("list_directory", {"path": "."}),
        ("glob", {"pattern": "**/*"}),
        ("glob", {"pattern": "folder/**"}),
        ("grep_search", {"pattern": "OUTSIDE|mine"}),
        ("grep_search", {"pattern": "OUTSIDE|mine", "glob": "f*"}),
        ("read_many_files", {"paths": ["**/*"]}),
        ("read_many_files", {"paths": ["folder/*", "fil*"]}),
    ]
    for answer in await answers(client, calls):
        assert answer.result.is_error is not True
        assert MARKER not in answer.everything
        assert "deep" not in answer.text
        assert "deep" not in str(answer.result.structured_content)
    assert "mine" in (await call(client, "grep_search", pattern="OUTSIDE|mine")).text


@pytest.mark.requirement("paths.bounded_names")
async def test_a_chain_of_41_links_and_a_loop_are_refused_with_the_reason(root: Path, client: Client) -> None:
    (root / "0").write_text(f"{MARKER}\n")
    for number in range(41):
        (root / str(number + 1)).symlink_to(str(number))
    (root / "circle").symlink_to("circle")
    (root / "ping").symlink_to("pong")
    (root / "pong").symlink_to("ping")
    for path in ("41", "circle", "ping", "circle/x", "ping/../circle"):
        for answer in await answers(client, readers_of(path) + changers_of(path)):
            assert is_refused(answer), (answer.tool, answer.text)
            assert "ELOOP" in answer.text or "that loops" in answer.text, (answer.tool, answer.text)
            assert MARKER not in answer.everything
    assert (root / "0").read_text() == f"{MARKER}\n"
    assert (root / "circle").is_symlink()
    assert MARKER in (await call(client, "read_file", file_path="40")).text


@pytest.mark.requirement("paths.links")
@pytest.mark.parametrize("is_absolute", [True, False])
async def test_links_that_stay_inside_work_for_every_tool_and_stay_links(
    is_absolute: bool, root: Path, client: Client
) -> None:
    (root / "real" / "deep").mkdir(parents=True)
    (root / "real" / "deep" / "a.txt").write_text("inside\n")
    (root / "link").symlink_to(root / "real" if is_absolute else "real")
    (root / "file").symlink_to(root / "real" / "deep" / "a.txt" if is_absolute else "real/../real/deep/a.txt")
    for path in ("link/deep/a.txt", "file", "link/../file", "link/deep/../../file"):
        assert (await call(client, "read_file", file_path=path)).text == "inside\n"
        assert "inside" in (await call(client, "grep_search", pattern="inside", path=path)).text
        assert "inside" in (await call(client, "read_many_files", paths=[path])).text
    assert "a.txt" in (await call(client, "list_directory", path="link/deep")).text
    assert "a.txt" in (await call(client, "glob", pattern="**/*", path="link")).text
    edit_answer = await call(client, "edit", file_path="file", old_string="inside", new_string="edited")
    assert edit_answer.result.is_error is not True
    write_answer = await call(client, "write_file", file_path="link/made/b.txt", content="made\n")
    assert write_answer.result.is_error is not True
    assert (root / "real" / "deep" / "a.txt").read_text() == "edited\n"
    assert (root / "real" / "made" / "b.txt").read_text() == "made\n"
    assert (root / "file").is_symlink()
    assert (root / "link").is_symlink()


IMPOSSIBLE = {
    "NUL": "a\0b",
    "NUL after a good name": "kept.txt\0.png",
    "5,000 bytes": "d/" * 2_500,
    "5,000 bytes of other characters": "\u00e4" * 2_500,
    "absolute and long": "/" + "d/" * 2_500,
    "component of 300 bytes": "x" * 300,
    "component of 300 bytes below another": f"kept/{'x' * 300}/y",
    "component of 400 bytes in 200 characters": "\u00e4" * 200,
    "blank": "   ",
    "empty": "",
}


@pytest.mark.requirement("paths.no_path")
@pytest.mark.parametrize("kind", IMPOSSIBLE)
async def test_a_path_that_no_file_can_have_is_refused_and_shortened_in_the_error(
    kind: str, root: Path, client: Client
) -> None:
    (root / "kept.txt").write_text("kept\n")
    path = IMPOSSIBLE[kind]
    calls = readers_of(path) + changers_of(path)
    if not path.strip():
        # In searches an empty path means the whole workspace.
        calls = [(tool, arguments) for tool, arguments in calls if tool not in {"glob", "grep_search"}]
    for answer in await answers(client, calls):
        assert is_refused(answer), (answer.tool, answer.text)
        # For a long name below a missing folder, the missing folder is the first error.
        assert answer.code in {None, "invalid_tool_params", "file_not_found", "search_path_not_found"}, (
            answer.tool,
            answer.text,
        )
        assert len(answer.text) < 1_500, answer.tool
    for answer in await answers(client, searches_for(path)):
        assert "Traceback" not in answer.text
        assert len(answer.text) < 1_500 + len(path), answer.tool
    assert os.listdir(root) == ["kept.txt"]
    await assert_alive(client)


LITERAL = [
    "~made",
    "$HOME/x",
    "${HOME}",
    "%2e%2e/x",
    "..%2fx",
    "`id`",
    "a;b",
    "-rf",
    "file:x",
    "*",
]


@pytest.mark.requirement("paths.no_path")
async def test_text_that_a_shell_would_expand_is_a_literal_name(
    around: Neighbourhood, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(around.outside / "home"))
    before = around.state()
    for name in LITERAL:
        write_answer = await call(client, "write_file", file_path=name, content="literal\n")
        assert write_answer.result.is_error is not True, write_answer.text
        assert (around.root / name).read_text() == "literal\n"
        assert (await call(client, "read_file", file_path=name)).text == "literal\n"
        assert "literal" in (await call(client, "grep_search", pattern="literal", path=name)).text
    assert around.state() == before


@pytest.mark.requirement("paths.no_path")
@pytest.mark.parametrize("path", ["~", "~/f", "~/deep", "$HOME/f", "~root/.profile", "%2e%2e/out/f"])
async def test_text_that_a_shell_would_expand_never_leads_to_the_home_folder(
    path: str, around: Neighbourhood, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(around.outside))
    before = around.state()
    for answer in await answers(client, readers_of(path)):
        assert is_refused(answer), (answer.tool, answer.text)
        assert MARKER not in answer.everything
    assert around.state() == before


@pytest.mark.requirement("paths.no_path")
async def test_a_tilde_is_not_expanded_even_if_the_home_folder_is_the_workspace(
    root: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(root))
    (root / "a.txt").write_text("at home\n")
    for answer in await answers(client, readers_of("~/a.txt") + changers_of("~/a.txt")[1:2]):
        assert is_refused(answer), (answer.tool, answer.text)
        assert "at home" not in answer.text
    assert (root / "a.txt").read_text() == "at home\n"
    assert os.listdir(root) == ["a.txt"]


@pytest.mark.requirement("paths.contained")
@pytest.mark.parametrize(
    "spell",
    [" {outside}/{name}", "{outside}/\\{name}", "~/{name}", "{outside}/{name}", "d/{name}", "\t{outside}/{name}"],
)
async def test_answers_do_not_tell_whether_something_outside_exists(
    spell: str, around: Neighbourhood, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(around.outside))
    (around.root / "d").symlink_to(around.outside)
    existing, missing = (spell.format(outside=around.outside, name=name) for name in ("f", "g"))
    for tool, arguments in readers_of(existing):
        existing_answer = await call(client, tool, **arguments)
        missing_answer = await call(client, tool, **dict(readers_of(missing))[tool])
        assert (
            missing_answer.text.replace(missing, existing).replace(missing.strip(), existing.strip())
            == existing_answer.text
        )


MAGIC = ["/proc/self/environ", "/proc/self/root/etc/passwd", "/proc/self/cwd", "/dev/fd/0", "/dev/stdin", "/proc/1/mem"]


@pytest.mark.requirement("paths.special")
async def test_magic_links_are_refused_both_directly_and_through_a_link(around: Neighbourhood) -> None:
    (around.root / "p").symlink_to("/proc/self/root")
    (around.root / "c").symlink_to("/proc/self/cwd")
    (around.root / "fd").symlink_to("/dev/fd")
    links = ["p", "p/etc/passwd", f"p{around.outside}/f", "c", "c/pyproject.toml", "fd/0", "fd/1"]
    async with connected("stdio", HANDSHAKE, around.root) as client:
        for path in [*MAGIC, *links]:
            for answer in await answers(client, readers_of(path) + changers_of(path)):
                assert is_refused(answer), (answer.tool, path, answer.text)
                assert MARKER not in answer.everything
                assert "root:" not in answer.text
                assert "PATH=" not in answer.text
        await assert_alive(client)


@pytest.mark.requirement("ls.errors")
async def test_reading_a_folder_and_listing_a_file_are_errors_with_their_own_codes(root: Path, client: Client) -> None:
    (root / "folder").mkdir()
    (root / "file").write_text("text\n")
    for path in ("folder", "."):
        read_answer, *change_answers = await answers(client, [readers_of(path)[0], *changers_of(path)])
        assert read_answer.code == "target_is_directory"
        assert {answer.code for answer in change_answers} == {"target_is_directory"}
    assert (await call(client, "list_directory", path="file")).code == "path_is_not_a_directory"
    assert (await call(client, "glob", pattern="*", path="file")).code == "search_path_not_a_directory"
    assert (await call(client, "read_file", file_path="file/")).code in {"invalid_tool_params", "file_not_found"}
    for answer in await answers(client, readers_of("file/below")):
        assert is_refused(answer), answer.text
    write_answer = await call(client, "write_file", file_path="file/below", content="x")
    assert write_answer.code == "file_write_failure"
    assert (root / "file").read_text() == "text\n"
    await assert_alive(client)


@pytest.mark.requirement("paths.case")
async def test_names_that_look_alike_are_distinguished_byte_by_byte(root: Path, client: Client) -> None:
    composed, decomposed = (unicodedata.normalize(form, "caf\u00e9.txt") for form in ("NFC", "NFD"))
    (root / composed).write_text("composed\n")
    edit_answer = await call(client, "edit", file_path=decomposed, old_string="composed", new_string="edited")
    assert edit_answer.code == "file_not_found"
    (root / decomposed).write_text("apart\n")
    if len(os.listdir(root)) != 2:
        pytest.skip("not run: on this file system the two names are one")
    assert (await call(client, "read_file", file_path=composed)).text == "composed\n"
    assert (await call(client, "read_file", file_path=decomposed)).text == "apart\n"
    assert (await call(client, "edit", file_path=decomposed, old_string="apart", new_string="edited")).code is None
    assert (await call(client, "write_file", file_path="Caf\u00e9.txt", content="capital\n")).code is None
    assert (root / composed).read_text() == "composed\n"
    assert (root / decomposed).read_text() == "edited\n"
    assert len(os.listdir(root)) == 3
    entries = (await call(client, "list_directory", path=".")).structured["entries"]
    assert {entry["name"] for entry in entries} == {composed, decomposed, "Caf\u00e9.txt"}


@pytest.mark.requirement("hostile.hard_links")
@pytest.mark.parametrize("tool", ["write_file", "edit"])
async def test_a_write_breaks_a_hard_link_to_a_file_outside_and_says_so(
    tool: str, around: Neighbourhood, client: Client
) -> None:
    target = around.outside / "f"
    os.link(target, around.root / "linked")
    inode, content = target.stat().st_ino, target.read_bytes()
    arguments = {"content": "mine\n"} if tool == "write_file" else {"old_string": MARKER, "new_string": "mine"}
    answer = await call(client, tool, file_path="linked", **arguments)
    assert answer.result.is_error is not True
    assert (around.root / "linked").read_text() == "mine\n"
    assert (target.stat().st_ino, target.read_bytes()) == (inode, content)
    assert target.stat().st_nlink == 1
    assert answer.structured["links_broken"] == 1
    assert "hard link" in answer.text


class AnyRoots(types.ListRootsResult):
    """Roots that are not valid, as a client may send them."""

    roots: list[Any]


async def read_with_roots(
    uris: list[str], paths: list[Path], operator_root: Path | None, folder: Path, **settings: Any
) -> list[ToolAnswer]:
    """Read the paths as a client with these roots, and return the answers."""
    requests: list[int] = []

    async def roots(_context: Any) -> types.ListRootsResult:
        requests.append(len(uris))
        return AnyRoots(roots=[{"uri": uri} for uri in uris])

    config = write_config(folder, settings)
    async with in_memory(HANDSHAKE, operator_root, config, list_roots_callback=roots) as client:
        answers_read: list[ToolAnswer] = []
        for _ in range(10):
            answers_read = [await call(client, "read_file", file_path=str(path)) for path in paths]
            # A client that lists very many roots slowly is asked again at its next call.
            if not any("does not list them" in answer.text for answer in answers_read):
                break
        await assert_alive(client)
    assert bool(requests) is (operator_root is None or bool(settings))
    return answers_read


WIDE_ROOTS: dict[str, Callable[[Neighbourhood], list[str]]] = {
    "the top": lambda _around: ["file:///"],
    "the folder above": lambda around: [around.root.parent.as_uri()],
    "10,000": lambda around: [around.root.as_uri(), *(f"file:///t/{number}" for number in range(9_998)), "file:///"],
    "also outside": lambda around: [around.outside.as_uri(), around.root.as_uri(), around.sibling.as_uri()],
    "dots": lambda around: [f"file://{around.root}/../{around.root.name}", f"file://{around.root}/.."],
    "host": lambda around: [around.root.as_uri(), f"file://elsewhere{around.outside}"],
}


@pytest.mark.requirement("roots.operator")
@pytest.mark.parametrize("client_roots", ["ignore", "intersect"])
@pytest.mark.parametrize("kind", WIDE_ROOTS)
async def test_a_clients_roots_never_widen_the_operators(
    kind: str, client_roots: str, around: Neighbourhood, tmp_path: Path
) -> None:
    (around.root / "mine.txt").write_text("mine\n")
    paths = [around.root / "mine.txt", around.outside / "f", around.sibling / "secret", Path("/etc/passwd")]
    settings = {"workspace": {"clientRoots": client_roots}} if client_roots == "intersect" else {}
    inside_answer, *outside_answers = await read_with_roots(
        WIDE_ROOTS[kind](around), paths, around.root, tmp_path, **settings
    )
    assert inside_answer.text == "mine\n"
    for answer in outside_answers:
        assert answer.code == OUT, answer.text
        assert MARKER not in answer.everything


@pytest.mark.requirement("roots.operator")
@pytest.mark.parametrize(
    "uri", ["https://example.com/", "data:,x", "file:///no/such/folder", "file:///etc/passwd", "file:///%00", "x"]
)
@pytest.mark.parametrize("has_operator", [True, False])
async def test_a_root_that_is_not_a_folder_opens_nothing(
    uri: str, has_operator: bool, around: Neighbourhood, tmp_path: Path
) -> None:
    paths = [around.outside / "f", Path("/etc/passwd"), Path("/no/such/folder/x")]
    operator = around.root if has_operator else None
    settings = {"workspace": {"clientRoots": "intersect"}} if has_operator else {}
    for answer in await read_with_roots([uri], paths, operator, tmp_path, **settings):
        assert answer.code in {OUT, "no_workspace"}, answer.text
        assert MARKER not in answer.everything


@pytest.mark.requirement("roots.operator")
async def test_without_operator_folders_only_the_clients_roots_are_the_workspace(
    around: Neighbourhood, tmp_path: Path
) -> None:
    (around.root / "mine.txt").write_text("mine\n")
    uris = [around.root.as_uri(), *(f"file:///t/{number}" for number in range(9_999))]
    paths = [around.root / "mine.txt", around.outside / "f", around.sibling / "secret"]
    inside_answer, *outside_answers = await read_with_roots(uris, paths, None, tmp_path)
    assert inside_answer.text == "mine\n"
    assert {answer.code for answer in outside_answers} == {OUT}


@pytest.mark.requirement("roots.operator")
async def test_without_operator_folders_all_the_clients_roots_count(around: Neighbourhood, tmp_path: Path) -> None:
    folders = [tmp_path / "many" / str(number) for number in range(150)]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("counted\n")
    root_answers = await read_with_roots(
        [folder.as_uri() for folder in folders], [folders[0] / "a.txt", folders[-1] / "a.txt"], None, tmp_path
    )
    assert [answer.text for answer in root_answers] == ["counted\n", "counted\n"]


@pytest.mark.requirement("roots.operator")
async def test_a_root_that_is_not_a_file_uri_does_not_invalidate_the_others(
    around: Neighbourhood, tmp_path: Path
) -> None:
    (around.root / "mine.txt").write_text("mine\n")
    paths = [around.root / "mine.txt", around.outside / "f"]
    inside_answer, outside_answer = await read_with_roots(
        [around.root.as_uri(), "https://example.com/"], paths, None, tmp_path
    )
    assert inside_answer.text == "mine\n"
    assert outside_answer.code == OUT
