"""A middleware for answers that are no answers: the model has to be told of them, not the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import mcp_types as types
from mcp.server.context import CallNext
from pydantic import ValidationError

from server.clients import RequestContext
from server.consent.confirmers import QUESTION_KEY
from server.consent.form import NO_ANSWER


async def let_malformed_answers_pass(ctx: RequestContext, call_next: CallNext) -> Any:
    """Let an answer to our question that fits no schema reach the handler, as one that is told to be none.

    The SDK would refuse the whole request with a protocol error, which no model reads.
    """
    params = ctx.params or {}
    if "inputResponses" not in params:
        return await call_next(ctx)
    given = params["inputResponses"]
    responses = dict(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else {}
    if QUESTION_KEY in responses and not _is_an_answer(responses[QUESTION_KEY]):
        responses[QUESTION_KEY] = {"action": "accept", "content": {NO_ANSWER: True}}
    return await call_next(replace(ctx, params={**params, "inputResponses": responses}))


def _is_an_answer(reply: Any) -> bool:
    try:
        types.ElicitResult.model_validate(reply, by_name=False)
    except ValidationError:
        return False
    return True
