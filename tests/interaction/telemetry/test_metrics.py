"""What `/metrics` shows, and to whom. A small parser reads the text format."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from server.telemetry.metrics import MAX_CODES, MAX_NAMES, METRICS, OTHER, Metrics, Operation
from tests.harness import HANDSHAKES, ROOT, own_state, stdio_upstream, write_config
from tests.interaction.raw_clients import FORM, RawClient, connect_http, http_server, initialized_client
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio

TOKEN = "metrics-token-" + "m" * 20
SECRET = "hunter2-" + "s" * 20
LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
LINE = re.compile(r"([a-zA-Z_:]\w*)(?:\{(.*)\})? (\S+)")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse_samples(text: str) -> Samples:
    """Return the samples of a scrape.

    Assert that each sample is there only once and follows the `TYPE` of its metric, and that buckets add up.
    """
    samples: Samples = {}
    kinds: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("#"):
            _, keyword, name, detail = line.split(" ", 3)
            if keyword == "TYPE":
                assert name not in kinds
                kinds[name] = detail
            continue
        match = LINE.fullmatch(line)
        assert match is not None, line
        name, labels, value = match.groups()
        pairs = LABEL.findall(labels or "")
        assert ",".join(f'{key}="{label_value}"' for key, label_value in pairs) == (labels or ""), line
        family = re.sub(r"_(bucket|sum|count)$", "", name) if name not in kinds else name
        assert family == list(kinds)[-1], line
        key = (name, frozenset((key, re.sub(r"\\(.)", r"\1", label_value)) for key, label_value in pairs))
        assert key not in samples, line
        samples[key] = float(value)
    for (name, labels), value in samples.items():
        if name.endswith("_bucket") and ("le", "+Inf") in labels:
            other_labels = labels - {("le", "+Inf")}
            assert samples[name.removesuffix("_bucket") + "_count", other_labels] == value
            bounds = [
                (float(dict(bucket_labels)["le"]), count)
                for (bucket_name, bucket_labels), count in samples.items()
                if bucket_name == name and bucket_labels - {("le", dict(bucket_labels)["le"])} == other_labels
            ]
            assert [count for _, count in sorted(bounds)] == sorted(count for _, count in bounds)
    return samples


def value_of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def get(url: str, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=CEILING)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@contextmanager
def metrics_server(root: Path, folder: Path, **settings: Any) -> Generator[str]:
    """Run a server that shows metrics. Yields its base URL."""
    http = {"metrics": True, **settings.pop("http", {})}
    with http_server(root, write_config(folder, {"http": http, **settings}), own_state()) as url:
        yield url


def call_tool(client: RawClient, tool: str, **arguments: Any) -> dict[str, Any]:
    return client.receive(client.request("tools/call", {"name": tool, "arguments": arguments}))


@pytest.mark.requirement("metrics.token")
def test_metrics_are_shown_to_those_who_show_a_token(root: Path, tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text(TOKEN)
    token.chmod(0o600)
    with metrics_server(root, tmp_path, http={"tokens": {"scraper": {"file": str(token)}}}) as url:
        assert get(url)[0] == 401
        assert get(url, Authorization="Bearer wrong-" + "w" * 20)[0] == 401
        status, text = get(url, Authorization=f"Bearer {TOKEN}")
        assert status == 200
        assert value_of(parse_samples(text), "coretools_mcp_sessions") == 0


@pytest.mark.requirement("metrics.token")
def test_metrics_are_refused_to_a_token_with_a_profile_of_its_own(root: Path, tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text(TOKEN)
    token.chmod(0o600)
    with metrics_server(root, tmp_path, http={"tokens": {"narrow": {"file": str(token), "profile": "core"}}}) as url:
        status, text = get(url, Authorization=f"Bearer {TOKEN}")
        assert status == 403
        assert "coretools_mcp_" not in text


@pytest.mark.requirement("metrics.token")
def test_without_tokens_pages_of_other_sites_cannot_read_metrics(root: Path, tmp_path: Path) -> None:
    with metrics_server(root, tmp_path) as url:
        assert get(url)[0] == 200
        assert get(url, Host="attacker.example")[0] == 421
        assert get(url, Origin="http://attacker.example")[0] == 403


@pytest.mark.requirement("metrics.text")
def test_http_refusals_are_counted_by_their_status(root: Path, tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text(TOKEN)
    token.chmod(0o600)
    settings = {"http": {"tokens": {"scraper": {"file": str(token)}}}, "limits": {"requestBytes": 1_024}}
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with metrics_server(root, tmp_path, **settings) as url:
        for _ in range(3):
            assert get(url)[0] == 401
        assert get(url, f"/{SECRET}", **bearer)[0] == 404
        assert get(url, Host="attacker.example", **bearer)[0] == 421
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=CEILING)
        connection.request("POST", "/mcp", "x" * 2_000, {**bearer, "Content-Type": "application/json"})
        assert connection.getresponse().status == 413
        connection.close()
        assert get(url, "/readyz")[0] == 200
        text = get(url, **bearer)[1]
    assert SECRET not in text
    refusals = {
        dict(labels)["status"]: count
        for (name, labels), count in parse_samples(text).items()
        if name == "coretools_mcp_http_refusals_total"
    }
    assert refusals == {"401": 3, "404": 1, "421": 1, "413": 1}


@pytest.mark.requirement("metrics.off")
def test_there_are_no_metrics_where_nobody_asks_for_them(root: Path, tmp_path: Path) -> None:
    with http_server(root, write_config(tmp_path, {}), own_state()) as url:
        assert get(url)[0] == 404


@pytest.mark.requirement("metrics.text")
def test_a_scrape_counts_what_was_done(root: Path, tmp_path: Path) -> None:
    servers = {"up": stdio_upstream(trust=True), "gone": {"command": "/does/not/exist"}}
    (root / "a.txt").write_text("x")
    with (
        metrics_server(root, tmp_path, mcpServers=servers) as url,
        initialized_client(connect_http(url, "http"), HANDSHAKES[-1], capabilities=FORM) as client,
    ):
        client.tools()
        call_tool(client, "up__echo", text=SECRET)
        call_tool(client, "up__fail")
        call_tool(client, "up__protocol_error")
        call_tool(client, "read_file", absolute_path=f"/{SECRET}")
        call_tool(client, SECRET)
        client.receive(client.request(SECRET))
        text = get(url)[1]
    assert SECRET not in text
    samples = parse_samples(text)
    assert {name for name, _ in samples} >= {name for name, (kind, _, _) in METRICS.items() if kind == "gauge"}
    assert value_of(samples, "coretools_mcp_requests_total", method="initialize", outcome="ok") == 1
    assert value_of(samples, "coretools_mcp_requests_total", method=OTHER, outcome="error") == 1
    assert value_of(samples, "coretools_mcp_request_duration_seconds_count", method="tools/call") == 5
    assert value_of(samples, "coretools_mcp_tool_calls_total", tool="up__echo", outcome="ok") == 1
    assert value_of(samples, "coretools_mcp_tool_calls_total", tool="up__fail", outcome="failed") == 1
    assert value_of(samples, "coretools_mcp_tool_calls_total", tool="up__protocol_error", outcome="error") == 1
    assert value_of(samples, "coretools_mcp_tool_calls_total", tool=OTHER, outcome="error") == 1
    assert value_of(samples, "coretools_mcp_refusals_total", code="path_not_in_workspace") == 1
    assert value_of(samples, "coretools_mcp_refusals_total", code="-32601") == 1
    assert value_of(samples, "coretools_mcp_upstream_requests_total", upstream="up", outcome="failed") == 1
    assert value_of(samples, "coretools_mcp_upstream_state", upstream="up", state="connected") == 1
    assert value_of(samples, "coretools_mcp_upstream_state", upstream="gone", state="connected") == 0
    assert value_of(samples, "coretools_mcp_upstream_state", upstream="gone", state="failed") == 1
    assert value_of(samples, "coretools_mcp_sessions") == 1
    assert value_of(samples, "coretools_mcp_questions_open") == 0
    assert value_of(samples, "process_resident_memory_bytes") > 1_000_000
    assert value_of(samples, "process_open_fds") > 3


class EmptyServer:
    """A server without clients and upstreams, with only the attributes that a scrape reads."""

    class pool:  # noqa: N801 - an attribute
        upstreams = ()
        sessions: Mapping[Any, Any] = {}

    def all(self) -> tuple[()]:
        return ()

    def connections(self) -> tuple[()]:
        return ()


@pytest.mark.requirement("metrics.labels")
async def test_floods_of_names_and_codes_end_in_few_series_whose_labels_are_escaped() -> None:
    metrics = Metrics()
    odd_name = 'a"b\\c\nd'
    for number in range(5_000):
        operation = Operation("tools/call", tool=f"{odd_name}{number}", error=str(-number))
        operation.end()
        metrics.count_request(operation)
    metrics.count_upstream_request(odd_name, Operation("tools/call"))
    empty_server: Any = EmptyServer()
    samples = parse_samples(await metrics.text(empty_server, empty_server))
    by_tool = {labels: count for (name, labels), count in samples.items() if name == "coretools_mcp_tool_calls_total"}
    assert len(by_tool) == MAX_NAMES + 1
    assert by_tool[frozenset({("tool", OTHER), ("outcome", "error")})] == 5_000 - MAX_NAMES
    assert sum(name == "coretools_mcp_refusals_total" for name, _ in samples) == MAX_CODES + 1
    assert any(("upstream", odd_name.replace("\n", "n")) in labels for _, labels in samples)


@pytest.mark.requirement("metrics.questions")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_questions_that_were_asked_and_answered_are_counted(root: Path, tmp_path: Path, revision: str) -> None:
    with metrics_server(root, tmp_path) as url:
        with initialized_client(connect_http(url, "http"), revision, capabilities=FORM) as client:
            call = client.call("write_file", {"file_path": str(root / "new.txt"), "content": "x"})
            question = call.next_question()
            samples = parse_samples(get(url)[1])
            assert value_of(samples, "coretools_mcp_questions_open") == (not client.is_modern)
            call.answer(question, {"action": "accept", "content": {"decision": "once"}})
            assert call.next_result().code is None
        samples = parse_samples(get(url)[1])
    for event in ("asked", "answered"):
        assert value_of(samples, "coretools_mcp_questions_total", event=event) == 1
    assert value_of(samples, "coretools_mcp_questions_open") == 0


@pytest.mark.requirement("metrics.dashboard")
def test_each_metric_and_label_of_the_grafana_dashboard_exists() -> None:
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) >= 10
    series_names = {series for name in METRICS for series in (name, f"{name}_bucket", f"{name}_sum", f"{name}_count")}
    labels = {label for _, of_metric, _ in METRICS.values() for label in of_metric} | {"le", "instance", "job"}
    for query in queries:
        names = set(re.findall(r"\b(?:coretools_mcp|process)_\w+", query))
        assert names, query
        assert names <= series_names, query
        group_labels = {name for group in re.findall(r"by \(([^)]*)\)", query) for name in re.split(r",\s*", group)}
        assert group_labels <= labels, query
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
