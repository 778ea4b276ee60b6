"""Consent: only a yes to exactly this call lets it run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.hostile.any_server.adapters import Answer
from tests.hostile.any_server.scene import Scene, add_cases, case, check, excerpt
from tests.hostile.any_server.wire import Json, Person, accept, answer_of, decline, no_answer

GROUP = "consent"


async def check_means_no(scene: Scene, replies: Sequence[Json]) -> None:
    """Check that these answers mean no."""
    path = scene.file("a.txt", "as it was\n")
    for reply in replies:
        person = scene.answer_with(lambda _, reply=reply: reply)
        answer = await scene.call("write", path=path, content="changed\n")
        check(person.questions, "nobody was asked")
        check(path.read_text() == "as it was\n", f"the file was changed after {reply}")
        check(answer.is_error, f"it is not an error: {excerpt(answer)}")


add_cases(
    GROUP,
    check_means_no,
    [
        ("answers mean no", "decline, and cancel", [{"result": {"action": word}} for word in ("decline", "cancel")]),
        (
            "answers mean no", "accept without a decision, and with a decision that was not offered",
            [{"result": {"action": "accept", "content": content}} for content in ({}, {"decision": "yes!"})],
        ),
        (
            "answers mean no", "an invalid answer, and an error",
            [{"result": {"action": ["accept"]}}, {"error": {"code": -32603, "message": "the client has failed"}}],
        ),
    ],
    "write",
    "asks about writes",
)  # fmt: skip


async def _until_asked(person: Person) -> None:
    for _ in range(200):
        if person.questions:
            return
        await asyncio.sleep(0.05)
    check(False, "nobody was asked within 10 s")


async def _begin(scene: Scene, use: str, **arguments: Any) -> tuple[int, asyncio.Future[Json]]:
    identity = 5_000_000 + len(scene.answers)
    params = {"name": scene.tools.name(use), "arguments": scene.tools.arguments(use, **arguments)}
    return identity, await scene.connection.begin("tools/call", params, identity)


@case(GROUP, "counts once", "a yes that comes after the call was cancelled", "write", "asks about writes")
async def _(scene: Scene) -> None:
    path = scene.file("a.txt", "as it was\n")
    person = scene.answer_with(no_answer)
    identity, _future = await _begin(scene, "write", path=str(path), content="changed\n")
    await _until_asked(person)
    await scene.connection.ping()
    await scene.connection.notify("notifications/cancelled", {"requestId": identity})
    await asyncio.sleep(0.2)
    question = person.questions[0]
    reply = accept(question)
    assert reply is not None
    await scene.connection.send({"id": question["id"], **reply})
    await scene.connection.ping()
    await asyncio.sleep(0.2)
    check(path.read_text() == "as it was\n", "the file was changed")


@case(GROUP, "counts once", "a yes that comes twice", "write", "asks about writes")
async def _(scene: Scene) -> None:
    path = scene.file("a.txt", "as it was\n")
    person = scene.answer_with(no_answer)
    _, future = await _begin(scene, "write", path=str(path), content="changed\n")
    await _until_asked(person)
    question = person.questions[0]
    reply = accept(question)
    assert reply is not None
    for _ in range(3):
        await scene.connection.send({"id": question["id"], **reply})
    await answer_of(future, "a call of the tool that writes")
    check(path.read_text() == "changed\n", "the yes did not count")
    scene.answer_with(decline)
    await scene.call("write", path=path, content="changed again\n")
    check(path.read_text() == "changed\n", "the yes counted for another call")


@case(
    GROUP,
    "counts once",
    "a yes to one call does not cover the same call for another file",
    "write",
    "asks about writes",
)
async def _(scene: Scene) -> None:
    first, second = scene.file("a.txt", "one\n"), scene.file("b.txt", "two\n")
    person = scene.answer_with(accept)
    await scene.call("write", path=first, content="changed\n")
    check(len(person.questions) == 1, f"the person was asked {len(person.questions)} times")
    person = scene.answer_with(decline)
    await scene.call("write", path=second, content="changed\n")
    check(person.questions, "nobody was asked about the second file")
    check(second.read_text() == "two\n", "the second file was changed")


@case(GROUP, "counts once", "a file that changes while the question is open", "write", "asks about writes")
async def _(scene: Scene) -> None:
    path = scene.file("a.txt", "as it was\n")

    def change_then_accept(question: Json) -> Json | None:
        path.write_text("changed by a person meanwhile\n")
        return accept(question)

    scene.answer_with(change_then_accept)
    answer = await scene.call("write", path=path, content="changed\n")
    check(path.read_text() == "changed by a person meanwhile\n", "text that was not shown was overwritten")
    check(answer.is_error, f"it is not an error: {excerpt(answer)}")


@case(GROUP, "shown", "the question shows the file and the new text", "write", "asks about writes", says_no=True)
async def _(scene: Scene) -> None:
    path = scene.inside / "deep" / "named.txt"
    await scene.call("write", path=path, content="the new text\n")
    text = "\n".join(scene.connection.person.messages)
    check(str(path) in text and "the new text" in text, f"the question says {text[:120]!r}")


@case(
    GROUP,
    "shown",
    "a command is shown in full, with invisible characters made visible",
    "shell",
    "asks about commands",
    says_no=True,
)
async def _(scene: Scene) -> None:
    command = f"touch {scene.inside}/a\u202e\u200b\x1b[2J\U000e0041{' ' * 2000}; touch {scene.inside}/end-of-command"
    await scene.call("shell", command=command)
    text = "\n".join(scene.connection.person.messages)
    invisible = [character for character in "\u202e\u200b\x1b\U000e0041" if character in text]
    check(not invisible, f"the question contains {invisible!r}")
    check(not text or "end-of-command" in text, "the end of the command is not shown")


@case(
    GROUP,
    "always asked",
    "“always” for edits does not cover a file that makes an editor run something",
    "write",
    "asks about writes",
)
async def _(scene: Scene) -> None:
    def always(question: Json) -> Json | None:
        schema = question["params"]["requestedSchema"]
        for name, form in schema["properties"].items():
            for choice in form.get("oneOf", []):
                if str(choice.get("title", "")).startswith("Always allow edits"):
                    return {"result": {"action": "accept", "content": {name: choice["const"]}}}
        return accept(question)

    scene.answer_with(always)
    await scene.call("write", path=scene.file("a.txt", "one\n"), content="changed\n")
    person = scene.answer_with(decline)
    for name in (".vscode/tasks.json", ".git/hooks/pre-commit", ".mcp.json"):
        path = scene.inside / name
        await scene.call("write", path=path, content="{}\n")
        check(not path.exists(), f"{name} was written")
    check(len(person.questions) == 3, f"the person was asked {len(person.questions)} times about three such files")


@case(GROUP, "not asked", "reading and searching run without a question", "read", says_no=True)
async def _(scene: Scene) -> None:
    path = scene.file("a.txt", "needle\n")
    answers: list[Answer] = []
    calls: list[tuple[str, Json]] = [("read", {}), ("list", {}), ("grep", {"pattern": "n"}), ("find", {"pattern": "*"})]
    for use, arguments in calls:
        if scene.tools.has(use):
            answers.append(await scene.call(use, path=path if use == "read" else scene.inside, **arguments))
    check(not scene.connection.person.questions, f"the person was asked {len(scene.connection.person.questions)} times")
    check(not any(answer.is_error for answer in answers), "one of the calls failed")
