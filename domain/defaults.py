"""What a turn gets that its request leaves open, from its model or from what is set for its name (R-177)."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace


class ModelDefaults(Struct, frozen=True, omit_defaults=True):
    """Values for fields of a request, within their bounds; None leaves the field to the engine."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None

    def over(self, others: "ModelDefaults") -> "ModelDefaults":
        """These values, falling back to the others where these are not set."""
        return replace(others, **self.given())

    def given(self) -> dict[str, Any]:
        """The values that there are, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


DEFAULTABLE = frozenset(ModelDefaults.__struct_fields__)
"""The fields of a request that can have a default."""


def read_default(name: str, value: object) -> ModelDefaults:
    """One default, as settings and files have it.

    Raises:
        msgspec.ValidationError: there is no such field, or its value is out of bounds.
    """
    if name not in DEFAULTABLE:
        raise msgspec.ValidationError(f"there are {', '.join(ModelDefaults.__struct_fields__)}")
    return msgspec.convert({name: value}, ModelDefaults, strict=False)
