"""Token ids in the log: what is packed, shared and rebuilt is the same prompt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from turnlog.domain.tokens import common_prefix, pack, rebuild_prompt, record_prompt, unpack

token_ids = st.lists(st.integers(0, 2**32 - 1), max_size=50).map(tuple)


@given(token_ids)
def test_packing_loses_nothing(ids: tuple[int, ...]) -> None:
    assert unpack(pack(ids)) == ids
    assert len(pack(ids)) == 4 * len(ids)


def test_packed_ids_are_little_endian_on_every_machine() -> None:
    assert pack((1, 256)) == b"\x01\x00\x00\x00\x00\x01\x00\x00"


@given(shared=token_ids, read=token_ids, written=token_ids)
def test_a_prompt_is_rebuilt_from_what_it_shares_with_the_response_before_it(
    shared: tuple[int, ...], read: tuple[int, ...], written: tuple[int, ...]
) -> None:
    base, prompt = shared + read, shared + written

    record = record_prompt(prompt, "resp_base", base)

    assert rebuild_prompt(record, base) == prompt
    assert record.shared >= len(shared)
    assert len(record.suffix) == 4 * (len(prompt) - record.shared)


def test_a_prompt_that_shares_nothing_names_no_base() -> None:
    record = record_prompt((5, 6), "resp_base", (7, 8))

    assert (record.base, record.shared) == (None, 0)


def test_a_prompt_rebuilt_on_another_base_is_refused() -> None:
    record = record_prompt((1, 2, 3), "resp_base", (1, 2))

    with pytest.raises(ValueError, match="rebuilt from resp_base differs from the recorded one"):
        rebuild_prompt(record, (1, 9))


def test_a_changed_suffix_is_refused() -> None:
    record = record_prompt((1, 2, 3))

    with pytest.raises(ValueError, match="differs from the recorded one"):
        rebuild_prompt(replace(record, suffix=pack((1, 2, 4))))


@given(st.integers(0, 300), token_ids, token_ids)
def test_the_common_prefix_is_what_the_obvious_search_finds(
    shared: int, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    """T2-05: blocks are compared, however long they are."""
    one, other = (7,) * shared + left, (7,) * shared + right
    equal = [a == b for a, b in zip(one, other, strict=False)]

    assert common_prefix(one, other) == [*equal, False].index(False)
