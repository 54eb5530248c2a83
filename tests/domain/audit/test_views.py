"""Views of the log: what is told of a turn, and how much of it."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.audit.rows import row
from tests.domain.stories import COMMITTED, CREATED, FAILED, NOON_MS, PERSISTED, STARTED
from turnlog.domain.audit.seen import PromptIds, Seen
from turnlog.domain.audit.views import Exchange, RowView, TurnView, exchanges, state_times, turn_view
from turnlog.domain.events import ItemClosed, ItemOpened, Recorded, ResponseEvent
from turnlog.domain.items import CustomCallItem, FunctionCallItem, Item, MessageItem, ReasoningItem
from turnlog.domain.messages import Message
from turnlog.domain.response import fold
from turnlog.domain.usage import Timing

OPENED = ItemOpened(at_ms=NOON_MS + 30, output_index=0, item=ReasoningItem("rs_1", ""))
SHOWN = RowView(row("resp_1"), "shown")


def recorded(*events: ResponseEvent) -> list[Recorded]:
    return [Recorded("resp_1", version, event) for version, event in enumerate(events, start=1)]


def test_an_exchange_is_what_the_request_brought_and_what_was_answered() -> None:
    asked = (Message("system", "Be nice"), Message("user", "hi"), Message("tool", "12", call_id="c"))
    items: list[Item] = [
        ReasoningItem("rs_1", "hm"),
        MessageItem("msg_1", "completed", ""),
        MessageItem("msg_2", "completed", "Hello"),
        FunctionCallItem("fc_1", "c1", "add", '{"a":1}', "completed"),
        CustomCallItem("ctc_1", "c2", "run", "ls {}", "completed"),
    ]
    closed = [ItemClosed(at_ms=NOON_MS, output_index=n, item=item) for n, item in enumerate(items)]

    found = exchanges([recorded(replace(CREATED, input=asked), STARTED, *closed, COMMITTED), []])

    assert found == {
        "resp_1": Exchange("[system] Be nice\nhi\n[tool] 12", 'Hello\n[calls add {"a":1}]\n[calls run ls {}]')
    }


@pytest.mark.parametrize(
    ("events", "times"),
    [
        ([], {}),
        ([STARTED, OPENED], {"started": 10, "first_token": 30}),
        (
            [STARTED, OPENED, replace(COMMITTED, timing=Timing(first_token_ms=4.6)), PERSISTED],
            {"started": 10, "first_token": 15, "ended": 2000, "persisted": 2100},
        ),
        ([FAILED], {"ended": 2000}),
    ],
)
def test_a_turn_has_the_time_of_each_state_it_reached(
    events: list[ResponseEvent], times: dict[str, int]
) -> None:
    """The first token is timed by the engine; until the turn ends, by the first event that shows it."""
    states = ("created", "started", "first_token", "ended", "persisted")

    story = [CREATED, *events]

    assert state_times(fold(story), recorded(*story)) == dict.fromkeys(states) | {"created": NOON_MS} | {
        state: NOON_MS + after_ms for state, after_ms in times.items()
    }


def view(shown: RowView = SHOWN, *, with_prompt_ids: bool = True, **around: Any) -> TurnView:
    story = recorded(CREATED, STARTED, COMMITTED)
    around = {"attempts": [], "replays": []} | around
    chain = [story] if shown.content == "shown" else []
    return turn_view(shown, story, chain, **around, with_prompt_ids=with_prompt_ids)


def test_a_turn_is_shown_with_what_the_model_saw_and_its_prompt_if_asked_for() -> None:
    assert view().seen == Seen([Message("user", "hi")])
    assert view().prompt_ids == PromptIds((1, 2, 3))
    assert view(with_prompt_ids=False).prompt_ids is None


def test_nothing_is_shown_of_content_that_is_not() -> None:
    """D-18, D-14."""
    for hidden in (RowView(SHOWN.row, "withheld"), RowView(SHOWN.row, "expired")):
        assert (view(hidden).seen, view(hidden).prompt_ids) == (None, PromptIds())


def test_one_try_is_no_list_of_tries() -> None:
    other = RowView(row("resp_0"), "withheld")

    assert view(attempts=[SHOWN]).attempts == ()
    assert view(attempts=[other, SHOWN]).attempts == [other, SHOWN]
