"""The published URIs of resources: a template of a resource counts as matching every URI with its scheme."""

from __future__ import annotations

import pytest

from server.settings import UpstreamSettings
from server.upstreams.connections.connection import Upstream
from server.upstreams.relay.upstream_resources import ResourceRoutes, SharedUriError
from server.upstreams.session.list_reader import RESOURCES, TEMPLATES, TOOLS

pytestmark = pytest.mark.requirement("relay.uris")


def ignore(*_: object) -> None:
    """Ignore an event of an upstream."""


def upstream_with(alias: str, *templates: str, resources: tuple[str, ...] = ()) -> Upstream:
    upstream = Upstream(alias, UpstreamSettings(command="x"), ignore, ignore)
    upstream.offer.lists[TEMPLATES.field] = [{"uriTemplate": template, "name": "t"} for template in templates]
    upstream.offer.lists[RESOURCES.field] = [{"uri": uri, "name": "r"} for uri in resources]
    return upstream


def routes_of(*upstreams: Upstream) -> ResourceRoutes:
    return ResourceRoutes(upstreams, {upstream.alias for upstream in upstreams}, lambda _: False, is_alone=False)


def test_uris_and_templates_of_a_scheme_that_another_server_has_a_template_of_have_their_alias() -> None:
    one = upstream_with("one", "y://{a}", resources=("x://1", "y://1", "z://1"))
    other = upstream_with("other", "X://a/{b}", resources=("z://2",))
    routes = routes_of(one, other)
    assert {*routes.by_uri} == {"one+x://1", "y://1", "z://1", "y://{a}", "other+X://a/{b}", "z://2"}
    for name, route in routes.by_uri.items():
        assert routes.find(name) == route
        assert routes.published_uri(route.upstream, route.uri) == name
    for uri in ("x://1", "x://a/7", "z://7"):
        with pytest.raises(SharedUriError) as error_info:
            routes.find(uri)
        assert error_info.value.names == [f"one+{uri}", f"other+{uri}"]


def test_an_unlisted_link_keeps_its_form_if_no_other_server_uses_its_scheme() -> None:
    one, other = upstream_with("one", "y://{a}", resources=("x://1",)), upstream_with("other", "x://a/{b}")
    routes = routes_of(one, other)
    for uri, name in {"y://7": "y://7", "x://7": "one+x://7"}.items():
        assert routes.published_uri(one, uri) == name
        route = routes.find(name)
        assert route is not None
        assert (route.upstream, route.uri) == (one, uri)


def test_a_tools_page_of_a_scheme_that_another_server_has_a_template_of_has_its_alias() -> None:
    owner, other_upstream = upstream_with("one"), upstream_with("other", "ui://{a}/{b}")
    tool = {"name": "t", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://x/page"}}}
    owner.offer.lists[TOOLS.field] = [tool]
    assert {*routes_of(owner, other_upstream).by_uri} == {"ui://one+x/page", "ui://other+{a}/{b}"}
    assert {*routes_of(owner).by_uri} == {"ui://x/page"}
