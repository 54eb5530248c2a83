"""Request bodies for tests: the least there can be, with fields added, decoded or refused."""

import json
from typing import Any

import pytest

from turnlog.adapters.openai.limits import RequestLimits
from turnlog.adapters.openai.request import decode_request
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.inputs import Piece
from turnlog.domain.request import TurnRequest

LEAST: dict[str, Any] = {"model": "tiny", "input": "hi"}
SAY: dict[str, Any] = {"role": "user", "content": "hi"}
FUNCTION: dict[str, Any] = {"type": "function", "name": "add", "parameters": {"type": "object"}}
ADD = {**FUNCTION, "description": None, "strict": None}
"""The function as it is echoed."""


DEFAULT_LIMITS = RequestLimits()


def decode(limits: RequestLimits = DEFAULT_LIMITS, /, **fields: Any) -> TurnRequest:
    """The command of a body with these fields added to the least there can be."""
    return decode_request(json.dumps(LEAST | fields).encode(), {}, limits)


def refusal(limits: RequestLimits = DEFAULT_LIMITS, /, **fields: Any) -> InvalidRequestError:
    """How such a body is refused."""
    return refused(json.dumps(LEAST | fields).encode(), limits)


def refused(body: bytes, limits: RequestLimits = DEFAULT_LIMITS) -> InvalidRequestError:
    """How a body is refused."""
    with pytest.raises(InvalidRequestError) as caught:
        decode_request(body, {}, limits)
    return caught.value


def pieces(*items: Any) -> tuple[Piece, ...]:
    """The pieces of a request with these items after a user's message."""
    return decode(input=[SAY, *items]).input[1:]
