"""Results with very many links, of upstreams with very many templates of resources."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from server.settings import UpstreamSettings
from server.upstreams.connections.connection import Upstream
from server.upstreams.relay import upstream_resources
from server.upstreams.relay.relayed_results import MAX_COMPARED_LINKS, with_links
from server.upstreams.relay.upstream_resources import MAX_TEMPLATES, ResourceRoutes
from server.upstreams.session.list_reader import RESOURCES, TEMPLATES, TOOLS

pytestmark = pytest.mark.requirement("relay.links.many")

TEMPLATE_COUNT = 4_000
FIT_ALL = [f"x://{{a}}/q{number}/{{b}}" for number in range(TEMPLATE_COUNT)]


def ignored(*_: object) -> None:
    """Nobody listens here."""


def having(alias: str, *templates: str, resources: tuple[str, ...] = ()) -> Upstream:
    upstream = Upstream(alias, UpstreamSettings(command="x"), ignored, ignored)
    upstream.offer.lists[TEMPLATES.field] = [{"uriTemplate": each, "name": "t"} for each in templates]
    upstream.offer.lists[RESOURCES.field] = [{"uri": each, "name": "r"} for each in resources]
    return upstream


def routes_of(*upstreams: Upstream) -> ResourceRoutes:
    return ResourceRoutes(upstreams, {each.alias for each in upstreams}, lambda _: False, is_alone=False)


def spelled(routes: ResourceRoutes, upstream: Upstream, uris: list[str]) -> list[str]:
    """The links of a result with these."""
    blocks: list[dict[str, Any]] = [{"type": "resource_link", "uri": uri, "name": "n"} for uri in uris]
    result = with_links("tools/call", {"content": blocks}, partial(routes.published_uri, upstream))
    return [block["uri"] for block in result["content"]]


def test_links_beyond_what_is_compared_have_their_alias_and_lead_where_all_others_do() -> None:
    many, listed = having("many", *FIT_ALL, resources=("x://listed",)), "x://listed"
    routes = routes_of(many, having("other", "y://{a}"))
    uris = [f"x://a/{number}" for number in range(5_000)]
    links = spelled(routes, many, [*uris, listed])
    assert links == [*uris[:MAX_COMPARED_LINKS], *(f"many+{uri}" for uri in uris[MAX_COMPARED_LINKS:]), listed]
    for link, uri in zip(links, [*uris, listed], strict=True):
        if link in {links[0], links[-2], links[-1]}:
            route = routes.find(link)
            assert route is not None
            assert (route.upstream, route.uri) == (many, uri)


def test_a_uri_is_compared_once_for_a_result() -> None:
    many = having("many", *FIT_ALL)
    routes = routes_of(many, having("other"))
    assert spelled(routes, many, ["x://a/1"] * 5_000) == ["x://a/1"] * 5_000


def test_templates_beyond_the_first_ones_stand_for_all_of_their_scheme() -> None:
    few = having("few", *(f"x://{number}/{{a}}" for number in range(MAX_TEMPLATES)))
    other = having("other", *(f"x://of{number}/{{a}}" for number in range(MAX_TEMPLATES)))
    uris = [f"x://{number}/a" for number in range(MAX_TEMPLATES)]
    assert spelled(routes_of(few, other), few, uris) == uris
    assert spelled(routes_of(few, other), other, uris) == [f"other+{uri}" for uri in uris]
    many = having("many", *(f"x://of{number}/{{a}}" for number in range(MAX_TEMPLATES + 1)))
    routes = routes_of(few, many)
    assert routes.template_owners("x://0/a") == {"few", "many"}
    assert routes.template_owners("x://no") == {"many"}
    assert routes.template_owners("y://0/a") == set()


def test_what_a_template_of_another_server_fits_is_never_listed_as_it_is_however_much_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream_resources, "MAX_COMPARED", most := 1_000)
    resources = tuple(f"x://{number}" for number in range(most))
    routes = routes_of(having("many", resources=(*resources, "y://1")), having("other", "x://a/{b}", "z://{a}"))
    assert [item["uri"] for _, item in routes.resources] == [*(f"many+{uri}" for uri in resources), "y://1"]


def test_the_page_of_a_tool_that_a_template_of_another_server_fits_has_its_alias() -> None:
    one, other = having("one"), having("other", "ui://{a}/{b}")
    tool = {"name": "t", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://x/page"}}}
    one.offer.lists[TOOLS.field] = [tool]
    assert {*routes_of(one, other).by_uri} == {"ui://one+x/page", "ui://{a}/{b}"}
    assert {*routes_of(one).by_uri} == {"ui://x/page"}


@pytest.mark.parametrize("uri", ["x://" + "a" * 100 + "/1", "x://b/c/1", "x://", "x", "X://b/c/1", "x://b/"])
def test_templates_are_found_by_any_beginning(uri: str) -> None:
    templates = ["x://{a}", "x://" + "a" * 100 + "/{a}", "x://b/{a}/{b}", "X://b{a}", "x://" + "a" * 99 + "b{a}"]
    routes = routes_of(*(having(f"u{number}", each) for number, each in enumerate(templates)))
    expected = {
        "x://" + "a" * 100 + "/1": {"u0", "u1"},
        "x://b/c/1": {"u0", "u2"},
        "X://b/c/1": {"u3"},
        "x://b/": {"u0"},
    }
    assert routes.template_owners(uri) == expected.get(uri, set())
