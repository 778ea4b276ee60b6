"""The ranking of tools by a query, measured with queries that were written before the ranking."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.tool_search import plain_bm25, texts_of
from server.requests.tool_search import ToolSearch
from server.settings import UpstreamSettings
from server.upstreams.catalog.tool_index import MAX_FIELD_CHARS, SearchText, ToolIndex, words_of
from tests.pools import quiet_pool
from tools.call.tool_registry import ToolRegistry
from tools.permissions.permission_policy import ALL_RIGHTS, PermissionPolicy, Rights

SET: dict[str, Any] = json.loads((Path(__file__).parents[2] / "bench" / "tool_search.json").read_text("utf-8"))
TEXTS = texts_of(SET["tools"])
INDEX = ToolIndex(TEXTS)


def recall(results: list[list[int]]) -> float:
    """Return the share of the right tools that were found, averaged over the queries."""
    parts = [
        len(set(query["right"]) & {TEXTS[number].name for number in numbers}) / min(len(query["right"]), 5)
        for query, numbers in zip(SET["queries"], results, strict=True)
    ]
    return sum(parts) / len(parts)


@pytest.mark.requirement("search.quality")
def test_the_search_finds_most_right_tools_and_ten_points_more_than_plain_bm25() -> None:
    plain = plain_bm25(TEXTS)
    our_recall = recall([INDEX.find(query["query"], 5)[0] for query in SET["queries"]])
    assert our_recall >= 0.80
    assert our_recall >= recall([plain(query["query"]) for query in SET["queries"]]) + 0.1


@pytest.mark.requirement("search.servers")
def test_nearly_all_natural_queries_over_twenty_real_servers_find_a_right_tool() -> None:
    servers = json.loads((Path(__file__).parents[2] / "bench" / "tool_search_servers.json").read_text("utf-8"))
    texts = texts_of(servers["tools"])
    index = ToolIndex(texts)
    missing = [
        query_["query"]
        for query_ in servers["queries"]
        if not {texts[number].name for number in index.find(query_["query"], 5)[0]} & set(query_["right"])
    ]
    assert len(servers["queries"]) == 27
    assert len(missing) <= 2, missing
    assert [query for query in servers["unanswerable"] if index.find(query, 5)[0]] == []


@pytest.mark.requirement("search.found")
def test_a_fully_named_object_is_found_with_another_verb_unless_the_verb_deletes() -> None:
    index = ToolIndex([SearchText("c__make_pie_chart", "c", "make_pie_chart"), SearchText("c__go", "c", "delete_all")])
    assert index.find("sketch a pie chart", 5)[0] == [0]
    assert index.find("delete a pie chart", 5)[0] != [0]


@pytest.mark.requirement("search.found")
def test_a_tool_that_returns_a_sum_is_found_by_adding_numbers() -> None:
    tool = SearchText("everything__get-sum", "everything", "get-sum", description="Returns the sum of two numbers")
    index = ToolIndex([tool, SearchText("desk__add_note", "desk", "add_note", description="Adds a note to a page")])
    assert index.find("add two numbers", 5)[0][:1] == [0]


@pytest.mark.requirement("search.found")
def test_better_tools_that_a_client_must_not_find_do_not_displace_the_others() -> None:
    better = [SearchText(f"a__refund_payment_{number}", "a", f"refund_payment_{number}") for number in range(130)]
    wanted = SearchText("b__payments", "b", "payments", description="Lists refunds and charges.")
    index = ToolIndex([*better, wanted])
    assert index.find("refund payment", 5, lambda number: number == 130)[0] == [130]
    assert index.find("+charges refund payment", 5)[0] == [130]


@pytest.mark.requirement("search.list")
@pytest.mark.parametrize("count", [36, 50, 70])
def test_long_descriptions_without_spaces_leave_room_for_the_names_of_all_servers(count: int) -> None:
    entry = UpstreamSettings(command="x", description="字" * 200)
    pool = quiet_pool({f"server{number:02}": entry for number in range(count)})
    search_tool, *_ = ToolSearch("on", ToolRegistry(), PermissionPolicy(), pool).tool_entries(ALL_RIGHTS)
    assert search_tool["description"].count("server") == count + 1  # the first is in "other servers"
    assert "and more" not in search_tool["description"]


@pytest.mark.requirement("search.list")
def test_a_client_that_may_use_no_server_sees_an_empty_list_of_servers() -> None:
    pool = quiet_pool({"docs": UpstreamSettings(command="x")})
    rights = Rights("token", scopes=frozenset({"read"}))
    search_tool, *_ = ToolSearch("on", ToolRegistry(), PermissionPolicy(), pool).tool_entries(rights)
    assert search_tool["description"].endswith("Servers: none.")


@pytest.mark.requirement("search.quality")
def test_at_most_a_tenth_of_the_queries_without_an_answer_find_something() -> None:
    answered_queries = [query for query in SET["unanswerable"] if INDEX.find(query, 5)[0]]
    assert len(answered_queries) <= len(SET["unanswerable"]) / 10, answered_queries


@pytest.mark.requirement("search.quality")
@pytest.mark.parametrize("between", ["_", "-", " ", ".", ""])
def test_every_name_is_found_first_in_any_spelling(between: str) -> None:
    for number, text in enumerate(TEXTS):
        for name in (text.name, text.name.upper()):
            assert INDEX.find(re.sub(r"[\W_]+", between, name), 1) == ([number], [])


@pytest.mark.requirement("search.load")
@pytest.mark.parametrize("name", ["list_files", "", "___", "的", "x" * 5_000])
def test_many_identical_tools_do_no_harm(name: str) -> None:
    index = ToolIndex(SearchText(f"s__{name}", "s", name, description=name) for _ in range(1_000))
    for query in ("list files", name, f"+{name}", "list " * 200, "select:" + ",".join([name] * 300)):
        assert len(index.find(query, 20)[0]) <= 20
    assert index.find("unicorn", 5) == ([], [])


@pytest.mark.requirement("search.load")
def test_no_tools_at_all_find_nothing() -> None:
    assert ToolIndex([]).find("list files", 5) == ([], [])
    assert INDEX.find("the of a", 5) == ([], [])


@pytest.mark.requirement("search.found")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getURLsOfHTTPServer", ["get", "urls", "http", "server"]),
        ("send_e-mail.v2", ["send", "mail", "2"]),
        ("Überprüfe", ["uberprufe"]),
        ("a" * (MAX_FIELD_CHARS + 9), ["a" * MAX_FIELD_CHARS]),
    ],
)
def test_words_are_split_however_they_are_joined(text: str, words: list[str]) -> None:
    assert list(words_of(text)) == words
