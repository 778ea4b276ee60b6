"""Settings files: where they are, and which files are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from server.settings import SettingsError, load_settings
from server.settings.settings_files import MAX_FILE_BYTES, user_file
from tests.settings_cases import load, refusal, sources, write
from tests.waiting import CEILING
from tools.contract.call_options import MediaHandling


@pytest.mark.requirement("settings.files")
@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"HOME": "/h"}, "linux", "/h/.config/coretools-mcp/settings.json"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "linux", "/x/coretools-mcp/settings.json"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}, "linux", "/h/.config/coretools-mcp/settings.json"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": ""}, "darwin", "/h/.config/coretools-mcp/settings.json"),
        ({"HOME": "/h", "APPDATA": "/roaming"}, "win32", "/roaming/coretools-mcp/settings.json"),
        ({"HOME": "/h"}, "win32", None),
    ],
    ids=["home", "xdg", "relative xdg", "empty xdg", "windows", "windows without appdata"],
)
@pytest.mark.skipif(sys.platform == "win32", reason="not run: the expected paths are POSIX paths")
def test_the_user_file_is_in_the_users_configuration_folder(
    environ: dict[str, str], platform: str, expected: str | None
) -> None:
    assert user_file(environ, platform) == expected


@pytest.mark.requirement("settings.files")
def test_the_user_file_is_read_if_it_is_there(environ: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path / "home/.config/coretools-mcp/settings.json", {"http": {"port": 1}})
    report = load_settings([], {}, environ)
    assert report.settings.http.port == 1
    assert sources(report) == {"http.port": path}
    assert report.files == (path,)


@pytest.mark.requirement("settings.files")
def test_a_user_file_that_cannot_be_read_is_an_error(environ: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "home/.config/coretools-mcp/settings.json"
    folder.mkdir(parents=True)
    with pytest.raises(SettingsError, match="cannot be read: it is a folder") as error_info:
        load_settings([], {}, environ)
    assert str(folder) in str(error_info.value)


@pytest.mark.requirement("settings.files")
def test_a_configuration_folder_that_is_a_file_counts_as_no_user_file(environ: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "home/.config", "")
    assert load_settings([], {}, environ).files == ()


@pytest.mark.requirement("settings.files")
def test_a_config_file_that_is_not_there_is_an_error(environ: dict[str, str], tmp_path: Path) -> None:
    missing_file = str(tmp_path / "missing.json")
    with pytest.raises(SettingsError, match="it does not exist") as error_info:
        load_settings([missing_file], {}, environ)
    assert str(error_info.value).startswith(missing_file)


@pytest.mark.requirement("settings.files")
@pytest.mark.parametrize("path", ["/dev/null/x", ".", "nul\0"])
def test_a_config_path_that_is_no_file_is_an_error(environ: dict[str, str], path: str) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings([path], {}, environ)


# --- From bytes to an object -------------------------------------------------------------------------------------


@pytest.mark.requirement("settings.json")
def test_comments_are_allowed_and_strings_that_look_like_them_are_kept(environ: dict[str, str], file: Path) -> None:
    text = r"""// first "line
    { /* a " quote */ "mcpServers": { "a": { // more
        "command": "say \"//\" /* not */", "args": ["http://x", "/*", "*/", "\\"] /**/ } }
    } // last"""
    entry = load(file, text, environ).upstreams["a"]
    assert entry.command == 'say "//" /* not */'
    assert entry.args == ("http://x", "/*", "*/", "\\")


@pytest.mark.requirement("settings.json")
@pytest.mark.parametrize("comment", ["/* no end\n }", "/*/"])
def test_a_comment_that_is_never_closed_is_named_with_its_line(
    environ: dict[str, str], file: Path, comment: str
) -> None:
    message = refusal(file, f"{{\n\n {comment}", environ)
    assert message == f"{file}: the comment that begins on line 3 is never closed with */."


