"""Results with very many links, from upstreams with very many resource templates."""

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


def ignore(*_: object) -> None:
    """Ignore an event of an upstream."""


def upstream_with(alias: str, *templates: str, resources: tuple[str, ...] = ()) -> Upstream:
    upstream = Upstream(alias, UpstreamSettings(command="x"), ignore, ignore)
    upstream.offer.lists[TEMPLATES.field] = [{"uriTemplate": template, "name": "t"} for template in templates]
    upstream.offer.lists[RESOURCES.field] = [{"uri": uri, "name": "r"} for uri in resources]
    return upstream


def routes_of(*upstreams: Upstream) -> ResourceRoutes:
    return ResourceRoutes(upstreams, {upstream.alias for upstream in upstreams}, lambda _: False, is_alone=False)


def published_links(routes: ResourceRoutes, upstream: Upstream, uris: list[str]) -> list[str]:
    """Return the links as a client sees them in a result."""
    blocks: list[dict[str, Any]] = [{"type": "resource_link", "uri": uri, "name": "n"} for uri in uris]
    result = with_links("tools/call", {"content": blocks}, partial(routes.published_uri, upstream))
    return [block["uri"] for block in result["content"]]


def test_links_beyond_the_compared_ones_have_their_alias_and_lead_to_their_upstream() -> None:
    many, listed_uri = upstream_with("many", *FIT_ALL, resources=("x://listed",)), "x://listed"
    routes = routes_of(many, upstream_with("other", "y://{a}"))
    uris = [f"x://a/{number}" for number in range(5_000)]
    links = published_links(routes, many, [*uris, listed_uri])
    assert links == [*uris[:MAX_COMPARED_LINKS], *(f"many+{uri}" for uri in uris[MAX_COMPARED_LINKS:]), listed_uri]
    for link, uri in zip(links, [*uris, listed_uri], strict=True):
        if link in {links[0], links[-2], links[-1]}:
            route = routes.find(link)
            assert route is not None
            assert (route.upstream, route.uri) == (many, uri)


def test_a_uri_is_compared_once_per_result() -> None:
    many = upstream_with("many", *FIT_ALL)
    routes = routes_of(many, upstream_with("other"))
    assert published_links(routes, many, ["x://a/1"] * 5_000) == ["x://a/1"] * 5_000


def test_templates_beyond_the_first_ones_match_all_uris_of_their_scheme() -> None:
    few = upstream_with("few", *(f"x://{number}/{{a}}" for number in range(MAX_TEMPLATES)))
    other_upstream = upstream_with("other", *(f"x://of{number}/{{a}}" for number in range(MAX_TEMPLATES)))
    uris = [f"x://{number}/a" for number in range(MAX_TEMPLATES)]
    assert published_links(routes_of(few, other_upstream), few, uris) == uris
    assert published_links(routes_of(few, other_upstream), other_upstream, uris) == [f"other+{uri}" for uri in uris]
    many = upstream_with("many", *(f"x://of{number}/{{a}}" for number in range(MAX_TEMPLATES + 1)))
    routes = routes_of(few, many)
    assert routes.template_owners("x://0/a") == {"few", "many"}
    assert routes.template_owners("x://no") == {"many"}
    assert routes.template_owners("y://0/a") == set()


def test_uris_that_match_a_template_of_another_server_never_keep_their_form_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream_resources, "MAX_COMPARED", limit := 1_000)
    resources = tuple(f"x://{number}" for number in range(limit))
    routes = routes_of(
        upstream_with("many", resources=(*resources, "y://1")), upstream_with("other", "x://a/{b}", "z://{a}")
    )
    assert [item["uri"] for _, item in routes.resources] == [*(f"many+{uri}" for uri in resources), "y://1"]


def test_a_tools_page_that_matches_a_template_of_another_server_gets_an_alias() -> None:
    owner, other_upstream = upstream_with("one"), upstream_with("other", "ui://{a}/{b}")
    tool = {"name": "t", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://x/page"}}}
    owner.offer.lists[TOOLS.field] = [tool]
    assert {*routes_of(owner, other_upstream).by_uri} == {"ui://one+x/page", "ui://{a}/{b}"}
    assert {*routes_of(owner).by_uri} == {"ui://x/page"}


@pytest.mark.parametrize("uri", ["x://" + "a" * 100 + "/1", "x://b/c/1", "x://", "x", "X://b/c/1", "x://b/"])
def test_templates_are_found_by_prefixes_of_any_length(uri: str) -> None:
    templates = ["x://{a}", "x://" + "a" * 100 + "/{a}", "x://b/{a}/{b}", "X://b{a}", "x://" + "a" * 99 + "b{a}"]
    routes = routes_of(*(upstream_with(f"u{number}", template) for number, template in enumerate(templates)))
    owners = {
        "x://" + "a" * 100 + "/1": {"u0", "u1"},
        "x://b/c/1": {"u0", "u2"},
        "X://b/c/1": {"u3"},
        "x://b/": {"u0"},
    }
    assert routes.template_owners(uri) == owners.get(uri, set())
