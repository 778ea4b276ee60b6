"""Patterns, rules and arguments made to be costly: each is refused, or its cost is linear in its length."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from pydantic import Field

from server.requests.completion_requests import MAX_LINE_CHARS, complete_template
from tools.builtin.file_tools import display_path
from tools.contract.confirmation import Question
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_parameters import MAX_ITEMS, MAX_JSON_CHARS, MAX_UNKNOWN, ToolParams, bind, full_schema, rename
from tools.contract.tool_results import FunctionCall, ToolResult
from tools.files import ignore_files
from tools.files.find.glob_search import PatternRefusedError, compile_patterns, expand_braces
from tools.files.ignore_files import bytes_text, read_rules
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio

EIGHT = "{a,b}" * 8
"""It expands to 256 patterns, the maximum."""

MAX_LINES = 1_000_000
"""Lines of Python for the worst pattern that is accepted; quadratic code would run hundreds of millions."""


def count_lines(work: Callable[[], object]) -> int:
    """Return how many lines of Python some work runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        del frame, argument
        count += event == "line"
        if count > MAX_LINES:
            raise AssertionError(f"the work runs more than {MAX_LINES:,} lines")
        return trace

    previous_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(previous_trace)
    return count


@pytest.mark.requirement("glob.bounded")
@pytest.mark.parametrize(
    "pattern",
    [
        EIGHT + "{" * 3_900,
        EIGHT + "{" * 900,
        "{" * 4_000,
        "{" * 2_000 + "}" * 2_000,
        EIGHT + "{}" * 1_900,
        EIGHT + "{1..1}" * 600,
        "{a," * 1_000 + "}" * 1_000,
        "[" * 4_000,
        "[" + "[:" * 2_000,
        "*" * 4_000,
        "*a" * 2_000,
        "?(" * 2_000,
        "?(" * 1_000 + ")" * 1_000,
        "+(" + "|" * 4_000,
        "\\" * 4_000,
        "**/" * 1_300,
        "**/*/" * 800 + "x",
    ],
    ids=lambda pattern: f"{pattern[-30:]}",
)
def test_a_pattern_of_the_maximum_length_is_compiled_or_refused_in_few_steps(pattern: str) -> None:
    def work() -> None:
        try:
            patterns = compile_patterns([pattern], ignore_case=True)
        except PatternRefusedError:
            return
        patterns.matches("a" * 250 + "/" + "a" * 250)

    assert count_lines(work) <= MAX_LINES


@pytest.mark.requirement("glob.bounded")
def test_braces_that_expand_to_too_many_characters_are_refused() -> None:
    assert len(expand_braces(EIGHT + "x" * 100)) == 256
    with pytest.raises(PatternRefusedError, match="characters"):
        expand_braces(EIGHT + "x" * 200)
    with pytest.raises(PatternRefusedError, match="256 patterns"):
        expand_braces(EIGHT + "{a,b}")


@pytest.mark.requirement("glob.bounded")
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("{a{b,c}", ["{ab", "{ac"]),
        ("{a,{b,c}", ["{a,b", "{a,c"]),
        ("{a,b}}", ["a}", "b}"]),
        ("{{a,b},c}", ["a", "b", "c"]),
        ("{x{a,b}}", ["{xa}", "{xb}"]),
        ("{a\\,b}", ["{a\\,b}"]),
        ("{a\\},b}", ["a\\}", "b"]),
        ("x{,y}", ["x", "xy"]),
        ("{{1..2}}", ["{1}", "{2}"]),
        ("{1..{2,3}}", ["{1..2}", "{1..3}"]),
        ("{a,b,a}", ["a", "b"]),
        ("}{", ["}{"]),
    ],
)
def test_nested_and_unclosed_braces_are_expanded_correctly(pattern: str, expected: list[str]) -> None:
    assert expand_braces(pattern) == expected


@pytest.mark.requirement("glob.bounded")
def test_a_pattern_with_very_many_stars_still_matches_correctly() -> None:
    pattern = compile_patterns(["*a" * 100 + "b"], ignore_case=True)
    assert pattern.matches("x" + "aX" * 99 + "AB")
    assert not pattern.matches("a" * 99 + "b")
    assert not pattern.matches("a" * 250)


