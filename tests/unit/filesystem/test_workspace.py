"""The opener for all files: real paths must be in the workspace, other spellings are tried, only regular files open."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.files.path_opener import (
    PATH_ONLY,
    Entries,
    _open_by_steps,  # pyright: ignore[reportPrivateUsage] - the opener for kernels without openat2
    open_private_folder,
    open_regular,
)
from tools.files.workspace import Workspace, contains, explain
from tools.text.file_names import exact_path, shown_whole_path


@pytest.fixture
def outside_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("secret")
    return folder


def code_of(workspace: Workspace, path: str) -> ToolErrorType:
    with pytest.raises(ToolError) as error_info, workspace.open_file(workspace.locate(path)):
        pass
    return error_info.value.code


@pytest.mark.requirement("paths.contained")
def test_links_and_dots_that_lead_out_are_refused(root: Path, outside_folder: Path) -> None:
    (root / "link").symlink_to(outside_folder)
    (root / "file-link").symlink_to(outside_folder / "secret.txt")
    workspace = Workspace([str(root)])
    for path in (
        "../outside/secret.txt",
        "link/secret.txt",
        "file-link",
        str(outside_folder / "secret.txt"),
        "link/new",
    ):
        with pytest.raises(PathNotInWorkspaceError) as refusal:
            workspace.locate(path)
        assert (", with symlinks resolved, is outside" in refusal.value.message) is ("outside" not in path)


@pytest.mark.requirement("paths.contained")
def test_a_sibling_with_the_same_beginning_is_outside(root: Path) -> None:
    sibling = root.with_name(root.name + "-two")
    sibling.mkdir()
    assert not contains(str(root), str(sibling))
    with pytest.raises(PathNotInWorkspaceError):
        Workspace([str(root)]).locate(str(sibling / "a"))


@pytest.mark.requirement("paths.links")
def test_links_that_stay_inside_are_followed(root: Path) -> None:
    (root / "real").mkdir()
    (root / "real" / "a.txt").write_text("a")
    (root / "link").symlink_to(root / "real")
    (root / "up").symlink_to(Path("real") / ".." / "real")
    workspace = Workspace([str(root)])
    assert workspace.locate("link/a.txt").path == str(root / "real" / "a.txt")
    assert workspace.locate("up/a.txt").path == str(root / "real" / "a.txt")
    assert workspace.locate("link/new.txt").path == str(root / "real" / "new.txt")


@pytest.mark.requirement("paths.links")
def test_a_root_that_is_itself_a_link_is_resolved(root: Path, tmp_path: Path) -> None:
    (root / "a.txt").write_text("a")
    (tmp_path / "linked").symlink_to(root)
    workspace = Workspace([str(tmp_path / "linked")])
    assert workspace.locate(str(tmp_path / "linked" / "a.txt")).relative == "a.txt"
    assert workspace.locate(str(root / "a.txt")).relative == "a.txt"


@pytest.mark.requirement("paths.readings")
def test_the_literal_name_comes_before_other_readings(root: Path) -> None:
    workspace = Workspace([str(root)])
    (root / "my file.txt").write_text("spaced")
    assert workspace.locate("my\\ file.txt").path == str(root / "my file.txt")
    (root / "my\\ file.txt").write_text("literal")
    assert workspace.locate("my\\ file.txt").path == str(root / "my\\ file.txt")
    assert workspace.locate("  my file.txt ").path == str(root / "my file.txt")
    assert workspace.locate("100%20done").path == str(root / "100%20done")


@pytest.mark.requirement("paths.readings")
def test_paths_that_git_quotes_are_understood(root: Path) -> None:
    workspace = Workspace([str(root)])
    for name in ('"odd"/caf\xe9.txt', "a\tb/\x07\v.txt", "\u4f60 \udcff/x", "back\\303/\xe9"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    quoted_paths = subprocess.check_output(["git", "ls-files"], cwd=root, text=True).splitlines()
    assert len(quoted_paths) == 4
    for path in quoted_paths:
        assert os.path.exists(workspace.locate(path).path), path


@pytest.mark.requirement("paths.roots")
def test_the_innermost_root_owns_a_path(root: Path) -> None:
    (root / "inner").mkdir()
    workspace = Workspace([str(root), str(root / "inner")])
    assert workspace.locate(str(root / "inner" / "a")).root == str(root / "inner")


@pytest.mark.requirement("paths.special")
def test_only_regular_files_are_opened_and_never_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    (root / "loop").symlink_to("loop")
    workspace = Workspace([str(root)])
    assert code_of(workspace, "pipe") is ToolErrorType.READ_CONTENT_FAILURE
    assert code_of(workspace, "folder") is ToolErrorType.TARGET_IS_DIRECTORY
    assert code_of(workspace, "nothing") is ToolErrorType.FILE_NOT_FOUND
    assert code_of(workspace, "loop") is ToolErrorType.READ_CONTENT_FAILURE
    assert code_of(workspace, "x" * 5000) is ToolErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("paths.special")
def test_the_head_of_a_file_has_as_many_bytes_as_requested(root: Path) -> None:
    (root / "a.txt").write_bytes(b"0123456789")
    with open_regular(str(root / "a.txt")) as file:
        assert [file.head(size) for size in (3, 10, 20)] == [b"012", b"0123456789", b"0123456789"]
    if sys.platform == "linux":
        with open_regular("/proc/version") as file:
            assert (file.info.st_size, file.head(5)) == (0, b"Linux")


@pytest.mark.requirement("paths.special")
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("embedded null"), "'a' cannot be used."),
        (OSError(0, ""), "'a' cannot be used."),
        (OSError(4711, ""), "'a' cannot be used."),
        (OSError(errno.ENOTTY, "secret"), "'a' cannot be used (ENOTTY)."),
        (OSError(errno.EISDIR, "secret"), "'a' is a directory, not a file (EISDIR)."),
    ],
)
def test_a_system_error_is_reported_only_by_its_name(error: OSError | ValueError, message: str) -> None:
    assert explain(error, "a").message == message


@pytest.mark.requirement("paths.roots")
def test_a_workspace_folder_can_be_located_by_its_own_path(root: Path) -> None:
    workspace = Workspace([str(root)])
    assert [workspace.locate_exactly(f"{root}{end}").relative for end in ("", "/", "/.")] == ["."] * 3


@pytest.mark.requirement("paths.contained")
def test_the_servers_own_folders_are_hidden_with_and_without_rules(root: Path) -> None:
    own_path, ruled_path = str(root / "own" / "a"), str(root / "other")

    def rule_about(path: str) -> str | None:
        return "rule" if path == ruled_path else None

    for forbidden in (None, rule_about):
        workspace = Workspace([str(root)], private=[str(root / "own")], forbidden=forbidden)
        assert workspace.forbidden is not None
        assert workspace.forbidden(own_path) == "rule that this server's own files are private"
        assert workspace.forbidden(ruled_path) == (forbidden and "rule")
    assert Workspace([str(root)], private=[str(root.parent / "elsewhere")]).forbidden is None


@pytest.mark.requirement("paths.special")
def test_a_file_whose_next_bytes_do_not_exist_yet_is_busy_and_not_at_its_end() -> None:
    workspace = Workspace(["/proc"])
    try:
        file = workspace.open_file(workspace.locate("kmsg"))
    except ToolError as error:
        pytest.skip(f"not run: the kernel log is not readable ({error.code})")
    signal = AbortSignal()
    with file:
        for read in (lambda: file.head(1 << 16), lambda: list(file.blocks(signal)), lambda: file.whole(signal)):
            with pytest.raises(OSError, match="busy") as error_info:
                list(iter(read, b""))
            assert error_info.value.errno == errno.EBUSY


@pytest.mark.requirement("paths.special")
@pytest.mark.parametrize("path", ["", "  ", "a\0b", "many/../" * 10_000], ids=["empty", "blank", "nul", "long"])
def test_an_impossible_path_is_refused(path: str, root: Path) -> None:
    with pytest.raises(ToolError) as error_info:
        Workspace([str(root)]).locate(path)
    assert error_info.value.code is ToolErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("catalogue.private")
@pytest.mark.skipif(sys.platform == "win32", reason="not run: needs the file modes of POSIX")
@pytest.mark.parametrize("mode", [0o701, 0o710, 0o702, 0o704, 0o740, 0o720])
def test_a_private_folder_and_those_made_on_the_way_are_closed_to_others(tmp_path: Path, mode: int) -> None:
    folder, new_folder = tmp_path / "folder", tmp_path / "above" / "new"
    folder.mkdir()
    folder.chmod(mode)
    for path in (folder, new_folder):
        with open_private_folder(str(path), makes=True):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(new_folder.parent.stat().st_mode) == 0o700


@pytest.mark.requirement("paths.roots")
def test_without_a_root_the_error_explains_the_problem() -> None:
    with pytest.raises(ToolError, match="set this") as error_info:
        Workspace([], "You have to set this.").locate("a")
    assert error_info.value.code is ToolErrorType.NO_WORKSPACE


@pytest.fixture
def exchange_folder(root: Path, outside_folder: Path) -> Callable[[], None]:
    """A function that replaces the folder `inside` with a link to `outside`, which has a file with the same name."""
    (root / "inside").mkdir()
    (root / "inside" / "secret.txt").write_text("harmless")

    def exchange() -> None:
        (root / "inside").rename(root / "before")
        (root / "inside").symlink_to(outside_folder)

    return exchange


@pytest.mark.requirement("paths.exchanged")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: only Linux has descriptors of links")
def test_the_stepwise_opener_opens_a_link_itself_only_on_request(root: Path) -> None:
    (root / "link").symlink_to("nowhere")
    no_link = os.O_NOFOLLOW
    descriptor = _open_by_steps(str(root / "link"), PATH_ONLY | no_link, 0)
    assert stat.S_ISLNK(os.fstat(descriptor).st_mode)
    os.close(descriptor)
    for flags in (PATH_ONLY, os.O_RDONLY, os.O_RDONLY | no_link):
        with pytest.raises(OSError, match="symbolic links"):
            _open_by_steps(str(root / "link"), flags, 0)


@pytest.mark.requirement("paths.exchanged")
def test_a_file_whose_folder_was_exchanged_for_a_link_is_not_opened(
    root: Path, exchange_folder: Callable[[], None]
) -> None:
    workspace = Workspace([str(root)])
    location = workspace.locate("inside/secret.txt")
    exchange_folder()
    with pytest.raises(ToolError) as error_info, workspace.open_file(location):
        pass
    assert error_info.value.code is ToolErrorType.PATH_NOT_IN_WORKSPACE


@pytest.mark.requirement("paths.exchanged")
@pytest.mark.parametrize("subpath", ["", "/deep"], ids=["itself", "above"])
def test_a_folder_that_was_exchanged_for_a_link_is_not_listed(
    subpath: str, root: Path, outside_folder: Path, exchange_folder: Callable[[], None]
) -> None:
    (root / "inside" / "deep").mkdir()
    (outside_folder / "deep").mkdir()
    workspace = Workspace([str(root)])
    location = workspace.locate(f"inside{subpath}")
    exchange_folder()
    with pytest.raises(ToolError) as error_info, workspace.open_folder(location.path) as folder:
        folder.entries()
    assert error_info.value.code is ToolErrorType.PATH_NOT_IN_WORKSPACE


@pytest.mark.requirement("paths.exchanged")
def test_an_open_folder_stays_the_one_that_was_opened(root: Path, exchange_folder: Callable[[], None]) -> None:
    (root / "inside" / "link").symlink_to("secret.txt")
    workspace = Workspace([str(root)])
    with workspace.open_folder(workspace.locate("inside").path) as folder:
        exchange_folder()
        assert folder.entries() == Entries(["secret.txt"], [], ["link"], [], [])
        info = folder.stat("secret.txt")
        assert info is not None
        assert info.st_size == len("harmless")
        assert folder.link_target("link") == "secret.txt"
        assert folder.stat("missing") is None


@pytest.mark.requirement("paths.roots")
def test_a_path_that_a_walk_found_belongs_to_the_innermost_root(root: Path) -> None:
    (root / "inner").mkdir()
    workspace = Workspace([str(root), str(root / "inner")])
    outer, inner = workspace.root_locations()
    assert (outer.root, inner.root) == (str(root), str(root / "inner"))
    assert workspace.below(outer, "inner/a.txt").root == str(root / "inner")
    assert workspace.below(outer, "a.txt").root == str(root)


@pytest.mark.requirement("paths.contained")
def test_a_name_is_not_searched_for_through_a_link_that_leads_out(root: Path, outside_folder: Path) -> None:
    (root / "link").symlink_to(outside_folder)
    workspace = Workspace([str(root)])
    (folder,) = workspace.root_locations()
    assert workspace.has(folder, "link")
    assert not workspace.has(folder, "link/secret.txt")
    assert not workspace.has(folder, "missing")


@pytest.mark.requirement("paths.no_path")
@pytest.mark.parametrize("path", ["file:///tmp/a.txt", "~/a.txt", "~root/x", "~"])
def test_a_url_or_a_home_path_is_refused(path: str, root: Path) -> None:
    workspace = Workspace([str(root)])
    with pytest.raises(ToolError) as error_info:
        workspace.locate(path)
    assert error_info.value.code is ToolErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("paths.no_path")
@pytest.mark.parametrize(("spelling", "path"), [(" a.txt\n", "a.txt"), ('"a b.txt"', "a b.txt"), ('"sub"/n', "sub/n")])
def test_blanks_and_quotes_around_a_new_path_are_removed(spelling: str, path: str, root: Path) -> None:
    assert Workspace([str(root)]).locate(spelling).path == str(root / path)


@pytest.mark.requirement("hostile.names_read")
@pytest.mark.parametrize("name", ["nl\nline", 'q"t', "tab\tx", os.fsdecode(b"caf\xe9"), "rtl\u202e"])
def test_a_path_in_a_workspace_with_an_unusual_name_is_read_as_it_was_shown(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    file = tmp_path / name / "a.txt"
    file.write_text("a")
    workspace = Workspace([str(tmp_path / name)])
    assert workspace.locate(shown_whole_path(str(file))).path == str(file)
    outside_path = tmp_path / f"{name}2"
    with pytest.raises(PathNotInWorkspaceError):
        workspace.locate(shown_whole_path(str(outside_path)))


@pytest.mark.requirement("hostile.names_read")
@pytest.mark.parametrize("folder", ["clear\x1b[2J", "nl\nline", '"quoted"', "caf\u00e9\x1b"])
@pytest.mark.parametrize("name", ["caf\u00e9", "a\x1b.txt"])
def test_the_exact_path_of_a_file_in_an_unusual_folder_is_harmless_and_leads_to_the_file(
    folder: str, name: str, root: Path
) -> None:
    file = root / folder / name
    file.parent.mkdir()
    file.touch()
    for path in (exact_path(str(file)), exact_path(str(file), is_quoted=True)):
        assert path.isascii()
        assert path.isprintable()
        assert Workspace([str(root)]).locate(path).path == str(file)


@pytest.mark.requirement("hostile.names_read")
def test_a_quoted_name_that_leads_out_of_the_workspace_is_not_read_as_another(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("outside")
    (root / "a.txt").write_text("a")
    (root / '"a.txt"').symlink_to(tmp_path / "outside")
    with pytest.raises(PathNotInWorkspaceError):
        Workspace([str(root)]).locate('"a.txt"')


@pytest.mark.requirement("hostile.names_read")
def test_an_exact_path_with_quotes_is_not_the_workspace(root: Path) -> None:
    with pytest.raises(ToolError):
        Workspace([str(root)]).locate_exactly(f'{root.parent}/"{root.name}"')
