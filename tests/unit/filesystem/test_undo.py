"""Undo: the journal of earlier file contents, and the tools that list changes and take them back."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tools.builtin.edit import EditTool, WriteFileTool
from tools.builtin.save_memory import MemoryTool
from tools.builtin.undo import ListChangesTool, UndoChangeTool
from tools.call.base_tool import BaseTool, ClientState, Services, ToolContext
from tools.contract.confirmation import EditConfirmation
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.change.journal import FILE, Journal, JournalError, NewChange
from tools.files.change.revert import plan_for_person
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio

UNUSABLE = "This change cannot be undone. The change journal"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path.resolve() / "state" / "coretools-mcp"


@pytest.fixture
def journal(store: Path) -> Generator[Journal]:
    journal = Journal(str(store), 100_000_000, 30, 10_000)
    yield journal
    journal.close()


@pytest.fixture
def context(context: ToolContext, journal: Journal) -> ToolContext:
    return replace(context, services=Services(journal=lambda: journal))


async def call(tool: BaseTool[Any], context: ToolContext, **arguments: Any) -> ToolResult:
    """Execute a tool without asking anybody, and return the result."""
    return await tool.execute(tool.validate_tool_params(arguments), replace(context, memo={}))


async def text(tool: BaseTool[Any], context: ToolContext, **arguments: Any) -> str:
    return str((await call(tool, context, **arguments)).llm_content)


async def write(context: ToolContext, name: str, content: str) -> str:
    return await text(WriteFileTool(), context, file_path=name, content=content)


async def undo(context: ToolContext, number: int | None = None) -> ToolResult:
    return await call(UndoChangeTool(), context, **({"change_id": number} if number is not None else {}))


async def refusal(context: ToolContext, number: int | None = None) -> ToolError:
    """Return the error of an undo. The preview and the execution must fail in the same way."""
    tool = UndoChangeTool()
    params = tool.validate_tool_params({"change_id": number} if number is not None else {})
    with pytest.raises(ToolError) as preview_error:
        await tool.should_confirm_execute(params, replace(context, memo={}))
    with pytest.raises(ToolError) as execution_error:
        await tool.execute(params, replace(context, memo={}))
    assert preview_error.value.message == execution_error.value.message
    return execution_error.value


# --- Undo and redo ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("undo.change")
async def test_edits_and_new_files_are_taken_back_one_by_one_byte_for_byte_with_their_modes(
    root: Path, context: ToolContext
) -> None:
    path = root / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    path.chmod(0o640)
    original = path.read_bytes()
    await call(EditTool(), context, file_path="a.txt", old_string="one", new_string="1")
    after_first = path.read_bytes()
    await call(EditTool(), context, file_path="a.txt", old_string="two", new_string="2")
    await write(context, "deep/new.bin", "x")
    result = await undo(context)
    assert not (root / "deep/new.bin").exists()
    assert (root / "deep").is_dir()
    assert result.structured is not None
    assert (result.structured["undone"], result.structured["removed_file"]) == (3, True)
    result = await undo(context)
    assert path.read_bytes() == after_first
    assert str(result.llm_content).startswith(
        f"Change 2 was undone in {path}: +1 -1 lines; now {len(after_first)} bytes"
    )
    await undo(context)
    assert path.read_bytes() == original
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    error = await refusal(context)
    assert error.code is ToolErrorType.FILE_NOT_FOUND
    assert "left to undo in this workspace. Changes by commands and other programs are not recorded." in error.message


@pytest.mark.requirement("undo.change")
async def test_bytes_that_are_not_text_come_back_and_no_diff_of_them_is_shown(root: Path, context: ToolContext) -> None:
    path = root / "picture.png"
    path.write_bytes(b"\x89PNG\0\xff" * 10)
    await write(context, "picture.png", "text\n")
    tool = UndoChangeTool()
    question = await tool.should_confirm_execute(tool.validate_tool_params({}), context)
    assert isinstance(question, EditConfirmation)
    assert "[not text: 5 bytes before, 60 bytes afterwards]" in question.file_diff
    await undo(context)
    assert path.read_bytes() == b"\x89PNG\0\xff" * 10


@pytest.mark.requirement("undo.race")
@pytest.mark.parametrize("loser", [0, 1])
def test_a_change_that_one_of_two_servers_has_undone_stays_undone_if_the_other_fails(
    loser: int, store: Path, root: Path
) -> None:
    """Each server records an undo before it changes the file, and withdraws the record if the undo fails.

    An undo also fails if it comes too late, because the other server has changed the file in the meantime.
    """
    servers = [Journal(str(store), 100_000_000, 30, 10_000) for _ in range(2)]
    path = str(root / "a.txt")

    def add(server: Journal, undoes: int | None = None) -> int:
        return server.add(NewChange(path, b"a", b"b", "a", "b", 1, 1, undoes=undoes), "client", "edit")

    def undone_ids() -> list[int]:
        return sorted(change.id for change in servers[0].changes(None, [str(root)], limit=9) if change.is_undone)

    edit = add(servers[0])
    undos = [add(server, edit) for server in servers]
    servers[loser].withdraw(undos[loser])
    assert undone_ids() == [edit]
    redo = add(servers[loser], undos[1 - loser])
    assert undone_ids() == [undos[1 - loser]]
    servers[loser].withdraw(redo)
    assert undone_ids() == [edit]
    later_change = add(servers[1 - loser])
    late_undo = add(servers[loser], edit)
    assert undone_ids() == [edit, later_change]
    servers[loser].withdraw(late_undo)
    assert undone_ids() == [edit]
    for server in servers:
        server.close()


@pytest.mark.requirement("undo.redo")
async def test_an_undo_can_be_undone_by_its_number_and_a_removed_file_comes_back_with_its_mode(
    root: Path, context: ToolContext
) -> None:
    path = root / "new.sh"
    await write(context, "new.sh", "echo\n")
    path.chmod(0o751)
    assert "This is change 2, which can also be undone." in str((await undo(context)).llm_content)
    assert not path.exists()
    assert str((await undo(context, 2)).llm_content).startswith(f"Change 2 was undone: {path} was restored, 5 bytes")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("echo\n", 0o751)
    # The first change counts again, and it is the last one that is not undone.
    await undo(context)
    assert not path.exists()
    lines = (await text(ListChangesTool(), context)).splitlines()
    assert [line.partition(" ")[0] for line in lines[:-1]] == ["4", "3", "2", "1"]
    assert [line.partition("(")[2] for line in lines[:-1]] == [
        "removed, undoes 1)",
        "+1 -0, new, undoes 2)",
        "removed, undoes 1, undone)",
        "+1 -0, new, undone)",
    ]


@pytest.mark.requirement("undo.moved_on")
async def test_a_file_that_changed_since_is_not_touched_and_the_error_shows_the_changes(
    root: Path, context: ToolContext
) -> None:
    path = root / "a.txt"
    path.write_text("one\n")
    await write(context, "a.txt", "two\n")
    path.write_text("two\nthree\n")
    error = await refusal(context)
    assert error.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    assert "has changed since change 1, so nothing was undone. Changes since then:\n" in error.message
    assert "+three\n" in error.message
    assert path.read_text() == "two\nthree\n"
    path.unlink()
    assert (await refusal(context)).message.endswith("it back and undo this change again, or edit it where it is now.")
    path.write_text("one\n")
    assert "is already as it was before change 1" in (await refusal(context, 1)).message


@pytest.mark.requirement("undo.moved_on")
async def test_the_error_without_a_number_names_the_next_older_change_that_can_be_undone(
    root: Path, context: ToolContext
) -> None:
    for name in ("a.txt", "b.txt", "c.txt", "c.txt", "b.txt"):
        await write(context, name, f"{os.urandom(4).hex()}\n")
    (root / "c.txt").write_text("theirs\n")
    await undo(context)
    for number, name in ((2, "b.txt"), (1, "a.txt")):
        hint = f"\nChange {number} ({root}/{name}) is the next older one that can be undone; pass change_id={number}."
        assert (await refusal(context)).message.endswith(hint)
        await undo(context, number)
    assert "next older one" not in (await refusal(context)).message
    assert os.listdir(root) == ["c.txt"]


@pytest.mark.requirement("undo.change")
async def test_the_list_counts_the_older_changes_and_continues_before_a_number(
    root: Path, context: ToolContext, journal: Journal
) -> None:
    await write(context, "a", "a")
    (change,) = journal.changes(None, [str(root)], limit=9)
    for _ in range(1_030):
        journal.add(NewChange(change.path, b"a", b"b", "a", "b", 1, 1), change.client, "edit")
    first = str(await text(ListChangesTool(), context)).splitlines()
    assert first[-2] == "Older changes not shown: 1,000 or more. Continue with before=1002."
    second = await call(ListChangesTool(), context, before=40)
    assert "Older changes not shown: 9. Continue with before=10." in str(second.llm_content)
    assert second.structured is not None
    assert (second.structured["changes"][0]["change_id"], second.structured["older"]) == (39, 9)
    last = await call(ListChangesTool(), context, before=10)
    assert "Older changes" not in str(last.llm_content)
    assert last.structured is not None
    assert ([change["change_id"] for change in last.structured["changes"]], last.structured["older"]) == (
        list(range(9, 0, -1)),
        0,
    )
    assert "No file changes before 1 are recorded" in await text(ListChangesTool(), context, before=1)


@pytest.mark.requirement("undo.moved_on")
async def test_a_created_file_stays_if_its_content_has_changed(root: Path, context: ToolContext) -> None:
    await write(context, "a.txt", "mine\n")
    (root / "a.txt").write_text("mine\nyours\n")
    assert "+yours" in (await refusal(context)).message
    assert (root / "a.txt").read_text() == "mine\nyours\n"


@pytest.mark.requirement("undo.moved_on")
async def test_the_error_for_an_earlier_change_names_the_later_ones_of_the_file(
    root: Path, context: ToolContext
) -> None:
    for content in ("one\n", "two\n", "three\n"):
        await write(context, "a.txt", content)
    error = await refusal(context, 1)
    assert "changed again by change 3, change 2: undo these first, in this order, or edit the file." in error.message
    assert "changed again by change 3: undo it first, or edit the file." in (await refusal(context, 2)).message
    for _ in range(3):
        await undo(context)
    assert not (root / "a.txt").exists()


@pytest.mark.requirement("undo.moved_on")
async def test_the_error_mentions_a_later_change_by_another_client_without_its_number(
    root: Path, context: ToolContext, journal: Journal
) -> None:
    other_client = replace(context, client=ClientState("other"))
    await write(context, "a.txt", "one\n")
    await write(other_client, "a.txt", "two\n")
    advice = (
        "only the user can undo another client's change (coretools-mcp undo), so edit the file instead. "
        "Changes since then:"
    )
    assert f"The file was changed again by another client: {advice}" in (await refusal(context)).message
    await write(other_client, "a.txt", "three\n")
    await write(replace(context, client=ClientState(context.client.key)), "a.txt", "four\n")  # has not read it
    assert f"The file was changed again by change 4, another client: {advice}" in (await refusal(context, 1)).message
    assert "There is no file change 3 " in (await refusal(context, 3)).message
    assert (
        "The file was changed again by another client, change 3: only the user"
        in (await refusal(other_client, 2)).message
    )
    # A person is told the numbers of all changes.
    with pytest.raises(ToolError, match="changed again by change 4, change 3, change 2: undo these first"):
        plan_for_person(journal, context.workspace, 1)


@pytest.mark.requirement("undo.moved_on")
async def test_a_change_by_another_client_counts_as_undone_once_the_file_is_as_before(
    root: Path, context: ToolContext
) -> None:
    other_client = replace(context, client=ClientState("other"))
    await write(other_client, "b.txt", "b\n")
    await write(context, "a.txt", "one\n")
    await write(other_client, "a.txt", "two\n")
    (root / "a.txt").write_text("one\n")  # written outside this server
    await undo(context)
    assert not (root / "a.txt").exists()
    listing = await text(ListChangesTool(), other_client)
    assert "a.txt (+1 -1, undone)" in listing
    await undo(other_client)  # the last change of this client that is not undone
    assert os.listdir(root) == []


@pytest.mark.requirement("undo.links")
async def test_no_link_is_followed_and_a_file_with_other_names_is_refused(
    root: Path, tmp_path: Path, context: ToolContext
) -> None:
    other_folder = tmp_path / "elsewhere"
    other_folder.mkdir()
    (other_folder / "a.txt").write_text("new\n")
    await write(context, "sub/a.txt", "new\n")
    os.rename(root / "sub", root / "moved")
    (root / "sub").symlink_to(other_folder)
    await refusal(context)
    assert (other_folder / "a.txt").read_text() == "new\n"
    os.unlink(root / "sub")
    os.rename(root / "moved", root / "sub")
    (root / "sub/a.txt").rename(root / "kept")
    (root / "sub/a.txt").symlink_to(root / "kept")
    await refusal(context)
    assert (root / "kept").read_text() == "new\n"
    os.unlink(root / "sub/a.txt")
    os.link(root / "kept", root / "sub/a.txt")
    assert "has other names (hard links)" in (await refusal(context)).message
    os.unlink(root / "kept")
    await undo(context)
    assert not (root / "sub/a.txt").exists()


@pytest.mark.requirement("undo.hidden")
async def test_a_file_hidden_from_agents_is_not_restored_and_its_content_is_not_disclosed(
    root: Path, context: ToolContext
) -> None:
    (root / ".qwenignore").write_text("secret\n")
    (root / "secret").write_text("the password\n")
    await write(context, "secret", "guess\n")
    error = await refusal(context)
    assert error.code is ToolErrorType.PATH_IGNORED
    assert "coretools-mcp undo 1" in error.message
    listed = await call(ListChangesTool(), context)
    assert "password" not in f"{error.message}{listed.llm_content}"
    assert "secret (+1, hidden content replaced)" in str(listed.llm_content)
    assert listed.structured is not None
    assert listed.structured["changes"][0]["removed"] is None
    (root / "secret").write_text("the password\n")
    assert (await refusal(context)).message == error.message


@pytest.mark.requirement("undo.change")
async def test_a_memory_of_the_project_is_taken_back(root: Path, context: ToolContext) -> None:
    await text(MemoryTool(), context, fact="Tabs.", scope="project")
    assert (root / "AGENTS.md").exists()
    await undo(context)
    assert not (root / "AGENTS.md").exists()


# --- Changes of other clients ----------------------------------------------------------------------------------------


@pytest.mark.requirement("undo.whose")
async def test_a_client_sees_its_own_changes_in_its_own_workspace_alone(
    root: Path, tmp_path: Path, context: ToolContext
) -> None:
    await write(context, "a.txt", "x\n")
    other_client = replace(context, client=ClientState("other"))
    other_folder = tmp_path / "workspace-2"  # its name begins with the name of the first workspace
    other_folder.mkdir()
    for other_context in (other_client, replace(context, workspace=Workspace([str(other_folder)]))):
        assert (await text(ListChangesTool(), other_context)).startswith(
            "No file changes are recorded in this workspace."
        )
        assert "There is no file change 1 in this workspace" in (await refusal(other_context, 1)).message
    assert "a.txt (+1 -0, new)" in await text(ListChangesTool(), context)


@pytest.mark.requirement("undo.whose")
async def test_nothing_is_recorded_for_an_anonymous_client(root: Path, store: Path, context: ToolContext) -> None:
    anonymous = replace(context, client=ClientState(""))
    assert "undone" not in await write(anonymous, "a.txt", "x\n")
    assert not store.exists()
    for tool in (ListChangesTool(), UndoChangeTool()):
        with pytest.raises(ToolError, match="No changes are recorded for this client"):
            await call(tool, anonymous)


@pytest.mark.requirement("undo.store")
async def test_the_store_is_private_and_contains_no_session_key(root: Path, store: Path, context: ToolContext) -> None:
    session = replace(context, client=ClientState("http:0123456789abcdef"))
    old_umask = os.umask(0)
    try:
        await write(session, "a.txt", "x\n")
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    for path in store.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert b"0123456789abcdef" not in path.read_bytes()


# --- A journal that cannot be used -----------------------------------------------------------------------------------


@pytest.mark.requirement("undo.unusable")
async def test_a_file_that_is_too_large_is_edited_and_the_answer_says_that_it_cannot_be_undone(
    root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_text("x" * 10_001)
    message = await write(context, "a.txt", "small\n")
    assert (
        "cannot be undone. The file was 10,001 bytes long, more than the limit for undo (undo.maxFileBytes)." in message
    )
    assert (root / "a.txt").read_text() == "small\n"
    assert "undone" not in await write(context, "a.txt", "y" * 20_000)
    (root / "a.txt").write_text("z")
    assert "has changed since change 2" in (await refusal(context)).message


@pytest.mark.requirement("undo.unusable")
async def test_without_a_number_no_older_change_is_undone_instead_of_one_that_cannot_be_undone(
    root: Path, context: ToolContext, journal: Journal
) -> None:
    await write(context, "small.txt", "x\n")
    (root / "large.txt").write_text("x" * 10_001)
    tool = WriteFileTool()
    params = tool.validate_tool_params({"file_path": "large.txt", "content": "y"})
    question = await tool.should_confirm_execute(params, replace(context, memo={}))
    assert isinstance(question, EditConfirmation)
    assert any("This change cannot be undone. The file was 10,001 bytes long" in note for note in question.notes)
    await write(context, "large.txt", "y")
    error = await refusal(context)
    assert f"Change 2 cannot be undone: the earlier content of '{root}/large.txt' was too large" in error.message
    hint = f"\nChange 1 ({root}/small.txt) is the next older one that can be undone; "
    assert error.message.endswith(f"{hint}pass change_id=1.")
    with pytest.raises(ToolError) as error_for_person:
        plan_for_person(journal, context.workspace, None)
    assert error_for_person.value.message.endswith(f"{hint}run coretools-mcp undo 1.")
    assert hint not in (await refusal(context, 2)).message
    await undo(context, 1)
    assert not (root / "small.txt").exists()


def damage(store: Path) -> None:
    (store / FILE).write_bytes(b"not a database" * 1_000)


def make_foreign(store: Path) -> None:
    database = sqlite3.connect(store / FILE)
    database.execute("CREATE TABLE other (x)")
    database.close()


def make_a_link(store: Path) -> None:
    (store / "elsewhere").write_bytes(b"")
    (store / FILE).symlink_to(store / "elsewhere")


def make_a_link_beside(store: Path) -> None:
    (store / "elsewhere").write_bytes(b"")
    (store / f"{FILE}-wal").symlink_to(store / "elsewhere")


def make_a_hard_link(store: Path) -> None:
    (store / "elsewhere").write_bytes(b"")
    os.link(store / "elsewhere", store / FILE)


def make_writable(store: Path) -> None:
    (store / FILE).write_bytes(b"")
    (store / FILE).chmod(0o660)


def give_away(store: Path) -> None:
    (store / FILE).write_bytes(b"")
    if os.geteuid() != 0:
        pytest.skip("not run: only root gives files away")
    os.chown(store / FILE, 12_345, -1)


def make_a_folder(store: Path) -> None:
    (store / FILE).mkdir()


@pytest.mark.requirement("undo.unusable")
@pytest.mark.parametrize(
    "spoil_store",
    [
        *(damage, make_foreign, make_a_link, make_a_folder, make_a_link_beside, make_a_hard_link, make_writable),
        give_away,
    ],
)
async def test_edits_still_work_without_a_usable_store_and_say_so(
    root: Path, store: Path, context: ToolContext, spoil_store: Any
) -> None:
    store.mkdir(parents=True)
    spoil_store(store)
    files = os.listdir(store)
    assert "This change cannot be undone. " in await write(context, "a.txt", "x\n")
    assert (root / "a.txt").read_text() == "x\n"
    with pytest.raises(ToolError) as error_info:
        await call(ListChangesTool(), context)
    assert re.fullmatch(r"(The|Other users) .*\.", error_info.value.message)
    assert set(files) <= {*os.listdir(store)} <= {*files, FILE}


@pytest.mark.requirement("stored.types")
async def test_journal_entries_with_values_of_other_types_are_skipped(
    root: Path, store: Path, context: ToolContext, journal: Journal
) -> None:
    for number in range(6):
        await write(context, f"{number}.txt", "x\n")
    with closing(sqlite3.connect(store / FILE)) as database:
        for number, column in enumerate(("path = 1.5", "time = 'x'", "time = 9e99", "added = 'x'", "removed = x'00'")):
            database.execute(f"UPDATE change SET {column} WHERE id = {number + 1}")  # noqa: S608 - a constant
        database.execute("UPDATE image SET content = 5")
        database.commit()
    assert re.findall(r"\d\.txt", await text(ListChangesTool(), context)) == ["5.txt"]
    (root / "5.txt").write_text("other\n")
    assert "damaged" in (await refusal(context, 6)).message


@pytest.mark.requirement("undo.store")
async def test_a_journal_that_others_could_read_is_closed_to_them(
    root: Path, store: Path, context: ToolContext, journal: Journal
) -> None:
    await write(context, "a.txt", "x\n")
    journal.close()
    (store / FILE).chmod(0o644)
    assert "undone" not in await write(context, "a.txt", "y\n")
    assert stat.S_IMODE((store / FILE).stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="not run: needs the file owners and links of POSIX")
@pytest.mark.requirement("undo.unusable")
@pytest.mark.parametrize("is_link", [True, False])
async def test_a_folder_that_is_a_link_or_of_another_user_gets_no_journal(
    root: Path, store: Path, tmp_path: Path, context: ToolContext, is_link: bool
) -> None:
    other_folder = tmp_path / "elsewhere"
    other_folder.mkdir(mode=0o755)
    if is_link:
        store.parent.mkdir(parents=True, exist_ok=True)
        store.symlink_to(other_folder)
    elif os.geteuid() != 0:
        pytest.skip("not run: only root gives folders away")
    else:
        store.mkdir(parents=True)
        os.chown(store, 12_345, -1)
    message = f"{UNUSABLE} cannot be used: its folder belongs to another user, or is a symlink or a file."
    assert message in await write(context, "a.txt", "x\n")
    assert (root / "a.txt").read_text() == "x\n"
    assert os.listdir(store) == []
    assert stat.S_IMODE(other_folder.stat().st_mode) == 0o755


@pytest.mark.requirement("undo.unusable")
async def test_a_store_that_is_locked_by_another_process_does_not_delay_edits_for_long(
    root: Path, store: Path, context: ToolContext
) -> None:
    await write(context, "a.txt", "one\n")
    database = sqlite3.connect(store / FILE, isolation_level=None)
    database.execute("BEGIN EXCLUSIVE")
    assert "This change cannot be undone. Another process is using the change journal." in await write(
        context, "a.txt", "two\n"
    )
    database.execute("COMMIT")
    database.close()
    assert "undone" not in await write(context, "a.txt", "three\n")


@pytest.mark.requirement("undo.unusable")
async def test_a_full_disk_prevents_only_the_undo(root: Path, context: ToolContext, journal: Journal) -> None:
    await write(context, "a.txt", "one\n")
    database = journal._connection  # pyright: ignore[reportPrivateUsage] - no other way to fill a disk
    assert database is not None
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    assert f"{UNUSABLE} cannot be written: no space is left." in await write(context, "a.txt", "y" * 9_000)
    assert (root / "a.txt").read_text() == "y" * 9_000


@pytest.mark.requirement("undo.unusable")
async def test_a_change_that_fails_leaves_nothing_in_the_journal(root: Path, context: ToolContext) -> None:
    (root / "folder").mkdir()
    with pytest.raises(ToolError):
        await write(context, "folder/x\0", "x")
    (root / "file").write_text("x")
    with pytest.raises(ToolError):
        await write(context, "file/below.txt", "x")
    assert (await text(ListChangesTool(), context)).startswith("No file change")


@pytest.mark.requirement("undo.unusable")
def test_a_store_that_was_removed_is_made_again(store: Path, journal: Journal) -> None:
    change = NewChange("/w/a", None, b"x", None, "1", 1, 0)
    assert journal.add(change, "c", "edit") == 1
    for path in store.iterdir():
        path.unlink()
    assert journal.add(change, "c", "edit") == 1
    assert len(journal.changes("c", ["/w"], limit=9)) == 1


# --- Bounds ----------------------------------------------------------------------------------------------------------


def new_content(number: int, size: int = 50_000) -> NewChange:
    content = str(number).encode().ljust(size, b"x")
    return NewChange("/w/a", None, content, None, str(number), 1, 0)


@pytest.mark.requirement("undo.whose")
def test_changes_in_a_new_journal_are_not_taken_for_those_in_a_deleted_one(store: Path) -> None:
    first, other = (Journal(str(store), 1_000_000, 30, 100_000) for _ in range(2))
    with closing(first), closing(other):
        for _ in range(2):
            assert first.is_own(first.add(new_content(1), "c", "edit"))
        other.changes("c", ["/w"], limit=9)
        for file in store.iterdir():
            file.unlink()
        other.close()
        number = first.add(new_content(1), "c", "edit")  # in a new file, which often has the inode of the deleted one
        assert other.add(new_content(2), "c", "edit") == number + 1 == 2
        assert first.is_own(number)
        assert not first.is_own(number + 1)


@pytest.mark.requirement("undo.bounds")
def test_the_store_is_bounded_and_the_oldest_changes_go_first(store: Path) -> None:
    journal = Journal(str(store), 1_000_000, 30, 100_000)
    for number in range(100):
        journal.add(new_content(number), "c", "edit")
    change_ids = [change.id for change in journal.changes("c", ["/w"], limit=1_000)]
    assert change_ids == list(range(100, 100 - len(change_ids), -1))
    assert 10 < len(change_ids) < 20
    journal.close()
    assert (store / FILE).stat().st_size < 1_200_000


@pytest.mark.requirement("undo.bounds")
def test_a_content_is_stored_once_as_long_as_a_change_needs_it(store: Path, journal: Journal) -> None:
    writer = Journal(str(store), 1_000_000, 30, 100_000)
    change = replace(new_content(1), before=b"old", before_sha256="old")
    for _ in range(50):
        writer.add(change, "c", "edit")
    writer.close()
    assert (store / FILE).stat().st_size < 200_000
    assert len(journal.changes("c", ["/w"], limit=1_000)) == 50


@pytest.mark.requirement("undo.bounds")
async def test_changes_that_are_too_old_are_not_offered_and_are_deleted_with_the_next_change(
    root: Path, store: Path
) -> None:
    journal = Journal(str(store), 1_000_000, 0.1 / 86_400, 100_000)
    journal.add(new_content(1), "c", "edit")
    await until(lambda: not journal.changes("c", ["/w"], limit=9))
    journal.add(new_content(2), "c", "edit")
    journal.close()
    database = sqlite3.connect(store / FILE)
    assert database.execute("SELECT count(*) FROM image").fetchone() == (1,)
    database.close()


@pytest.mark.requirement("undo.forget")
async def test_after_forgetting_the_store_contains_no_file_content(
    root: Path, store: Path, context: ToolContext, journal: Journal
) -> None:
    (root / "a.txt").write_text("a very secret line\n")
    await write(context, "a.txt", "x\n")
    assert any(b"a very secret line" in path.read_bytes() for path in store.iterdir())
    journal.forget()
    assert not any(b"a very secret line" in path.read_bytes() for path in store.iterdir())
    assert (await text(ListChangesTool(), context)).startswith("No file change")
    journal.close()
    damage(store)
    with pytest.raises(JournalError):
        journal.add(new_content(1), "c", "edit")
    journal.forget()
    assert journal.add(new_content(1), "c", "edit")
