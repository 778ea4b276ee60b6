"""Every answer that a client may give to a question, as it stands on the wire."""

from __future__ import annotations

from typing import Any

Reply = Any


def accepted(**fields: Any) -> dict[str, Any]:
    """An accepted form."""
    return {"action": "accept", "content": fields}


ONCE = accepted(decision="once")
ALWAYS = accepted(decision="always")

REFUSALS: dict[str, Reply] = {
    "deny": accepted(decision="deny"),
    "deny with a reason": accepted(decision="deny", reason="not today"),
    "decline": {"action": "decline"},
    "decline with a decision": {"action": "decline", "content": {"decision": "once"}},
    "cancel": {"action": "cancel"},
    "cancel with a decision": {"action": "cancel", "content": {"decision": "once"}},
}
"""What is well formed, and no consent."""

EMPTY: dict[str, Reply] = {
    "no content": {"action": "accept"},
    "null content": {"action": "accept", "content": None},
    "empty content": accepted(),
    "only a reason": accepted(reason="fine"),
    "only a text": accepted(content="other\n"),
}
"""Accepted without a decision."""

NO_DECISION: dict[str, Reply] = {
    "unknown decision": accepted(decision="yes"),
    "decision in capitals": accepted(decision="ONCE"),
    "decision with a blank": accepted(decision="once "),
    "empty decision": accepted(decision=""),
    "null decision": accepted(decision=None),
    "true": accepted(decision=True),
    "a number": accepted(decision=1),
    "a list": accepted(decision=["once"]),
    "a decision not offered": accepted(decision="save"),
    "a decision for servers": accepted(decision="always_server"),
    "the title": accepted(decision="Allow once"),
}
"""Accepted with a decision that is none of those offered."""

WRONG_FIELDS: dict[str, Reply] = {
    "reason is a number": accepted(decision="once", reason=5),
    "reason is false": accepted(decision="once", reason=False),
    "reason is a list": accepted(decision="once", reason=[]),
    "text is a number": accepted(decision="once", content=5),
    "text is zero": accepted(decision="once", content=0),
    "text is false": accepted(decision="once", content=False),
    "text is a list": accepted(decision="once", content=["x"]),
    "text is too long": accepted(decision="once", content="x" * 70_000),
}
"""Accepted with a valid decision beside a field of another type or size than the form's."""

NO_FORM: dict[str, Reply] = {
    "unknown action": {"action": "approve", "content": {"decision": "once"}},
    "action in capitals": {"action": "ACCEPT", "content": {"decision": "once"}},
    "null action": {"action": None, "content": {"decision": "once"}},
    "true action": {"action": True, "content": {"decision": "once"}},
    "no action": {"content": {"decision": "once"}},
    "no members": {},
    "content is a list": {"action": "accept", "content": ["once"]},
    "content is a text": {"action": "accept", "content": "once"},
    "decision is an object": accepted(decision={"const": "once"}),
    "a nested field": accepted(decision="once", more={"a": 1}),
}
"""Objects that are no answer to a form at all."""

NO_OBJECT: dict[str, Reply] = {"null": None, "a text": "accept", "a list": [ONCE], "true": True}
"""What is not even an object."""
