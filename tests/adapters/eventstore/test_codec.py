"""Events survive the store's codec, and what it cannot read it names."""

from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from eventsourcing.persistence import StoredEvent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from tests.adapters.eventstore.stories import PERSISTED, created
from turnlog.adapters.eventstore.codec import EventMapper
from turnlog.domain.errors import StorageError
from turnlog.domain.events import Recorded, ResponseEvent, TurnFailed, TurnPersisted, topic

MAPPER = EventMapper()

TEXTS = st.text() | st.text('"\\\u2028\u2029\x00\n\r😀é')
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=3),
    max_leaves=5,
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: INTEGERS,
    float: FLOATS,
    bool: st.booleans(),
    bytes: st.binary(),
    type(None): st.none(),
    Any: JSON,
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Anything of a type an event is made of; all fields are drawn, those with a default too."""
    if hint in PLAIN:
        return PLAIN[hint]
    inner = get_args(hint)
    match get_origin(hint):
        case origin if origin is Literal:
            return st.sampled_from(inner)
        case origin if origin in {Union, UnionType}:
            return reduce(or_, map(values, inner))
        case origin if origin is tuple and inner[-1] is not Ellipsis:
            return st.tuples(*map(values, inner))
        case origin if origin is tuple:
            return st.lists(values(inner[0]), max_size=3).map(tuple)
        case origin if origin is dict:
            return st.dictionaries(values(inner[0]), values(inner[1]), max_size=3)
    assert issubclass(hint, Struct)
    fields = get_type_hints(hint)
    return st.builds(hint, **{name: values(fields[name]) for name in hint.__struct_fields__})


@pytest.mark.parametrize("event_type", get_args(ResponseEvent), ids=topic)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure
@given(data=st.data(), response_id=TEXTS, version=st.integers(1, 2**31))
def test_every_event_survives_the_codec_and_has_one_form(
    event_type: type[ResponseEvent], data: st.DataObject, response_id: str, version: int
) -> None:
    recorded = Recorded(response_id, version, data.draw(values(event_type)))

    stored = MAPPER.to_stored_event(recorded)
    read = MAPPER.to_domain_event(stored)

    assert read == recorded
    assert MAPPER.to_stored_event(read) == stored


def test_the_bytes_of_a_stored_event_do_not_change() -> None:
    event = TurnFailed(at_ms=1, reason="error", message='a "b"\u2028', output_ids=b"\x01\x00\x00\x00")

    stored = MAPPER.to_stored_event(Recorded("resp_a", 3, event))

    state = (
        '{"type":"response.failed.v1","at_ms":1,"reason":"error","message":"a \\"b\\"\u2028",'
        '"output_ids":"AQAAAA=="}'
    )
    assert stored == StoredEvent("resp_a", 3, "response.failed.v1", state.encode())


def test_the_environment_does_not_change_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded("resp_a", 1, PERSISTED)
    expected = MAPPER.to_stored_event(recorded)

    monkeypatch.setenv("COMPRESSOR_TOPIC", "zlib")
    monkeypatch.setenv("CIPHER_KEY", "c2VjcmV0")

    assert EventMapper().to_stored_event(recorded) == expected


@pytest.mark.parametrize(
    ("topic_read", "state", "why"),
    [
        ("response.dreamt.v1", b'{"type":"response.dreamt.v1","at_ms":1}', "Invalid value"),
        ("response.persisted.v1", b'{"type":"response.persisted.v1","at_ms":1}', "missing required field"),
        ("response.persisted.v1", b'{"type":"response.pers', "truncated"),
        ("response.persisted.v1", b'{"type":"response.persisted.v1","at_ms":"\xff"}', "Expected `int`"),
        ("response.committed.v1", MAPPER.transcoder.encode(PERSISTED), "its state belongs to response.pers"),
        ("response.created.v1", b"[" * 10_000, ""),
    ],
)
def test_a_row_that_cannot_be_read_is_named(topic_read: str, state: bytes, why: str) -> None:
    row = StoredEvent("resp_a", 7, topic_read, state)

    with pytest.raises(StorageError, match=rf"^Event 7 of response 'resp_a' \({topic_read}\).*{why}"):
        MAPPER.to_domain_event(row)


def test_text_that_is_not_unicode_cannot_be_written() -> None:
    recorded = Recorded("resp_a", 1, created("resp_a", text="half a pair: \ud83d"))

    with pytest.raises(
        StorageError, match=r"^Event 1 of response 'resp_a' \(response.created.v1\) cannot be"
    ):
        MAPPER.to_stored_event(recorded)


def test_an_event_of_tomorrow_with_one_more_field_can_be_read_today() -> None:
    row = StoredEvent(
        "resp_a",
        1,
        "response.persisted.v1",
        b'{"type":"response.persisted.v1","at_ms":1006,"write_ms":0.5,"retries":2}',
    )

    assert MAPPER.to_domain_event(row) == Recorded("resp_a", 1, TurnPersisted(at_ms=1006, write_ms=0.5))
