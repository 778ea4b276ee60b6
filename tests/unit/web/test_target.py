"""Parsing URLs: which texts are accepted, and which host each URL leads to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.tables import each_of
from tools.web.address_guard import UrlError, parse_url


@pytest.mark.requirement("web.url")
@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://example.org", "http://example.org/"),
        ("HTTPS://Example.ORG:443/A?b=C#d", "https://example.org/A?b=C"),
        ("http://example.org.:8080/", "http://example.org:8080/"),
        ("http://example.org?a", "http://example.org/?a"),
        ("http://b\u00fccher.example/\u00e4?\u00f6=1", "http://xn--bcher-kva.example/%C3%A4?%C3%B6=1"),
        ("http://1.2.3.4/", "http://1.2.3.4/"),
        ("http://[2606:4700::1]:8080/", "http://[2606:4700::1]:8080/"),
        ("http://example.org/a%2Fb%zz[1]|x", "http://example.org/a%2Fb%zz[1]%7Cx"),
        ("http://example.org/?u=http://other.example/@x", "http://example.org/?u=http://other.example/@x"),
        ("http://\u2460.\u2461.\u2462.\u2463/", "http://1.2.3.4/"),
        ("http://a_b.example/", "http://a_b.example/"),
    ],
)
def test_a_url_has_one_spelling(text: str, url: str) -> None:
    assert parse_url(text).url == url
    assert parse_url(url).url == url


@pytest.mark.requirement("web.url")
@each_of(
    ("text", "cause"),
    [
        ("", "does not begin"),
        ("example.org", "does not begin"),
        ("//example.org", "does not begin"),
        ("file:///etc/passwd", "scheme is 'file'"),
        ("ftp://example.org/", "scheme is 'ftp'"),
        ("data:text/html,x", "scheme is 'data'"),
        ("javascript:alert(1)", "scheme is 'javascript'"),
        ("gopher://example.org/", "scheme is 'gopher'"),
        ("http:example.org", "no host"),
        ("http:///example.org", "no host"),
        ("http://user:pw@example.org/", "user name"),
        ("http://example.org@127.0.0.1/", "user name"),
        ("http://a\\@127.0.0.1/", "'\\'"),
        ("http://example.org/\t", "\\t"),
        ("http://exa\r\nmple.org/", "\\r"),
        ("http://example.org/ a", "' '"),
        (" http://example.org/", "' '"),
        ("http://example.org/\u202e", "\\u202e"),
        ("http://example.org/\0", "\\x00"),
        ("http://example.org:/", "port"),
        ("http://example.org:0/", "port"),
        ("http://example.org:080/", "port"),
        ("http://example.org:65536/", "port"),
        ("http://example.org:8_0/", "port"),
        ("http://example.org:80:80/", "port"),
        ("http://example.org:+80/", "port"),
        ("http://%31%32%37.0.0.1/", "number"),
        ("http://exam%70le.org/", "not a host name"),
        ("http://a..b/", "not a host name"),
        ("http://-a.example/", "not a host name"),
        ("http://a,b/", "not a host name"),
        ("http://" + "a" * 64 + ".example/", "not a host name"),
        ("http://[::1/", "brackets"),
        ("http://[::1]x/", "brackets"),
        ("http://[fe80::1%25lo]/", "network interface"),
        ("http://[fe80::1%lo]/", "network interface"),
        ("http://[127.0.0.1]/", "IPv6"),
        ("http://2130706433/", "number"),
        ("http://0x7f.1/", "number"),
        ("http://0x7f000001/", "number"),
        ("http://0177.0.0.1/", "number"),
        ("http://127.1/", "number"),
        ("http://0/", "number"),
        ("http://1.2.3/", "number"),
        ("http://1.2.3.4.5/", "number"),
        ("http://example.0x1/", "number"),
        ("http://\uff11\uff12\uff17.1/", "number"),
        ("http://example.org/" + "a" * 8_000, "8,019 characters"),
    ],
)
def test_ambiguous_or_invalid_urls_are_refused(text: str, cause: str) -> None:
    with pytest.raises(UrlError, match=r".*") as error_info:
        parse_url(text)
    assert cause in str(error_info.value)


@pytest.mark.requirement("web.url")
@pytest.mark.parametrize(
    ("reference", "url"),
    [
        ("b", "http://example.org/x/b"),
        ("../b?c", "http://example.org/b?c"),
        ("?c", "http://example.org/x/a?c"),
        ("//other.example/", "http://other.example/"),
        ("https://other.example/b#c", "https://other.example/b"),
    ],
)
def test_a_reference_leads_on_from_its_page(reference: str, url: str) -> None:
    assert parse_url("http://example.org/x/a").joined(reference).url == url


@pytest.mark.requirement("web.url")
@examples(100)
@given(st.text(alphabet=st.sampled_from("htps:/@[]%\\.?#0127xa\u2460 \t"), max_size=40))
def test_a_parsed_url_is_parsed_again_to_the_same_target(text: str) -> None:
    for spelling in (text, f"http://{text}"):
        try:
            target = parse_url(spelling)
        except UrlError:
            continue
        assert parse_url(target.url) == target
        assert target.host
        assert not set(target.host) & set("@\\/?#% ")
        assert target.path.isascii()
        assert target.path.startswith("/")
