"""Typed ids (R-010, D-23)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.domain.ids import IdKind, typed_id

milliseconds = st.integers(0, 2**48 - 1)
entropy = st.binary(min_size=10, max_size=10)


@given(kind=st.sampled_from(IdKind), now_ms=milliseconds, random=entropy)
def test_an_id_is_its_prefix_and_the_32_hex_digits_of_a_uuid7(
    kind: IdKind, now_ms: int, random: bytes
) -> None:
    made = typed_id(kind, now_ms, random)

    digits = made.removeprefix(kind.value)
    assert len(digits) == 32
    assert int(digits[:12], 16) == now_ms
    assert digits[12] == "7"
    assert digits[16] in "89ab"


@given(earlier=milliseconds, later=milliseconds, one=entropy, other=entropy)
def test_ids_sort_by_the_millisecond_they_were_made_in(
    earlier: int, later: int, one: bytes, other: bytes
) -> None:
    if earlier >= later:
        return

    assert typed_id(IdKind.RESPONSE, earlier, one) < typed_id(IdKind.RESPONSE, later, other)


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        (IdKind.RESPONSE, "resp_"),
        (IdKind.MESSAGE, "msg_"),
        (IdKind.REASONING, "rs_"),
        (IdKind.FUNCTION_CALL, "fc_"),
        (IdKind.CALL, "call_"),
    ],
)
def test_the_prefix_says_what_an_id_names(kind: IdKind, prefix: str) -> None:
    assert typed_id(kind, 0, bytes(10)).startswith(prefix)
