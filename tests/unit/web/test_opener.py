"""The opener: what is sent, what comes back, and where redirects lead."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from pathlib import Path

import anyio
import pytest

from tests.peers.web_server import DeadNameServer, NameServer, answer, redirect, silence, web_server
from tests.unit.web.certificates import authority_for
from tests.unit.web.fetching import opener_for, rules_for
from tests.waiting import until
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.web.address_guard import WebRules
from tools.web.http_exchange import PIECE_BYTES, Truncation
from tools.web.url_opener import MAX_CONCURRENT, MAX_CONCURRENT_PER_CLIENT, FairLimit, UrlOpener, WebRequest

pytestmark = pytest.mark.anyio


async def refusal(opener: UrlOpener, request: WebRequest) -> ToolError:
    with pytest.raises(ToolError) as error_info:
        await opener.open(request)
    return error_info.value


@pytest.mark.requirement("web.open")
async def test_an_answer_comes_with_its_status_type_and_content() -> None:
    raw_answer = answer(
        "<p>caf\u00e9", status="418 I'm a teapot", headers={"Content-Type": 'Text/HTML; a=b; Charset="UTF-8"'}
    )
    async with web_server({"/a?b=%20c": raw_answer}) as site:
        response = await opener_for(site).open(WebRequest(site.url("/a?b=%20c#d")))
    assert (response.url, response.status) == (site.url("/a?b=%20c"), 418)
    assert (response.media_type, response.charset) == ("text/html", "utf-8")
    assert response.body.decode() == "<p>caf\u00e9"
    assert response.truncation is None
    assert response.redirects == ()


@pytest.mark.requirement("web.url")
async def test_no_credentials_cookies_or_proxies_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine site.test login me password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    for name, value in {
        "HOME": str(tmp_path),
        "NETRC": str(tmp_path / ".netrc"),
        "http_proxy": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    cookie = answer("x", headers={"Set-Cookie": "a=b"})
    async with web_server(
        {"/": cookie, "/r": answer(status="302 Found", headers={"Location": "/", "Set-Cookie": "c=d"})}
    ) as site:
        opener = opener_for(site)
        for path in ("/", "/r", "/"):
            await opener.open(WebRequest(site.url(path)))
    assert site.paths == ["/", "/r", "/", "/"]
    names = {line.split(":")[0].lower() for head in site.requests for line in head.split("\r\n")[1:] if line}
    assert names == {"host", "accept", "user-agent", "connection", "accept-encoding"}
    assert all(f"Host: site.test:{site.port}\r\n" in head for head in site.requests)


@pytest.mark.requirement("web.open")
async def test_a_body_and_headers_are_sent_once() -> None:
    bodies: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        bodies.extend((head, await reader.readexactly(7)))
        writer.write(answer("{}"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        opener = UrlOpener()
        request = WebRequest(
            f"http://127.0.0.1:{port}/", "POST", {"accept": "application/json"}, b'{"a":1}', is_trusted_endpoint=True
        )
        response = await opener.open(request)
    assert response.body == b"{}"
    assert bodies[1] == b'{"a":1}'
    assert bodies[0].lower().count(b"accept:") == 1


@pytest.mark.requirement("web.private")
async def test_an_endpoint_of_the_settings_may_be_private_and_its_redirects_are_not_followed() -> None:
    async with web_server({"/": redirect("/b"), "/b": answer("b")}) as site:
        request = WebRequest(f"http://localhost:{site.port}/", is_trusted_endpoint=True)
        response = await UrlOpener(resolver=NameServer({"localhost": ["127.0.0.1"]})).open(request)
        assert response.status == 302
        assert site.paths == ["/"]
        error = await refusal(UrlOpener(), WebRequest(f"http://localhost:{site.port}/"))
    assert error.code is ToolErrorType.WEB_REFUSED
    assert site.connections == 1


@pytest.mark.requirement("web.redirects")
async def test_redirects_on_the_same_host_are_followed() -> None:
    answers = {f"/{n}": redirect(f"/{n + 1}", "301 Moved") for n in range(5)} | {"/5": answer("there")}
    async with web_server(answers) as site:
        response = await opener_for(site).open(WebRequest(site.url("/0")))
    assert response.body == b"there"
    assert response.redirects == tuple(site.url(f"/{n}") for n in range(5))


@pytest.mark.requirement("web.redirects")
@pytest.mark.parametrize(
    ("first_host", "second_host"), [("site.test", "www.site.test"), ("www.site.test", "site.test")]
)
async def test_www_is_another_host(first_host: str, second_host: str) -> None:
    names = NameServer({"site.test": ["127.0.0.1"], "www.site.test": ["127.0.0.1"]})
    async with web_server({"/": answer("there")}) as site:
        site.answers["/r"] = redirect(site.url("/", second_host))
        response = await opener_for(site, names=names).open(WebRequest(site.url("/r", first_host)))
    assert response.moved_to == site.url("/", second_host)
    assert site.paths == ["/r"]


@pytest.mark.requirement("web.redirects")
async def test_a_redirect_to_another_host_is_returned_and_not_followed() -> None:
    names = NameServer({"site.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]})
    async with web_server() as other_site, web_server() as site:
        site.answers["/r"] = redirect(other_site.url("/x", "other.test"))
        response = await opener_for(site, other_site, names=names).open(WebRequest(site.url("/r")))
    assert response.moved_to == other_site.url("/x", "other.test")
    assert response.status == 302
    assert other_site.connections == 0


@pytest.mark.requirement("web.unreachable")
async def test_tls_certificates_are_checked_for_the_host_name(tmp_path: Path) -> None:
    authority = authority_for("site.test", tmp_path)
    requested_names: list[str | None] = []
    authority.server.sni_callback = lambda _socket, name, _context: requested_names.append(name)
    async with web_server({"/": answer("secret")}, tls=authority.server) as site:
        url = f"https://site.test:{site.port}/"
        opener = UrlOpener(rules_for(site), NameServer(), authority.trust)
        response = await opener.open(WebRequest(url))
        assert response.body == b"secret"
        assert requested_names == ["site.test"]
        names = NameServer({"other.test": ["127.0.0.1"]})
        wrong_name = await refusal(
            UrlOpener(rules_for(site), names, authority.trust), WebRequest(f"https://other.test:{site.port}/")
        )
        unknown_authority = await refusal(UrlOpener(rules_for(site), NameServer()), WebRequest(url))
        no_authority = await refusal(
            UrlOpener(rules_for(site), NameServer(), lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)), WebRequest(url)
        )
    assert wrong_name.code is unknown_authority.code is no_authority.code is ToolErrorType.WEB_UNREACHABLE
    assert "certificate is not accepted (Hostname mismatch" in wrong_name.message
    assert "certificate is not accepted" in unknown_authority.message


@pytest.mark.requirement("web.redirects")
async def test_a_redirect_from_https_to_http_is_refused(tmp_path: Path) -> None:
    authority = authority_for("site.test", tmp_path)
    async with web_server({"/": redirect("http://site.test/")}, tls=authority.server) as site:
        opener = UrlOpener(rules_for(site), NameServer(), authority.trust)
        error = await refusal(opener, WebRequest(f"https://site.test:{site.port}/"))
    assert "from https to http" in error.message
    assert error.code is ToolErrorType.WEB_REFUSED


@pytest.mark.requirement("web.unreachable")
async def test_a_server_that_cannot_be_reached_is_reported() -> None:
    async with web_server() as site:
        opener = opener_for(site)
        port = site.port
    closed_port = await refusal(opener, WebRequest(f"http://site.test:{port}/"))
    unknown_host = await refusal(opener, WebRequest("http://unknown.test/"))
    no_name_server = await refusal(UrlOpener(resolver=DeadNameServer()), WebRequest("http://site.test/"))
    assert {error.code for error in (closed_port, unknown_host, no_name_server)} == {ToolErrorType.WEB_UNREACHABLE}
    assert "refused" in closed_port.message
    assert "another source" in closed_port.message
    local_rules = WebRules(allow_private_hosts=("127.0.0.1", "localhost"), allowed_ports=(port,))
    for host in ("127.0.0.1", "localhost"):
        local = await refusal(UrlOpener(local_rules), WebRequest(f"http://{host}:{port}/"))
        assert "only commands reach it (curl)" in local.message
        assert 'needs: "network"' in local.message
    assert "has no address" in unknown_host.message
    assert "no name server" in no_name_server.message


@pytest.mark.requirement("web.unreachable")
async def test_an_address_that_refuses_is_followed_by_the_next() -> None:
    async with web_server({"/": answer("there")}) as site:
        names = NameServer({"site.test": ["127.0.0.2", "127.0.0.1"]})
        rules = rules_for(site)
        opener = UrlOpener(type(rules)(("127.0.0.0/8",), rules.allowed_ports), names)
        assert (await opener.open(WebRequest(site.url()))).body == b"there"


@pytest.mark.requirement("web.unreachable")
@pytest.mark.parametrize("raw_answer", [b"SSH-2.0-OpenSSH\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
async def test_a_server_that_does_not_speak_http_is_reported(raw_answer: bytes) -> None:
    async with web_server({"/": raw_answer}) as site:
        error = await refusal(opener_for(site), WebRequest(site.url()))
    assert error.code is ToolErrorType.WEB_UNREACHABLE
    assert "not HTTP" in error.message


def compress(data: bytes, wbits: int) -> bytes:
    stream = zlib.compressobj(wbits=wbits)
    return stream.compress(data) + stream.flush()


TEXT = b"the same words, " * 5_000


@pytest.mark.requirement("web.open")
@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(TEXT)),
        ("X-GZip", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]) + b"\0" * 20),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", compress(TEXT, -15)),
        ("identity", TEXT),
    ],
)
async def test_content_is_decompressed(encoding: str, body: bytes) -> None:
    async with web_server({"/": answer(body, headers={"Content-Encoding": encoding})}) as site:
        response = await opener_for(site).open(WebRequest(site.url()))
    assert response.body == TEXT
    assert response.truncation is None


@pytest.mark.requirement("web.open")
async def test_the_last_bytes_of_a_deflate_body_without_a_zlib_header_are_not_lost() -> None:
    text = b"a" * (PIECE_BYTES + 5)
    async with web_server({"/": answer(compress(text, -15), headers={"Content-Encoding": "deflate"})}) as site:
        response = await opener_for(site).open(WebRequest(site.url()))
    assert response.body == text
    assert response.truncation is None


@pytest.mark.requirement("web.open")
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "x"])
async def test_a_content_encoding_that_was_not_requested_is_reported(encoding: str) -> None:
    async with web_server({"/": answer(b"x", headers={"Content-Encoding": encoding})}) as site:
        error = await refusal(opener_for(site), WebRequest(site.url()))
    assert error.code is ToolErrorType.WEB_FETCH_PROCESSING_ERROR


@pytest.mark.requirement("web.open")
async def test_the_intact_beginning_of_a_damaged_body_is_kept() -> None:
    compressed_text = gzip.compress(TEXT)
    answers = {
        "/end": answer(compressed_text[:-20], headers={"Content-Encoding": "gzip"}),
        "/none": answer(b"no gzip", headers={"Content-Encoding": "gzip"}),
        "/middle": answer(compressed_text[:100] + b"\xff" * 300, headers={"Content-Encoding": "gzip"}),
    }
    async with web_server(answers) as site:
        opener = opener_for(site)
        error = await refusal(opener, WebRequest(site.url("/none")))
        responses = [await opener.open(WebRequest(site.url(path))) for path in ("/middle", "/end")]
    assert error.code is ToolErrorType.WEB_FETCH_PROCESSING_ERROR
    for response in responses:
        assert response.body
        assert TEXT.startswith(response.body)
        assert response.truncation is Truncation.BROKEN


@pytest.mark.requirement("web.caps")
async def test_cancellation_closes_the_connection() -> None:
    async with web_server({"/": silence}) as site, anyio.create_task_group() as group:
        group.start_soon(opener_for(site).open, WebRequest(site.url()))
        await until(lambda: site.requests)
        group.cancel_scope.cancel()
    assert site.connections == 1
    assert site.open_connections == 0


@pytest.mark.requirement("web.open")
async def test_progress_is_reported() -> None:
    progress_values: list[float] = []

    async def progress(received_bytes: float, total: float | None, message: str) -> None:
        assert total is None
        assert "site.test" in message
        progress_values.append(received_bytes)

    async with web_server({"/": answer(b"x" * 3_000_000)}) as site:
        await opener_for(site).open(WebRequest(site.url()), progress=progress)
    assert progress_values == sorted(progress_values)
    assert 3 <= len(progress_values) <= 12


@pytest.mark.requirement("web.concurrency")
async def test_one_client_leaves_turns_for_others() -> None:
    async with web_server({"/slow": silence, "/": answer("there")}) as site:
        opener = opener_for(site)
        async with anyio.create_task_group() as group:
            for _ in range(MAX_CONCURRENT):
                group.start_soon(opener.open, WebRequest(site.url("/slow"), client_key="greedy"))
            await until(lambda: len(site.requests) >= MAX_CONCURRENT_PER_CLIENT)
            with anyio.fail_after(60):
                response = await opener.open(WebRequest(site.url("/"), client_key="other"))
            assert response.body == b"there"
            group.cancel_scope.cancel()
    assert site.paths.count("/slow") == MAX_CONCURRENT_PER_CLIENT


@pytest.mark.requirement("web.concurrency")
async def test_a_turn_is_free_again_after_its_call() -> None:
    limit = FairLimit(total=1, per_client=1)
    with anyio.fail_after(60):
        for client in ("a", "a", "b"):
            async with limit.slot(client):
                with anyio.move_on_after(0.01) as wait_scope:
                    async with limit.slot("a"):
                        raise AssertionError
                assert wait_scope.cancelled_caught
