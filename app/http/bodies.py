"""The bodies of the operator's requests: strict, and refused by the field that is wrong."""

import re
from typing import Any, TypeVar

import msgspec
from litestar import MediaType, Request

from turnlog.app.http.errors import UnsupportedMediaTypeError
from turnlog.domain.errors import InvalidRequestError

Body = TypeVar("Body", bound=msgspec.Struct)

# Where msgspec's sentences name the field: "… field `x`", "… - at `$.x`".
_FIELD = re.compile(r"(?:field `|at `\$\.)([^`]+)`")


async def read_body(request: Request[Any, Any, Any], kind: type[Body]) -> Body:
    """The request's JSON body as a `kind`, which should forbid unknown fields.

    Raises:
        InvalidRequestError: it is not declared as JSON (D-17), is none, or has another form.
    """
    if request.content_type[0] != MediaType.JSON:
        raise UnsupportedMediaTypeError(request.content_type[0])
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except msgspec.ValidationError as error:
        found = _FIELD.search(str(error))
        raise InvalidRequestError(str(error), param=found[1] if found else "body") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}", code="invalid_json") from None