@pytest.mark.requirement("settings.json")
def test_broken_json_is_named_with_line_and_column_of_the_file_as_it_is(environ: dict[str, str], file: Path) -> None:
    message = refusal(file, '{ // comment\n  /* one\n     two */ "media" "inline"\n}', environ)
    position = "line 3, column 21: check for something missing or extra there."
    assert message == f"{file}: this file is not valid JSON at {position}"


@pytest.mark.requirement("settings.json")
@pytest.mark.parametrize("content", [b"", b" \n\t\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_a_blank_file_sets_nothing(environ: dict[str, str], file: Path, content: bytes) -> None:
    file.write_bytes(content)
    report = load_settings([str(file)], {}, environ)
    assert (report.values, report.warnings, report.files) == ((), (), (str(file),))


@pytest.mark.requirement("settings.json")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"[]", "settings must be one JSON object"),
        (b"// nothing", "not valid JSON at line 1, column 11"),
        (b'{"media": "inline",}', "not valid JSON at line 1"),
        (b'{"media": "unterminated\n}', "not valid JSON at line 1"),
        (b'{"media": "\xff"}', "not UTF-8 (byte 11)"),
        ('{"media": "inline"}'.encode("utf-16"), "not UTF-8"),
        (b'{"memory": {"a": NaN}}', "a number that JSON cannot express"),
        (b'{"memory": {"a": ' + b"9" * 5000 + b"}}", "a number that JSON cannot express"),
        (b'{"memory": {"a": "\\ud800"}}', "half of a surrogate pair"),
        (b'{"memory": ' + b"[" * 100 + b"]" * 100 + b"}", "nested more than 50 levels deep"),
        (b'{"memory": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested more than 50 levels deep"),
        (b"{}" + b" " * MAX_FILE_BYTES, "more than 1000000 bytes"),
    ],
    ids=[
        "array", "comment alone", "trailing comma", "open string", "latin-1", "utf-16", "nan", "long number",
        "surrogate", "deep", "very deep", "large",
    ],
)  # fmt: skip
def test_a_file_that_is_no_settings_file_is_an_error_that_says_why(
    environ: dict[str, str], file: Path, content: bytes, expected: str
) -> None:
    file.write_bytes(content)
    with pytest.raises(SettingsError) as error_info:
        load_settings([str(file)], {}, environ)
    assert str(error_info.value).startswith(f"{file}: ")
    assert expected in str(error_info.value)


@pytest.mark.requirement("settings.json")
def test_a_byte_order_mark_and_the_largest_allowed_size_are_fine(environ: dict[str, str], file: Path) -> None:
    content = b'\xef\xbb\xbf{"media": "notice"}'
    file.write_bytes(content + b" " * (MAX_FILE_BYTES - len(content)))
    assert load_settings([str(file)], {}, environ).settings.media is MediaHandling.NOTICE


@pytest.mark.requirement("settings.keys")
def test_a_repeated_key_gets_a_warning_with_its_path(environ: dict[str, str], file: Path) -> None:
    text = '{"http": {"port": 1, "host": "h", "port": 2}, "memory": {"list": [{"a": 1, "a": 2, "a": 3}]}}'
    report = load(file, text, environ)
    assert report.settings.http.port == 2
    assert report.warnings[:2] == (
        f"{file}: http.port occurs more than once; the last one counts.",
        f"{file}: memory.list[0].a occurs more than once; the last one counts.",
    )


COSTLY = """
import sys
from server.settings.settings_files import without_comments, without_trailing_commas
for piece in ('\\\\"', '\\"\\\\', '/', '/*/', ',', ', ', '{', '\\"\\n', '[ ,'):
    text = without_comments('"' + piece * 500_000 + '*/', "")
    assert without_trailing_commas(text)
"""


@pytest.mark.requirement("settings.json")
def test_texts_designed_to_be_slow_are_read_in_linear_time() -> None:
    subprocess.run([sys.executable, "-c", COSTLY], timeout=CEILING, check=True)
