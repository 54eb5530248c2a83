"""Merging: fewer events that tell the same story."""

from hypothesis import given

from tests.domain.engine_scripts import stories
from tests.domain.stories import NOON_MS
from turnlog.domain.events import ItemExtended, ResponseEvent, merged
from turnlog.domain.response import Response, fold


def deltas(item_id: str, *pieces: str, at_ms: int = NOON_MS) -> ItemExtended:
    """An extension of an item."""
    return ItemExtended(at_ms=at_ms, item_id=item_id, deltas=pieces)


def test_neighbouring_deltas_of_one_item_become_one_event_and_keep_their_boundaries() -> None:
    story = [deltas("a", "x"), deltas("a", "y", at_ms=NOON_MS + 5), deltas("b", "z"), deltas("a", "w")]

    assert merged(story) == [deltas("a", "x", "y"), deltas("b", "z"), deltas("a", "w")]


def state(response: Response) -> object:
    """All there is to a response."""
    open_items = [(each.item, each.text) for each in response.output.open_entries]
    return response.created, response.started, response.status, response.items, open_items, response.ended


@given(stories)
def test_folding_the_merged_story_gives_what_folding_the_live_one_gave(story: list[ResponseEvent]) -> None:
    assert state(fold(merged(story))) == state(fold(story))


@given(stories)
def test_merging_what_is_merged_changes_nothing(story: list[ResponseEvent]) -> None:
    assert merged(merged(story)) == merged(story)
