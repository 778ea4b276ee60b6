"""Patterns, rules and arguments made to cost much: each is refused, or costs what its length does."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from pydantic import Field
from tools.filesystem.finding.automaton import Automaton
from tools.filesystem.finding.tokens import MalformedPatternError, tokenize
from tools.filesystem.finding.wildcards import path_regex

from server.completion import MAX_TYPED_CHARS, complete_template
from server.prompts import MAX_LINE_CHARS
from tools.contract.confirmation import Question
from tools.contract.errors import InvalidToolParamsError
from tools.contract.parameters import MAX_ITEMS, MAX_JSON_CHARS, MAX_UNKNOWN, ToolParams, bind, published_schema, rename
from tools.contract.result import FunctionCall, ToolResult
from tools.filesystem.finding.braces import PatternRefusedError, expand_braces
from tools.filesystem.finding.patterns import compile_patterns
from tools.filesystem.ignore_rules import parse_rules
from tools.filesystem.paths import shown
from tools.filesystem.workspace import Workspace

pytestmark = pytest.mark.anyio

EIGHT = "{a,b}" * 8
"""As many patterns as are accepted."""

MOST_LINES = 400_000
"""Lines of Python for the worst pattern accepted; what was quadratic ran hundreds of millions."""


def lines_of(work: Callable[[], object]) -> int:
    """The lines of Python that some work runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        del frame, argument
        count += event == "line"
        if count > MOST_LINES:
            raise AssertionError("the work runs away")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.requirement("bounds.patterns")
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
def test_a_pattern_of_the_greatest_length_is_compiled_or_refused_in_few_steps(pattern: str) -> None:
    def work() -> None:
        try:
            compiled = compile_patterns([pattern], ignore_case=True)
        except PatternRefusedError:
            return
        compiled.matches("a" * 250 + "/" + "a" * 250)

    assert lines_of(work) <= MOST_LINES


@pytest.mark.requirement("bounds.patterns")
def test_braces_that_stand_for_too_many_characters_are_refused() -> None:
    assert len(expand_braces(EIGHT + "x" * 100)) == 256
    with pytest.raises(PatternRefusedError, match="characters"):
        expand_braces(EIGHT + "x" * 200)
    with pytest.raises(PatternRefusedError, match="256 patterns"):
        expand_braces(EIGHT + "{a,b}")


@pytest.mark.requirement("bounds.patterns")
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
def test_braces_open_and_close_as_before(pattern: str, expected: list[str]) -> None:
    assert expand_braces(pattern) == expected


PIECES = st.lists(st.sampled_from(["a", "b", "/", "*", "**", "?", "[ab]", "[!a]", "/**/", "**/", "*/"]), max_size=8)
PATHS = st.lists(st.sampled_from(["a", "b", "c", "ab", "ba", "aab"]), min_size=1, max_size=5).map("/".join)


@pytest.mark.requirement("bounds.linear_matching")
@settings(max_examples=300, deadline=None, database=None)
@given(patterns=st.lists(PIECES.map("".join), min_size=1, max_size=4), path=PATHS)
def test_the_automaton_fits_exactly_what_the_expressions_fit(patterns: list[str], path: str) -> None:
    try:
        tokens = [tokenize(pattern) for pattern in patterns]
    except MalformedPatternError:
        return
    fitting = [n for n, each in enumerate(tokens) if re.compile(path_regex(each), re.DOTALL).fullmatch(path)]
    assert Automaton(tokens).last(path) == (fitting[-1] if fitting else None)


@pytest.mark.requirement("bounds.linear_matching")
def test_a_part_with_very_many_stars_still_fits_what_it_says() -> None:
    pattern = compile_patterns(["*a" * 100 + "b"], ignore_case=True)
    assert pattern.matches("x" + "aX" * 99 + "AB")
    assert not pattern.matches("a" * 99 + "b")
    assert not pattern.matches("a" * 250)


@pytest.mark.requirement("bounds.ignore_rules")
def test_rules_with_very_many_stars_count_like_any_other() -> None:
    stars = b"*a" * 2_000
    hostile = b"".join(stars + b"b%d\n" % number for number in range(24))
    rules = parse_rules(hostile + b"*k*e*y*\n" + b"*z" * 40 + b"\n!" + b"*z" * 50 + b"\n")
    assert rules.hides("my.k.e.y", "my.k.e.y", is_folder=False) is True
    assert rules.hides("z" * 45, "z" * 45, is_folder=False) is True
    assert rules.hides("z" * 55, "z" * 55, is_folder=False) is False
    assert rules.hides("a" * 250, "a" * 250, is_folder=False) is None
    assert rules.hides("a" * 2_000 + "b23", "x", is_folder=False) is True


