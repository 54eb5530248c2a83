"""The official Python client: every method of `client.responses` beside `create`, in the background too."""

import asyncio
from collections.abc import Iterable

import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from openai.types.responses import Response

from tests.clients.openai_sdk import ADD, MODEL, add, calls_of, told
from tests.waiting import PAUSE_S, until

SLOW = "take your time"
BACKGROUND_OPENING = ["response.created", "response.queued", "response.in_progress"]


def ended(client: OpenAI, response_id: str) -> Response:
    """The response, polled to its end as OpenAI's documents do it."""

    def polled() -> Response | None:
        response = client.responses.retrieve(response_id)
        return None if response.status in ("queued", "in_progress") else response

    response = until(polled)
    assert response
    return response


def streamed(response: Response) -> dict[str, object]:
    """The response as its terminal frame has it: only an object says when it expires (D-37)."""
    fields = response.to_dict()
    assert isinstance(fields.pop("expires_at"), int)
    return fields


def test_a_background_turn_is_polled_to_its_end(client: OpenAI) -> None:
    """D-40."""
    accepted = client.responses.create(model=MODEL, input="hi", background=True)

    assert (accepted.status, accepted.background, accepted.output) == ("queued", True, [])
    assert told(ended(client, accepted.id).output) == [("message", "assistant", "Hello")]


def test_a_background_stream_is_dropped_and_resumed_where_it_was(client: OpenAI) -> None:
    """D-40: `starting_after` goes on after the last number, live and when all is over."""
    with client.responses.create(model=MODEL, input=SLOW, background=True, stream=True) as stream:
        heard = [next(stream) for _ in range(2)]
    first = heard[0]
    assert first.type == "response.created"

    with client.responses.retrieve(first.response.id, stream=True, starting_after=1) as stream:
        heard += list(stream)
    with client.responses.retrieve(first.response.id, stream=True) as stream:
        again = list(stream)

    assert again == heard
    assert [event.type for event in heard][:3] == BACKGROUND_OPENING
    assert [event.sequence_number for event in heard] == list(range(len(heard)))
    last = heard[-1]
    assert last.type == "response.completed"
    assert last.response.to_dict() == streamed(client.responses.retrieve(first.response.id))


def test_the_streaming_aid_takes_a_background_turn(client: OpenAI) -> None:
    with client.responses.stream(model=MODEL, input="hi", background=True) as aid:
        assert aid.get_final_response().output_text == "Hello"


@pytest.mark.parametrize("background", [True, False])
def test_a_cancelled_turn_is_no_error(client: OpenAI, background: bool) -> None:
    """D-02: an `error` frame would be raised."""
    with client.responses.create(model=MODEL, input=SLOW, background=background, stream=True) as stream:
        first = next(stream)
        assert first.type == "response.created"
        cancelled = client.responses.cancel(first.response.id)
        last = list(stream)[-1]

    assert last.type == "response.incomplete"
    assert cancelled == client.responses.cancel(first.response.id)
    assert last.response.to_dict() == streamed(cancelled)
    assert (cancelled.status, cancelled.error, cancelled.incomplete_details) == ("cancelled", None, None)


def test_a_deleted_response_is_not_found_any_more(client: OpenAI) -> None:
    """D-40."""
    response = client.responses.create(model=MODEL, input="hi")

    raw = client.responses.with_raw_response.delete(response.id)

    assert raw.http_response.json() == {"id": response.id, "object": "response", "deleted": True}
    for method in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        with pytest.raises(NotFoundError):
            method(response.id)
    with pytest.raises(NotFoundError):
        client.responses.create(model=MODEL, input="hi", previous_response_id=response.id)


