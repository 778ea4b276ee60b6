"""Settings files that cannot be read, and values that no key can have: each gets an understandable message."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from server.settings import SettingsError, load_settings
from server.settings.layers import FileState
from server.settings.load import read_settings
from server.settings.settings_files import read_regular, real_path
from tests.settings_cases import load, refusal, write

NOWHERE = "/proc/1/root/nothing"
"""A path behind the link to the root folder of process 1, which few users may follow."""


def _is_closed() -> bool:
    try:
        os.path.realpath(NOWHERE)
    except OSError:
        return True
    return False


needs_closed_link = pytest.mark.skipif(not _is_closed(), reason="not run: this user may follow every link")
posix = pytest.mark.skipif(sys.platform == "win32", reason="not run: Windows has no named pipes in the file system")


def make_pipe(path: Path) -> None:
    if sys.platform != "win32":
        os.mkfifo(path)


@needs_closed_link
@pytest.mark.requirement("settings.roots")
def test_a_link_in_a_workspace_that_the_server_may_not_follow_does_not_stop_the_start(
    environ: dict[str, str], tmp_path: Path
) -> None:
    project = tmp_path.resolve() / "project"
    (project / ".coretools").mkdir(parents=True)
    (project / ".coretools/settings.json").symlink_to(NOWHERE)
    report = load_settings([], {}, environ, folder=str(project))
    assert [file.state for file in report.candidates][-1] is FileState.UNUSABLE
    assert len(report.warnings) == 1
    assert "it cannot be read" in report.warnings[0]


@pytest.mark.requirement("settings.roots")
def test_a_long_chain_of_links_in_a_workspace_does_not_stop_the_start(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".coretools").mkdir()
    for number in range(1_000):
        (tmp_path / f"link{number}").symlink_to(tmp_path / f"link{number + 1}")
    (tmp_path / ".coretools/settings.json").symlink_to(tmp_path / "link0")
    report = load_settings([], {}, environ, folder=str(tmp_path))
    assert [file.state for file in report.candidates][-1] is FileState.UNUSABLE


@needs_closed_link
@pytest.mark.requirement("settings.roots")
@pytest.mark.parametrize("key", [("workspace", "roots"), ("memory", "globalFolder")], ids=".".join)
def test_a_folder_behind_a_link_that_the_server_may_not_follow_is_refused_in_a_sentence(
    environ: dict[str, str], file: Path, key: tuple[str, str]
) -> None:
    message = refusal(file, {key[0]: {key[1]: [NOWHERE] if key[1] == "roots" else NOWHERE}}, environ)
    assert f"{'.'.join(key)}" in message
    assert "leads through a link that this server may not follow" in message


@needs_closed_link
@pytest.mark.requirement("settings.roots")
def test_a_path_through_a_link_that_cannot_be_followed_stays_as_it_is_spelled() -> None:
    assert real_path(f"{NOWHERE}/../x") == "/proc/1/root/x"


@posix
@pytest.mark.anyio
@pytest.mark.requirement("settings.irregular")
async def test_a_pipe_in_the_place_of_the_users_file_is_refused_and_never_waited_for(
    environ: dict[str, str], tmp_path: Path
) -> None:
    user_file = tmp_path / "home/.config/coretools-mcp/settings.json"
    user_file.parent.mkdir(parents=True)
    make_pipe(user_file)
    with anyio.fail_after(60), pytest.raises(SettingsError, match="it is not a regular file"):
        await anyio.to_thread.run_sync(lambda: load_settings([], {}, environ), abandon_on_cancel=True)


@posix
@pytest.mark.requirement("settings.irregular")
def test_a_folder_in_the_place_of_a_file_is_no_file_and_leaves_no_descriptor_open(tmp_path: Path) -> None:
    descriptor_before = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor_before)
    with pytest.raises(IsADirectoryError):
        read_regular(str(tmp_path))
    descriptor_after = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor_after)
    assert descriptor_after == descriptor_before


@pytest.mark.requirement("settings.irregular")
@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" * 400 + ".0"])
def test_a_number_that_is_too_large_is_refused(environ: dict[str, str], file: Path, number: str) -> None:
    message = refusal(file, f'{{"tools": {{"shell": {{"inactivityTimeout": {number}}}}}}}', environ)
    assert "a number that JSON cannot express" in message


@pytest.mark.requirement("settings.irregular")
@pytest.mark.parametrize(("seconds", "milliseconds"), [(1e308, 600_000), (10**300, 600_000), (-1e308, 0), (0.25, 250)])
def test_a_time_that_is_too_long_for_its_unit_is_the_longest(
    environ: dict[str, str], file: Path, seconds: float, milliseconds: int
) -> None:
    report = load(file, {"tools": {"shell": {"inactivityTimeout": seconds}}}, environ)
    assert report.settings.shell.silence_timeout == milliseconds


@pytest.mark.requirement("settings.search")
@pytest.mark.parametrize("default", [[], {}, 1, None, "nobody"])
def test_a_default_of_web_search_that_is_no_provider_is_ignored(
    environ: dict[str, str], file: Path, default: Any
) -> None:
    report = load(file, {"webSearch": {"provider": [{"type": "tavily", "apiKey": "k"}], "default": default}}, environ)
    assert report.settings.web.search.default is None
    assert report.settings.web.search.configured == ("tavily",)


@pytest.mark.requirement("settings.bad-values")
def test_names_of_agents_and_variables_stay_on_one_line_in_a_warning(environ: dict[str, str], file: Path) -> None:
    content = {
        "agents": {"x\nforged": {"command": "${NO\nforged \x1b]0;title\x07}"}},
        "mcpServers": {"a": {"command": "${NO\nforged}"}},
    }
    report = load(file, content, environ)
    assert len(report.warnings) == 2
    assert all(warning.isprintable() for warning in report.warnings)
    assert report.entries[0].left_out is not None
    assert report.entries[0].left_out.isprintable()


@pytest.mark.requirement("settings.live.watch")
def test_an_empty_file_is_not_taken_for_a_file_with_values_whose_path_contains_its_name(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "home/.config/coretools-mcp/settings.json", {"limits": {"readLines": 7}})
    monkeypatch.chdir(tmp_path)
    Path("settings.json").touch()
    report = load_settings(["settings.json"], {}, environ)
    assert report.inputs is not None
    assert read_settings(report.inputs, report).settings.limits.read_lines == 7


@pytest.mark.requirement("settings.live.streams")
@posix
def test_a_named_file_that_becomes_a_pipe_is_refused_when_it_is_read_again(environ: dict[str, str], file: Path) -> None:
    report = load(file, {"media": "notice"}, environ)
    assert report.inputs is not None
    file.unlink()
    make_pipe(file)
    with pytest.raises(SettingsError, match="not a regular file"):
        read_settings(report.inputs, report)
    file.unlink()
    write(file, {"media": "inline"})
    assert read_settings(report.inputs, report).settings.media == "inline"