@pytest.mark.requirement("bounds.ignore_rules")
def test_more_rules_than_one_expression_holds_all_count_and_the_last_decides() -> None:
    content = b"".join(b"*k%dx?\n" % number for number in range(8_000))
    rules = parse_rules(content + b"!*k7999x?\nsub/**/d*p/\n")
    assert rules.hides("_k0xy", "_k0xy", is_folder=False) is True
    assert rules.hides("_k7998xy", "_k7998xy", is_folder=False) is True
    assert rules.hides("_k7999xy", "_k7999xy", is_folder=False) is False
    assert rules.hides("deep", "sub/a/deep", is_folder=True) is True
    assert rules.hides("deep", "sub/a/deep", is_folder=False) is None


@pytest.mark.requirement("bounds.brackets")
def test_many_open_classes_in_a_bracket_are_looked_through_once() -> None:
    sizes = [lines_of(lambda n=n: parse_rules(b"[" + b"[:" * n + b"]")) for n in (1_000, 2_000)]
    assert sizes[1] < 3 * sizes[0]


@pytest.mark.requirement("bounds.ignore_encodings")
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
def test_rules_are_understood_in_every_usual_encoding_and_line_ending(content: bytes) -> None:
    rules = parse_rules(content)
    name = "clé1x".encode().decode("latin-1")
    assert rules.hides("secret", "secret", is_folder=False) is True
    assert rules.hides(name, name, is_folder=False) is True
    assert rules.hides("other", "other", is_folder=False) is None


@pytest.mark.requirement("bounds.ignore_encodings")
def test_a_carriage_return_within_a_line_is_part_of_it_where_lines_end_otherwise() -> None:
    rules = parse_rules(b"a\rb\nc\n")
    assert rules.hides("a\rb", "a\rb", is_folder=False) is True
    assert rules.hides("a", "a", is_folder=False) is None


@pytest.mark.requirement("bounds.typed_line")
async def test_a_line_of_paths_that_is_too_long_is_refused_with_its_length(client: Client) -> None:
    with pytest.raises(MCPError, match="16,384 are accepted"):
        await client.get_prompt("at", {"paths": "a " * MAX_LINE_CHARS})


@pytest.mark.requirement("bounds.typed_line")
async def test_a_template_value_that_is_too_long_is_neither_decoded_nor_looked_up() -> None:
    async def run(call: FunctionCall) -> ToolResult | Question:
        raise AssertionError(f"{call.name} was called")

    class Undecodable(str):
        """Text that fails whoever decodes it."""

        __slots__ = ()

        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            raise AssertionError(f"it was decoded: {encoding}, {errors}")

    found = await complete_template(Undecodable("%41" * MAX_TYPED_CHARS), ["/"], run)
    assert found.values == []


@pytest.mark.requirement("bounds.shown_path")
def test_only_the_ends_of_a_path_longer_than_any_are_shown(root: Path) -> None:
    workspace = Workspace([str(root)])
    text = shown("a" * 15_000_000 + "\n" + "end", workspace)
    assert text.startswith("aaa")
    assert text.endswith("\\nend")
    assert "..." in text
    assert len(text) < 1_000


class Params(ToolParams):
    """Lists, limited and not."""

    paths: list[str] = Field(default=[])
    options: dict[str, int] = Field(default={})


SCHEMA = published_schema(Params)


def refusal(arguments: dict[str, Any]) -> str:
    with pytest.raises(InvalidToolParamsError) as caught:
        bind("tool", Params, SCHEMA, arguments)
    return str(caught.value)


@pytest.mark.requirement("bounds.parameters")
def test_a_list_of_very_many_items_is_refused_before_its_items_are_looked_at() -> None:
    assert f"'paths' has {MAX_ITEMS + 1:,} items" in refusal({"paths": [0] * (MAX_ITEMS + 1)})
    assert "items" in refusal({"paths": "[" + "0," * MAX_ITEMS + "0]"})
    assert len(bind("tool", Params, SCHEMA, {"paths": ["a"] * MAX_ITEMS}).paths) == MAX_ITEMS


@pytest.mark.requirement("bounds.parameters")
def test_text_that_is_too_long_to_be_a_list_is_not_parsed() -> None:
    said = refusal({"paths": '["' + "a" * MAX_JSON_CHARS + '"]'})
    assert "should be an array" in said
    assert len(bind("tool", Params, SCHEMA, {"paths": '["' + "a" * (MAX_JSON_CHARS - 4) + '"]'}).paths) == 1


@pytest.mark.requirement("bounds.parameters")
def test_very_many_properties_are_refused() -> None:
    many: dict[str, Any] = {f"x{number}": 1 for number in range(MAX_UNKNOWN + 1)}
    with pytest.raises(InvalidToolParamsError, match="1,001 properties"):
        rename("tool", many, {})
    assert "1,001 properties" in refusal(many)
    assert "'options' has 1,001 properties" in refusal({"options": many})


@pytest.mark.requirement("bounds.parameters")
def test_an_error_shows_the_beginning_of_a_wrong_value_of_any_size() -> None:
    assert "'paths.0': Input should be a valid string, got [0, 0, 0" in refusal({"paths": [[0] * 1_000_000]})
    assert len(refusal({"options": {"a": "b" * 1_000_000}})) < 1_000