def test_input_items_are_paged_over_the_whole_context(client: OpenAI) -> None:
    """D-40: the client follows `after` as long as `has_more` says so."""
    first = client.responses.create(model=MODEL, input="add 1 and 2", tools=[ADD])
    (call,) = calls_of(first)
    second = client.responses.create(model=MODEL, input=[add(call)], previous_response_id=first.id)
    third = client.responses.create(model=MODEL, input="hi", previous_response_id=second.id)

    items = list(client.responses.input_items.list(third.id, limit=2, order="asc"))

    assert [item.type for item in items] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
        "message",
    ]
    assert items[1].id == call.id
    assert [item.id for item in client.responses.input_items.list(third.id)] == ids(items)[::-1]


def ids(items: Iterable[object]) -> list[str]:
    """The id of each item; none is without."""
    found = [getattr(item, "id", None) for item in items]
    assert all(found)
    return [str(each) for each in found]


def test_input_tokens_are_those_that_the_turn_reports(client: OpenAI) -> None:
    """D-40."""
    first = client.responses.create(model=MODEL, input="hi")

    counted = client.responses.input_tokens.count(
        model=MODEL, input="one two", previous_response_id=first.id, tools=[ADD]
    )
    turn = client.responses.create(model=MODEL, input="one two", previous_response_id=first.id, tools=[ADD])

    assert turn.usage
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", turn.usage.input_tokens)


def test_every_method_has_a_raw_and_a_streaming_form(client: OpenAI) -> None:
    raw, streaming = client.responses.with_raw_response, client.responses.with_streaming_response
    accepted = raw.create(model=MODEL, input="hi", background=True)
    response = ended(client, accepted.parse().id)

    assert int(accepted.headers["openai-processing-ms"]) >= 0
    assert raw.retrieve(response.id).parse() == raw.cancel(response.id).parse() == response
    with streaming.retrieve(response.id) as retrieved:
        assert retrieved.parse() == response
    with client.responses.input_items.with_streaming_response.list(response.id) as listed:
        assert len(listed.parse().data) == 1
    counted = client.responses.input_tokens.with_raw_response.count(model=MODEL, input="hi").parse()
    assert counted.input_tokens > 0
    with streaming.delete(response.id) as deleted:
        assert deleted.status_code == 200


def test_a_failed_inference_is_not_repeated(client: OpenAI) -> None:
    """D-32: the client retries a 500 by itself, unless it is told not to."""
    retrying = client.with_options(max_retries=2)

    with pytest.raises(APIStatusError, match="it broke") as raised:
        retrying.responses.create(model=MODEL, input="boom")

    assert raised.value.response.request.headers["x-stainless-retry-count"] == "0"


def test_what_cannot_be_is_said_by_name(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="prompt is not supported"):
        client.responses.create(prompt={"id": "pmpt_1"})
    with pytest.raises(BadRequestError, match="web_search_preview"):
        client.responses.create(
            model=MODEL,
            input="hi",
            tools=[{"type": "web_search_preview"}],
            tool_choice={"type": "web_search_preview"},
        )
    with pytest.raises(BadRequestError, match="store: true"):
        client.responses.create(model=MODEL, input="hi", background=True, store=False)


async def test_the_async_client_does_the_same(aclient: AsyncOpenAI) -> None:
    """D-40."""
    responses = aclient.responses
    accepted = await responses.create(model=MODEL, input="hi", background=True)
    done = accepted
    while done.status in ("queued", "in_progress"):
        await asyncio.sleep(PAUSE_S)
        done = await responses.retrieve(accepted.id)
    events = [event async for event in await responses.retrieve(accepted.id, stream=True)]
    items = [item async for item in responses.input_items.list(accepted.id, limit=1)]
    counted = await responses.input_tokens.count(model=MODEL, input="hi")
    running = await responses.create(model=MODEL, input=SLOW, background=True)
    cancelled = await responses.cancel(running.id)
    await responses.delete(accepted.id)

    assert (accepted.status, done.output_text, cancelled.status) == ("queued", "Hello", "cancelled")
    assert [event.type for event in events][:3] == BACKGROUND_OPENING
    assert [item.type for item in items] == ["message"]
    assert done.usage
    assert counted.input_tokens == done.usage.input_tokens
    with pytest.raises(NotFoundError):
        await responses.retrieve(accepted.id)
