"""Valid and invalid answers to a question, as JSON on the wire."""

from __future__ import annotations

from typing import Any

Reply = Any


def acceptance(**fields: Any) -> dict[str, Any]:
    """Return the answer of a client that accepts the form with these fields."""
    return {"action": "accept", "content": fields}


ONCE = acceptance(decision="once")
ALWAYS = acceptance(decision="always")

REFUSALS: dict[str, Reply] = {
    "deny": acceptance(decision="deny"),
    "deny with a reason": acceptance(decision="deny", reason="not today"),
    "decline": {"action": "decline"},
    "decline with a decision": {"action": "decline", "content": {"decision": "once"}},
    "cancel": {"action": "cancel"},
    "cancel with a decision": {"action": "cancel", "content": {"decision": "once"}},
}
"""Well-formed answers that give no consent."""

EMPTY: dict[str, Reply] = {
    "no content": {"action": "accept"},
    "null content": {"action": "accept", "content": None},
    "empty content": acceptance(),
    "only a reason": acceptance(reason="fine"),
    "only a text": acceptance(content="other\n"),
}
"""Accepted forms without a decision."""

NO_DECISION: dict[str, Reply] = {
    "unknown decision": acceptance(decision="yes"),
    "decision in capitals": acceptance(decision="ONCE"),
    "decision with a blank": acceptance(decision="once "),
    "empty decision": acceptance(decision=""),
    "null decision": acceptance(decision=None),
    "true": acceptance(decision=True),
    "a number": acceptance(decision=1),
    "a list": acceptance(decision=["once"]),
    "a decision not offered": acceptance(decision="save"),
    "a decision for servers": acceptance(decision="always_server"),
    "the title": acceptance(decision="Allow once"),
}
"""Accepted forms whose decision is not one of those offered."""

WRONG_FIELDS: dict[str, Reply] = {
    "reason is a number": acceptance(decision="once", reason=5),
    "reason is false": acceptance(decision="once", reason=False),
    "reason is a list": acceptance(decision="once", reason=[]),
    "text is a number": acceptance(decision="once", content=5),
    "text is zero": acceptance(decision="once", content=0),
    "text is false": acceptance(decision="once", content=False),
    "text is a list": acceptance(decision="once", content=["x"]),
    "text is too long": acceptance(decision="once", content="x" * 70_000),
}
"""Accepted forms with a valid decision, and another field whose type or size does not fit the form."""

NO_FORM: dict[str, Reply] = {
    "unknown action": {"action": "approve", "content": {"decision": "once"}},
    "action in capitals": {"action": "ACCEPT", "content": {"decision": "once"}},
    "null action": {"action": None, "content": {"decision": "once"}},
    "true action": {"action": True, "content": {"decision": "once"}},
    "no action": {"content": {"decision": "once"}},
    "no members": {},
    "content is a list": {"action": "accept", "content": ["once"]},
    "content is a text": {"action": "accept", "content": "once"},
    "decision is an object": acceptance(decision={"const": "once"}),
    "a nested field": acceptance(decision="once", more={"a": 1}),
}
"""Objects that are not valid answers to a form."""

NO_OBJECT: dict[str, Reply] = {"null": None, "a text": "accept", "a list": [ONCE], "true": True}
"""Answers that are not even objects."""
