"""Questions of upstreams reach the person behind the client and nobody else, and the answers get back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.upstreams.session.upstream_questions import MAX_OPEN
from tests.hostile.lying import over_stdio
from tests.interaction.relay.clients import (
    ALL,
    UPSTREAM_KEY,
    AnswerError,
    Json,
    answer_with,
    call_params,
    proxy_client,
    scripted_entry,
    stdio_entry,
    text_or_json,
    wait_for_file,
)
from tests.interaction.relay.conftest import Entry
from tests.interaction.relay.eras import by_era_each_way, by_eras, by_eras_each_way, by_upstream_each_way
from tests.interaction.relay.questions import (
    ANSWERS,
    FORM,
    ROOTS,
    ROOTS_RESULT,
    SAMPLING,
    SAMPLING_RESULT,
    URL,
    call_until_question,
)
from tests.waiting import until

pytestmark = pytest.mark.anyio

SDK_SERVER = """
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

class Name(BaseModel):
    name: str

server = MCPServer("asks")

@server.tool()
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Your name?", Name)).action

server.run()
"""


@pytest.mark.requirement("relay.questions")
async def test_the_error_of_a_server_that_cannot_ask_in_its_revision_names_the_setting_that_lets_it_ask(
    tmp_path: Path,
) -> None:
    script = tmp_path / "server.py"
    script.write_text(SDK_SERVER)
    entry: Json = {"command": sys.executable, "args": [str(script)], "trust": True}
    async with proxy_client(tmp_path, {"up": entry}, "modern") as client:
        with pytest.raises(AnswerError, match=r"protocol\W+legacy\W+ in its entry \(mcpServers\.up\)"):
            await client.call("up__ask")
    answer = answer_with(elicitation=ANSWERS["accept"])
    async with proxy_client(tmp_path, {"up": {**entry, "protocol": "legacy"}}, "modern", answer=answer) as client:
        assert (await client.call_and_parse("up__ask")) == "accept"


@pytest.mark.requirement("relay.questions")
@pytest.mark.usefixtures("each_way")
@by_eras
async def test_a_form_and_a_link_are_shown_with_the_servers_alias_and_every_answer_gets_back(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era) as client:
        for answer in ANSWERS.values():
            client.answer = answer_with(elicitation=answer)
            client.questions.clear()
            assert await client.call_and_parse("up__ask", {"questions": [FORM]}) == [answer]
            ((method, params),) = client.questions
            assert method == "elicitation/create"
            assert params["message"] == "[up] Who<U+202E>are you?"
            assert params["_meta"][UPSTREAM_KEY] == {"server": "up"}
            assert params["requestedSchema"] == FORM["params"]["requestedSchema"]
            assert params["x-unknown"] == {"a": 1}
        client.questions.clear()
        assert await client.call_and_parse("up__ask", {"questions": [URL]}) == [ANSWERS["cancel"]]
        ((_, params),) = client.questions
        assert (params["mode"], params["url"]) == ("url", "https://example.org/")
        assert params["message"] == "[up] Look\nThe link leads to the host example.org."


@pytest.mark.requirement("relay.questions")
@pytest.mark.usefixtures("each_way")
@by_eras
async def test_sampling_and_roots_are_asked_for_too(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    answer = answer_with(sampling=SAMPLING_RESULT, roots=ROOTS_RESULT, elicitation=ANSWERS["accept"])
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era, answer=answer) as client:
        answers = await client.call_and_parse("up__ask", {"questions": [SAMPLING, ROOTS, FORM]})
        assert answers == [SAMPLING_RESULT, ROOTS_RESULT, ANSWERS["accept"]]
        sampling_params = next(params for method, params in client.questions if method == "sampling/createMessage")
        assert sampling_params.pop("_meta")[UPSTREAM_KEY] == {"server": "up"}
        assert sampling_params == SAMPLING["params"]


@pytest.mark.requirement("relay.questions")
@pytest.mark.usefixtures("each_way")
@by_eras
async def test_an_upstream_may_ask_again_and_in_prompts(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    names = iter(["Ada", "Bea", "Cleo"])

    def answer(method: str, params: Json) -> Json:
        return {"action": "accept", "content": {"name": next(names)}}

    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era, answer=answer) as client:
        answers = await client.call_and_parse("up__ask_twice", {"questions": [FORM]})
        assert [item["content"]["name"] for item in answers] == ["Ada", "Bea"]
        prompt = await client.ask_in_rounds("prompts/get", {"name": "up__greet", "arguments": {"who": "?"}})
        assert "Cleo" in prompt["messages"][0]["content"]["text"]


@pytest.mark.requirement("relay.announced")
@pytest.mark.parametrize(
    "capabilities", [{}, {"elicitation": {}}, {"elicitation": {"form": {}}}, ALL, {"sampling": {"x": 1}}]
)
@by_eras_each_way
async def test_nothing_is_announced_to_an_upstream_that_the_client_has_not_announced(
    client_era: str, upstream_era: str, capabilities: Json, remote: Entry, tmp_path: Path
) -> None:
    entry = remote(upstream_era)
    answer = answer_with(sampling=SAMPLING_RESULT, roots=ROOTS_RESULT, elicitation=ANSWERS["accept"])
    async with proxy_client(tmp_path, {"up": entry}, client_era, capabilities=capabilities, answer=answer) as client:
        upstream_capabilities = (await client.call_and_parse("up__whoami"))["capabilities"]
        assert set(upstream_capabilities) == set(capabilities)
        assert set(upstream_capabilities.get("elicitation", {})) <= set(capabilities.get("elicitation", {}))
        answers = await client.call_and_parse("up__ask", {"questions": [FORM, URL, SAMPLING]})
        supports_forms = "elicitation" in capabilities
        assert answers == [
            ANSWERS["accept" if supports_forms else "cancel"],
            ANSWERS["accept" if "url" in capabilities.get("elicitation", {}) else "cancel"],
            SAMPLING_RESULT if "sampling" in capabilities else UNKNOWN[upstream_era],
        ]
        assert len(client.questions) == supports_forms + ("url" in capabilities.get("elicitation", {})) + (
            "sampling" in capabilities
        )


@pytest.mark.requirement("relay.announced")
@by_eras_each_way
async def test_a_request_for_a_2025_task_is_not_passed_on_and_gets_the_result(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    capabilities: Json = {"sampling": {}, "tasks": {"list": {}, "requests": {"sampling": {"createMessage": {}}}}}
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era, capabilities=capabilities) as client:
        assert set((await client.call_and_parse("up__whoami"))["capabilities"]) == {"sampling"}
        params = {**call_params("up__echo", {}), "task": {"ttl": 60_000}}
        upstream_params = (await client.request("tools/call", params))["structuredContent"]["params"]
        assert upstream_params["name"] == "echo"
        assert "task" not in upstream_params


UNKNOWN: dict[str, Json] = {"handshake": {"error": -32601}, "modern": {}}
"""The answer that an upstream gets to a method that asks nothing, and to a question without a refusal of its own."""


def url_question(url: Any) -> Json:
    return {**URL, "params": {**URL["params"], "url": url}}


INVALID_METHODS: list[Json] = [
    {"method": "tools/call", "params": {"name": "up__echo"}},
    {"method": "coretools-mcp/confirm", "params": {}},
]

FORBIDDEN_QUESTIONS: list[Json] = [
    *(
        url_question(url)
        for url in ("javascript:alert(1)", "file:///etc/passwd", "vscode://x", "//example.org/", " https://a")
    ),
    *(url_question(url) for url in ("https://", "https://ex\u202eample.org/", "https://a\\b", "http://a\nb", None, 5)),
    {**FORM, "params": {**FORM["params"], "mode": "odd"}},
    {**FORM, "params": {**FORM["params"], "message": "x" * 300_000}},
]


@pytest.mark.requirement("relay.announced")
@by_eras_each_way
async def test_methods_that_ask_nothing_and_forbidden_links_and_forms_are_refused_without_asking_the_client(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    refusals = [UNKNOWN[upstream_era]] * len(INVALID_METHODS) + [ANSWERS["cancel"]] * len(FORBIDDEN_QUESTIONS)
    answer = answer_with(elicitation=ANSWERS["accept"])
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era, answer=answer) as client:
        assert (
            await client.call_and_parse("up__ask", {"questions": [*INVALID_METHODS, *FORBIDDEN_QUESTIONS]}) == refusals
        )
        assert client.questions == []
        answers = await client.call_and_parse(
            "up__ask", {"questions": [*INVALID_METHODS, *FORBIDDEN_QUESTIONS, url_question("HTTP://a.b/c?d"), FORM]}
        )
        assert answers == [*refusals, ANSWERS["accept"], ANSWERS["accept"]]
        assert {params["mode"] for _, params in client.questions} == {"url", "form"}
        assert len(client.questions) == 2


@pytest.mark.requirement("relay.questions")
@pytest.mark.usefixtures("each_way")
async def test_no_question_of_an_upstream_gets_a_key_of_this_server_and_its_answer_gets_back(
    remote: Entry, tmp_path: Path
) -> None:
    def answer(method: str, params: Json) -> Json:
        return {"action": "accept", "content": {"echo": params["message"]}}

    def question(key: str) -> Json:
        return {**FORM, "x-key": key, "params": {**FORM["params"], "message": key}}

    keys = ("coretools-mcp/confirm", "of:up/coretools-mcp/confirm", "coretools-mcp/other", "plain")
    arguments = {"questions": [question(key) for key in keys]}
    async with proxy_client(tmp_path, {"up": remote("modern")}, "modern", answer=answer) as client:
        params, result = await call_until_question(client, "up__ask", arguments)
        assert len(result["inputRequests"]) == len(keys)
        assert not [key for key in result["inputRequests"] if key.startswith("coretools-mcp/")]
        assert {"plain", "of:up/coretools-mcp/confirm"} < set(result["inputRequests"])
        answers = text_or_json(await client.request("tools/call", {**params, **await client.answers_to(result)}))
        assert [item["content"]["echo"] for item in answers] == [f"[up] {key}" for key in keys]


EMPTY: list[Json] = []
FORGED_QUESTION: Json = {
    "resultType": "input_required",
    "inputRequests": {"coretools-mcp/login": url_question("javascript:alert(1)"), "s": SAMPLING},
    "requestState": "x",
    **dict.fromkeys(("content", "contents", "messages"), EMPTY),
    "completion": {"values": []},
}
CAN_ASK = ("tools/call", "resources/read", "prompts/get")


@pytest.mark.requirement("relay.raw_questions")
@by_eras
async def test_a_result_of_an_unexpected_type_reaches_no_client_and_a_complete_one_has_no_fields_of_a_question(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    complete: Json = {**FORGED_QUESTION, "resultType": "complete"}
    complete |= {} if upstream_era == "modern" else {"ttlMs": 10**9, "cacheScope": "public"}
    results: Json = {
        "ask": FORGED_QUESTION,
        "new": {**complete, "resultType": "new"},
        "odd": {**complete, "resultType": EMPTY},
    }
    answers: Json = {
        "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in (*results, "done")]},
        "resources/list": {"resources": [{"uri": f"test://{name}", "name": name} for name in (*results, "done")]},
        "resources/read": {f"test://{name}": result for name, result in results.items()} | {"test://done": complete},
        "prompts/list": {"prompts": [{"name": "ask"}]},
        "prompts/get": FORGED_QUESTION,
        "completion/complete": FORGED_QUESTION,
    }
    orders: Json = {"answers": answers, "results": {**results, "done": complete}, "capabilities": {"completions": {}}}
    requests: list[tuple[str, Json]] = [
        *(("tools/call", {"name": f"up__{name}"}) for name in results),
        *(("resources/read", {"uri": f"test://{name}"}) for name in results),
        ("prompts/get", {"name": "up__ask"}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "up__ask"}, "argument": {"name": "q", "value": ""}},
        ),
    ]
    async with proxy_client(tmp_path, {"up": scripted_entry("up", upstream_era, **orders)}, client_era) as client:
        for method, params in requests:
            if upstream_era == "modern" and method in CAN_ASK and "ask" in str(params):
                continue  # a valid question, which other tests cover
            try:
                result = await client.request(method, params)
            except AnswerError as error:
                message = error.error["message"]
            else:
                assert result["isError"], (method, params)
                message = result["content"][0]["text"]
            assert message.startswith("The server up gave no usable answer"), (method, params)
        for method, params in (("tools/call", {"name": "up__done"}), ("resources/read", {"uri": "test://done"})):
            result = await client.request(method, params)
            assert result.keys() & FORGED_QUESTION.keys() >= {"content", "contents"}
            assert not result.keys() & {"inputRequests", "requestState"}
            assert result.get("cacheScope") != "public"


@pytest.mark.requirement("relay.raw_questions")
@pytest.mark.parametrize("client_era", ["handshake", "modern"])
async def test_a_request_of_a_2026_upstream_during_a_call_is_refused_and_the_call_is_sent_once(
    client_era: str, tmp_path: Path
) -> None:
    tale = tmp_path / "tale"
    question = {"id": "q", "method": "elicitation/create", "params": FORM["params"]}
    tools = {"tools/list": {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}}
    entry = scripted_entry("up", "modern", says={"go": [question]}, tale=str(tale), answers=tools)
    async with proxy_client(tmp_path, {"up": entry}, client_era, answer=answer_with(elicitation={})) as client:
        assert "requestState" not in (await client.call_and_parse("up__go"))["params"]
        assert client.questions == []
        await until(lambda: "" in tale.read_text().split("\n")[:-1])  # the refusal, which has no method
    assert tale.read_text().count("tools/call") == 1


@pytest.mark.requirement("relay.visible_forms")
@by_eras_each_way
async def test_a_form_hides_nothing_and_its_names_and_choices_stay_as_they_are(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    odd_text, marked_text = "a\u202eb", "a<U+202E>b"
    fields: Json = {
        "text": {"type": "string", "title": odd_text, "description": odd_text, "default": odd_text},
        odd_text: {"type": "boolean"},
        "old": {"type": "string", "enum": [odd_text, "c"], "enumNames": [odd_text, "c"], "default": odd_text},
        "new": {"type": "string", "oneOf": [{"const": odd_text, "title": odd_text}], "default": odd_text},
        "title": {"type": "array", "items": {"anyOf": [{"const": odd_text, "title": odd_text}]}},
    }
    question = {**FORM, "params": {**FORM["params"], "requestedSchema": {"type": "object", "properties": fields}}}
    answer = answer_with(elicitation=ANSWERS["accept"])
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era, answer=answer) as client:
        assert await client.call_and_parse("up__ask", {"questions": [question]}) == [ANSWERS["accept"]]
        ((_, params),) = client.questions
    assert params["requestedSchema"]["properties"] == {
        "text": {"type": "string", "title": marked_text, "description": marked_text, "default": marked_text},
        odd_text: {"type": "boolean", "title": marked_text},
        "old": {"type": "string", "enum": [odd_text, "c"], "enumNames": [marked_text, "c"], "default": odd_text},
        "new": {"type": "string", "oneOf": [{"const": odd_text, "title": marked_text}], "default": odd_text},
        "title": {"type": "array", "items": {"anyOf": [{"const": odd_text, "title": marked_text}]}},
    }


@pytest.mark.requirement("relay.questions")
@by_eras_each_way
async def test_questions_of_concurrent_calls_are_all_answered(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    def answer(method: str, params: Json) -> Json:
        return {"action": "accept", "content": {"echo": params["message"]}}

    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era, answer=answer) as client:
        answers: dict[int, Any] = {}

        async def call(number: int) -> None:
            question = {**FORM, "params": {**FORM["params"], "message": f"question {number}"}}
            answers[number] = await client.call_and_parse("up__ask", {"questions": [question]})

        async with anyio.create_task_group() as calls:
            for number in range(4):
                calls.start_soon(call, number)
        assert {number: answer[0]["content"]["echo"] for number, answer in answers.items()} == {
            number: f"[up] question {number}" for number in range(4)
        }
        assert len(client.questions) == 4


@pytest.mark.requirement("relay.suspended")
@pytest.mark.usefixtures("each_way")
async def test_a_suspended_call_is_cancelled_after_its_time_limit_and_a_late_answer_is_refused(
    remote: Entry, tmp_path: Path
) -> None:
    settings = {"confirmation": {"timeout": 300}}
    answer = answer_with(elicitation=ANSWERS["accept"])
    async with proxy_client(
        tmp_path, {"up": remote("handshake")}, "modern", settings=settings, answer=answer
    ) as client:
        mark = tmp_path / "parked"
        params, result = await call_until_question(client, "up__ask", {"questions": [FORM], "mark": str(mark)})
        await wait_for_file(mark.with_suffix(".cancelled"))
        with pytest.raises(AnswerError) as error_info:
            await client.request("tools/call", {**params, **await client.answers_to(result)})
        assert error_info.value.error["code"] == -32602
        assert "Send the request again" in error_info.value.error["message"]
        params, result = await call_until_question(client, "up__ask", {"questions": [FORM]})
        assert text_or_json(await client.request("tools/call", {**params, **await client.answers_to(result)})) == [
            ANSWERS["accept"]
        ]


@pytest.mark.requirement("relay.suspended")
@by_upstream_each_way
async def test_the_state_of_a_round_counts_once_and_only_for_the_same_call(
    upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    answer = answer_with(elicitation=ANSWERS["accept"])
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, "modern", answer=answer) as client:

        async def check_refusal(params: Json) -> None:
            with pytest.raises(AnswerError) as error_info:
                await client.request("tools/call", params)
            assert error_info.value.error["code"] == -32602
            assert "requestState" in error_info.value.error["message"]

        params, result = await call_until_question(client, "up__ask", {"questions": [FORM]})
        answers = await client.answers_to(result)
        state = answers["requestState"]
        await check_refusal({**call_params("up__ask", {"questions": [URL]}), **answers})
        await check_refusal({**call_params("up__wait", {"questions": [FORM]}), **answers})
        await check_refusal({**params, **answers, "requestState": state[:-2] + ("aa" if state[-2:] != "aa" else "bb")})
        assert text_or_json(await client.request("tools/call", {**params, **answers})) == [ANSWERS["accept"]]
        await check_refusal({**params, **answers})


@pytest.mark.requirement("relay.suspended")
@pytest.mark.usefixtures("each_way")
async def test_a_question_that_is_not_answered_in_the_next_round_is_asked_again(remote: Entry, tmp_path: Path) -> None:
    answer = answer_with(elicitation=ANSWERS["accept"])
    async with proxy_client(tmp_path, {"up": remote("handshake")}, "modern", answer=answer) as client:
        params, result = await call_until_question(client, "up__ask", {"questions": [FORM]})
        repeated_result = await client.request("tools/call", {**params, "requestState": result["requestState"]})
        assert repeated_result["inputRequests"] == result["inputRequests"]
        assert text_or_json(
            await client.request("tools/call", {**params, **await client.answers_to(repeated_result)})
        ) == [ANSWERS["accept"]]


@pytest.mark.requirement("relay.suspended")
@pytest.mark.usefixtures("each_way")
async def test_a_cancelled_later_round_ends_the_work_of_the_upstream(tmp_path: Path) -> None:
    async with proxy_client(
        tmp_path, {"up": stdio_entry("handshake")}, "modern", answer=answer_with(elicitation=ANSWERS["accept"])
    ) as client:
        mark = tmp_path / "mark"
        params, result = await call_until_question(
            client, "up__ask_then_wait", {"questions": [FORM], "mark": str(mark)}
        )
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.request, "tools/call", {**params, **await client.answers_to(result)})
            await wait_for_file(mark.with_suffix(".began"))
            calls.cancel_scope.cancel()
        await wait_for_file(mark.with_suffix(".cancelled"))


class SilentPerson:
    """Answers no question, and counts the questions that are withdrawn."""

    def __init__(self) -> None:
        self.withdrawals = 0

    async def __call__(self, method: str, params: Json) -> Json | None:
        try:
            await anyio.sleep_forever()
        finally:
            self.withdrawals += 1


REFUSAL_LINE = 'asked {"action": "cancel"}\n'
"""The line that the upstream writes to its file for this answer."""


@pytest.mark.requirement("relay.void_questions")
@pytest.mark.usefixtures("each_way")
async def test_questions_of_cancelled_calls_are_withdrawn_even_if_the_upstream_leaves_them_open(tmp_path: Path) -> None:
    """Cancel more calls than there may be open questions; the question of the next call is still answered."""
    tale, person = tmp_path / "tale", SilentPerson()
    entry = over_stdio("ask:elicitation/create", env={"TALE": str(tale)}, protocol="legacy")
    async with proxy_client(tmp_path, {"up": entry}, "handshake", answer=person) as client:
        for count in range(1, MAX_OPEN + 2):
            async with anyio.create_task_group() as calls:
                calls.start_soon(client.call, "up__echo")
                await client.wait_for_questions(count)
                calls.cancel_scope.cancel()
            await until(lambda count=count: tale.read_text().count(REFUSAL_LINE) == count == person.withdrawals)
        client.answer = answer_with(elicitation=ANSWERS["decline"])
        assert (await client.call_and_parse("up__echo", {}))["result"] == ANSWERS["decline"]


@pytest.mark.requirement("relay.void_questions")
@pytest.mark.usefixtures("each_way")
async def test_a_question_ends_with_the_answer_of_the_last_call_that_was_open_when_it_came(tmp_path: Path) -> None:
    """The first call makes the upstream ask; the second one is answered before it."""
    tale, go, person = tmp_path / "tale", tmp_path / "go", SilentPerson()
    deeds = ("put-off", "ask-and-answer:elicitation/create", f"wait:{go}")
    entry = over_stdio(*deeds, env={"TALE": str(tale)}, protocol="legacy")
    async with proxy_client(tmp_path, {"up": entry}, "handshake", answer=person) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.call, "up__echo")
            await until(lambda: tale.exists() and "call\n" in tale.read_text())
            calls.start_soon(client.call, "up__echo")
            await client.wait_for_questions()
            go.touch()
            await client.wait_for_notifications("answer", 2)
            await client.request("ping")
            assert person.withdrawals == 0, "the other open call may have caused the question"
            calls.start_soon(client.call, "up__echo")
        await until(lambda: person.withdrawals > 0 and REFUSAL_LINE in tale.read_text())


@pytest.mark.requirement("relay.questions")
@by_upstream_each_way
async def test_an_open_question_is_withdrawn_when_its_call_is_cancelled(
    upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    """In the modern era, a question is part of a result, so only clients of the handshake era have open questions."""
    withdrawn_event = anyio.Event()

    async def answer(method: str, params: Json) -> Json | None:
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn_event.set()

    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, "handshake", answer=answer) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.call, "up__ask", {"questions": [FORM]})
            await client.wait_for_questions()
            calls.cancel_scope.cancel()
        await withdrawn_event.wait()
        assert (await client.call_and_parse("up__whoami"))["pid"]


HOST_SENTENCES = {
    "https://example.org": "leads to the host example.org.",
    "http://Example.ORG:8080/a?b#c": "leads to the host Example.ORG:8080.",
    "https://bank.example@evil.example/": "leads to the host evil.example.",
    "https://ex\u0430mple.org/": "is xn--exmple-4nf.org.",
    "https://[::1]/x": "leads to the host [::1].",
}


@pytest.mark.requirement("relay.addresses")
@by_eras_each_way
async def test_a_link_names_its_host_and_has_an_id_if_the_clients_revision_has_ids(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    answer = answer_with(elicitation=ANSWERS["accept"])
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era, answer=answer) as client:
        for url, host_sentence in HOST_SENTENCES.items():
            for id_field in ({}, {"elicitationId": "e1"}):
                client.questions.clear()
                question = {"mode": "url", "message": "Look", "url": url, **id_field}
                await client.call_and_parse(
                    "up__ask", {"questions": [{"method": "elicitation/create", "params": question}]}
                )
                ((_, params),) = client.questions
                assert params["url"] == url
                assert params["message"].startswith("[up] Look\n")
                assert params["message"].count("\n") == 1
                assert host_sentence in params["message"]
                if client.is_modern:
                    assert "elicitationId" not in params
                elif upstream_era == "handshake" and id_field:
                    assert params["elicitationId"] == "e1"
                else:
                    assert params["elicitationId"] not in ("", "e1")


@pytest.mark.requirement("relay.addresses")
@by_era_each_way
async def test_links_that_must_be_opened_before_a_call_are_shown_as_in_a_question(era: str, tmp_path: Path) -> None:
    links: list[Json] = [{"message": "Look", "url": url, "elicitationId": "e1"} for url in HOST_SENTENCES]
    links = [{**link, "mode": "url"} for link in links[1:]] + [links[0]]  # the mode is obvious
    forbidden_links = [
        {**links[0], "url": url} for url in ("file:///etc/passwd", "javascript:alert(1)", "https://a.example/\u202e", 7)
    ]
    error = {
        "code": -32042,
        "message": "First log in",
        "data": {"elicitations": [*forbidden_links, *links, None], "x-unknown": 1},
    }
    tools = {"tools": [{"name": "need", "inputSchema": {"type": "object"}}]}
    servers = {"up": scripted_entry("up", answers={"tools/list": tools}, errors={"need": error})}
    async with proxy_client(tmp_path, servers, era) as client:
        with pytest.raises(AnswerError) as error_info:
            await client.call_and_parse("up__need")
    async with proxy_client(tmp_path, servers, era, capabilities={"elicitation": {"form": {}}}) as client:
        with pytest.raises(AnswerError) as undeclared_error:
            await client.call_and_parse("up__need")
        assert undeclared_error.value.error["data"] == {"elicitations": [], "x-unknown": 1}
    relayed_error = error_info.value.error
    assert (relayed_error["code"], relayed_error["message"], relayed_error["data"]["x-unknown"]) == (
        -32042,
        "First log in",
        1,
    )
    assert [link["url"] for link in relayed_error["data"]["elicitations"]] == [link["url"] for link in links]
    for link in relayed_error["data"]["elicitations"]:
        assert link["elicitationId"] == "e1"
        assert link["message"].startswith("[up] Look\n")
        assert HOST_SENTENCES[link["url"]] in link["message"]


@pytest.mark.requirement("relay.addresses")
@by_era_each_way
async def test_the_end_of_a_url_question_is_told_in_the_handshake_era(era: str, tmp_path: Path) -> None:
    notification = {"method": "notifications/elicitation/complete", "params": {"elicitationId": "e1", "x-unknown": 1}}
    tools = {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}
    servers = {"up": scripted_entry("up", answers={"tools/list": tools}, says={"say": [notification]})}
    async with proxy_client(tmp_path, servers, era) as client:
        await client.call_and_parse("up__say")
        notifications = [params for method, params in client.messages if method == notification["method"]]
        assert notifications == ([] if client.is_modern else [notification["params"]])


SAMPLING_WITH_TOOLS: Json = {
    "method": "sampling/createMessage",
    "params": {
        **SAMPLING["params"],
        "tools": [{"name": "t", "inputSchema": {"type": "object"}, "x-unknown": 1}],
        "toolChoice": {"mode": "auto"},
    },
}
TOOL_USE: Json = {
    "role": "assistant",
    "model": "m",
    "stopReason": "toolUse",
    "content": [{"type": "tool_use", "id": "1", "name": "t", "input": {"a": 1}, "x-unknown": 2}],
}


@pytest.mark.requirement("relay.sampling")
@pytest.mark.parametrize("has_tools", [True, False])
@by_eras_each_way
async def test_sampling_with_tools_reaches_a_client_that_has_announced_it(
    client_era: str, upstream_era: str, has_tools: bool, remote: Entry, tmp_path: Path
) -> None:
    capabilities: Json = {"sampling": {"tools": {}, "context": {}} if has_tools else {}}
    answer = answer_with(sampling=TOOL_USE)
    async with proxy_client(
        tmp_path, {"up": remote(upstream_era)}, client_era, capabilities=capabilities, answer=answer
    ) as client:
        assert (await client.call_and_parse("up__whoami"))["capabilities"] == capabilities
        answers = await client.call_and_parse("up__ask", {"questions": [SAMPLING_WITH_TOOLS]})
        assert answers == [TOOL_USE if has_tools else UNKNOWN[upstream_era]]
        questions = [{key: value for key, value in params.items() if key != "_meta"} for _, params in client.questions]
        assert questions == ([SAMPLING_WITH_TOOLS["params"]] if has_tools else [])