@pytest.fixture(params=["re2", "re"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The regex engine that matches the rules of a test."""
    if request.param == "re2" and find_spec("re2") is None:
        pytest.skip("not run: google-re2 is not installed")
    monkeypatch.setattr(ignore_files, "MAX_RULES_FOR_RE", -1 if request.param == "re2" else 100_000)
    return request.param


@pytest.mark.long
@pytest.mark.requirement("ignore.bounded")
def test_rules_with_very_many_stars_work_like_any_other(engine: str) -> None:
    stars = b"*a" * 1_000
    hostile = b"".join(stars + b"b%d\n" % number for number in range(24))
    rules = read_rules(hostile + b"*k*e*y*\n" + b"*z" * 40 + b"\n!" + b"*z" * 50 + b"\n")
    assert not rules.is_cut
    assert rules.hides("my.k.e.y", is_folder=False) is True
    assert rules.hides("z" * 45, is_folder=False) is True
    assert rules.hides("z" * 55, is_folder=False) is False
    assert rules.hides("a" * 250, is_folder=False) is None
    assert rules.hides("a" * 1_000 + "b23", is_folder=False) is True


@pytest.mark.requirement("ignore.bounded")
@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("*a" * 60 + "b", "a" * 250),
        ("*a*?" * 30 + "b", "a" * 250),
        ("*[ab]" * 60 + "c", "ab" * 125),
        ("/".join(["*a*a*a"] * 8) + "b", "/".join(["a" * 250] * 8)),
        ("**/a" * 40, "a/" * 1_900 + "b"),
        ("/x/" + "**/*a*/" * 40 + "b", "x/" + "a/" * 1_900 + "c"),
        ("*" * 4_000 + "b", "a" * 250),
    ],
    ids=lambda text: f"{text[:12]}",
)
def test_a_rule_made_for_endless_backtracking_ends(engine: str, rule: str, path: str) -> None:
    rules = read_rules(rule.encode())
    assert len(rules) == 1
    assert rules.hides(path, is_folder=False) is None


@pytest.mark.requirement("ignore.bounded")
def test_of_very_many_rules_all_count_and_the_last_decides(engine: str) -> None:
    content = b"".join(b"*k%dx?\n" % number for number in range(4_000))
    rules = read_rules(content + b"!*k3999x?\nsub/**/d*p/\n")
    assert rules.hides("_k0xy", is_folder=False) is True
    assert rules.hides("_k3998xy", is_folder=False) is True
    assert rules.hides("_k3999xy", is_folder=False) is False
    assert rules.hides("sub/a/deep", is_folder=True) is True
    assert rules.hides("sub/a/deep", is_folder=False) is None


@pytest.mark.requirement("ignore.files")
@pytest.mark.parametrize(
    "content",
    [
        "secret\r\nclé*x\r\n".encode(),
        codecs.BOM_UTF8 + "secret\nclé*x\n".encode(),
        codecs.BOM_UTF16_LE + "secret\r\nclé*x\r\n".encode("utf-16-le"),
        codecs.BOM_UTF16_BE + "secret\r\nclé*x\r\n".encode("utf-16-be"),
        "secret\rclé*x\r".encode(),
    ],
    ids=["utf-8", "utf-8 with a mark", "utf-16-le", "utf-16-be", "carriage returns"],
)
def test_rules_are_read_in_every_usual_encoding_and_line_ending(content: bytes) -> None:
    rules = read_rules(content)
    assert rules.hides("secret", is_folder=False) is True
    assert rules.hides(bytes_text("clé1x"), is_folder=False) is True
    assert rules.hides("other", is_folder=False) is None


@pytest.mark.requirement("ignore.files")
def test_a_carriage_return_in_a_line_is_part_of_it_if_lines_end_with_a_line_feed() -> None:
    rules = read_rules(b"a\rb\nc\n")
    assert rules.hides(bytes_text("a\rb"), is_folder=False) is True
    assert rules.hides("a", is_folder=False) is None


@pytest.mark.requirement("at.uris")
async def test_a_line_of_paths_that_is_too_long_is_refused_with_its_length(client: Client) -> None:
    with pytest.raises(MCPError, match="the maximum is 16,384"):
        await client.get_prompt("at", {"paths": "a " * MAX_LINE_CHARS})


@pytest.mark.requirement("at.uris")
async def test_a_template_value_that_is_too_long_is_neither_decoded_nor_completed() -> None:
    async def run(call: FunctionCall) -> ToolResult | Question:
        raise AssertionError(f"{call.name} was called")

    class Undecodable(str):
        """Text that fails the test if somebody decodes it."""

        __slots__ = ()

        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            raise AssertionError(f"it was decoded: {encoding}, {errors}")

    completion = await complete_template(Undecodable("%41" * MAX_LINE_CHARS), ["/"], run)
    assert completion.values == []


@pytest.mark.requirement("paths.bounded_names")
def test_only_both_ends_of_an_impossibly_long_path_are_shown(root: Path) -> None:
    workspace = Workspace([str(root)])
    text = display_path("a" * 15_000_000 + "\n" + "end", workspace)
    assert text.startswith("aaa")
    assert text.endswith("\\nend")
    assert "..." in text
    assert len(text) < 1_000


class Params(ToolParams):
    """A list and an object."""

    paths: list[str] = Field(default=[])
    options: dict[str, int] = Field(default={})


SCHEMA = full_schema(Params)


def refusal(arguments: dict[str, Any]) -> str:
    with pytest.raises(InvalidToolParamsError) as error_info:
        bind("tool", Params, SCHEMA, arguments)
    return str(error_info.value)


@pytest.mark.requirement("params.bounds")
def test_a_list_of_very_many_items_is_refused_before_its_items_are_checked() -> None:
    assert f"'paths' has {MAX_ITEMS + 1:,} items" in refusal({"paths": [0] * (MAX_ITEMS + 1)})
    assert "items" in refusal({"paths": "[" + "0," * MAX_ITEMS + "0]"})
    assert len(bind("tool", Params, SCHEMA, {"paths": ["a"] * MAX_ITEMS}).paths) == MAX_ITEMS


@pytest.mark.requirement("params.bounds")
def test_text_that_is_too_long_to_be_a_list_is_not_parsed() -> None:
    message = refusal({"paths": '["' + "a" * MAX_JSON_CHARS + '"]'})
    assert "should be an array" in message
    assert len(bind("tool", Params, SCHEMA, {"paths": '["' + "a" * (MAX_JSON_CHARS - 4) + '"]'}).paths) == 1


@pytest.mark.requirement("params.bounds")
def test_very_many_properties_are_refused() -> None:
    properties: dict[str, Any] = {f"x{number}": 1 for number in range(MAX_UNKNOWN + 1)}
    with pytest.raises(InvalidToolParamsError, match="1,001 properties"):
        rename("tool", properties, {})
    assert "1,001 properties" in refusal(properties)
    assert "'options' has 1,001 properties" in refusal({"options": properties})


@pytest.mark.requirement("params.bounds")
def test_an_error_shows_the_beginning_of_a_wrong_value_of_any_size() -> None:
    assert "'paths.0': Input should be a valid string, got [0, 0, 0" in refusal({"paths": [[0] * 1_000_000]})
    assert len(refusal({"options": {"a": "b" * 1_000_000}})) < 1_000
