"""Target: the decoder of requests. A body becomes a command that can be stored, or a refusal."""

from random import Random

import msgspec

from tests.fuzz.bodies import raw_body
from turnlog.adapters.openai.request import decode_request
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.request import TurnRequest

LONGEST_SENTENCE = 2_000


def one(given: bytes) -> None:
    """Judge two bodies: the bytes themselves, and one drawn by them."""
    judge(given)
    judge(raw_body(Random(given)))


def judge(body: bytes) -> TurnRequest | None:
    """The command; None if the body is refused as it should be."""
    try:
        request = decode_request(body, {})
    except InvalidRequestError as error:
        assert len(error.message) < LONGEST_SENTENCE, error.message[:300]
        assert error.code
        return None
    msgspec.json.encode(request)
    return request
