"""Bodies of requests, and queries; those of operators are strict, and refused by the field that is wrong."""

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from litestar import MediaType, Request

from turnlog.adapters.openai.limits import RequestLimits, check_form, check_json
from turnlog.app.http.errors import UnsupportedMediaTypeError
from turnlog.app.http.service import Service
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.owners import Caller
from turnlog.domain.request import TurnRequest

Body = TypeVar("Body", bound=msgspec.Struct)

# Where msgspec's sentences name the field: "… field `x`", "… - at `$.x`".
_FIELD = re.compile(r"(?:field `|at `\$\.)([^`]+)`")


SMALL_BYTES = 64 * 1024
"""Bodies up to this size are decoded faster than a thread starts; a larger one would stall all streams."""


async def read_turn(
    decode: Callable[[bytes, Mapping[str, str], RequestLimits], TurnRequest],
    request: Request[Any, Any, Any],
    service: Service,
    caller: Caller,
) -> tuple[TurnRequest, int]:
    """The turn that the body asks for, and the size of the body in bytes.

    Raises:
        InvalidRequestError: it is not declared as JSON (D-17), or `decode` refuses it.
    """
    if request.content_type[0] != MediaType.JSON:
        raise UnsupportedMediaTypeError(request.content_type[0])
    body = await request.body()
    work = partial(decode, body, request.headers, request.app.state.limits)
    if len(body) <= SMALL_BYTES:
        return work(), len(body)
    return await asyncio.wrap_future(service.in_turn(caller.owner, work)), len(body)


async def read_body(request: Request[Any, Any, Any], kind: type[Body]) -> Body:
    """The request's JSON body as a `kind`, which should forbid unknown fields.

    Raises:
        InvalidRequestError: it is not declared as JSON (D-17), is none, has another form or breaks a limit.
    """
    if request.content_type[0] != MediaType.JSON:
        raise UnsupportedMediaTypeError(request.content_type[0])
    limits: RequestLimits = request.app.state.limits
    sent = await request.body()
    check_json(sent, limits)
    try:
        body = msgspec.json.decode(sent, type=kind)
    except msgspec.ValidationError as error:
        found = _FIELD.search(str(error))
        raise InvalidRequestError(str(error), param=found[1] if found else "body") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}", code="invalid_json") from None
    check_form(body, limits)
    return body


def single(request: Request[Any, Any, Any], *names: str) -> dict[str, str]:
    """The query's parameters of these names; others may be repeated, as SDKs do with lists.

    Raises:
        InvalidRequestError: one is given twice, so that nobody can tell which is meant.
    """
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise InvalidRequestError(f"{name} is given twice; it can have one value.", param=name)
        if name in names:
            given[name] = value
    return given
