"""The official Python client: every way to ask for a turn, and what it makes of the answer."""

from typing import Final

import pytest
from openai import APIError, AsyncOpenAI, InternalServerError, OpenAI
from pydantic import BaseModel

from tests.clients.openai_sdk import MODEL, told
from tests.serving import RunningServer

TEXT_EVENTS: Final = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


class Weather(BaseModel):
    """What the model is asked to answer with."""

    city: str
    degrees: int


def test_a_turn_answers_with_text(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="hi")

    assert told(response.output) == [("message", "assistant", "Hello")]
    assert (response.status, response.output_text) == ("completed", "Hello")
    assert response.usage
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_a_stream_tells_the_whole_life_of_a_turn(client: OpenAI) -> None:
    """D-01, C4, C5, C7, C12, C13, C20, C21."""
    with client.responses.create(model=MODEL, input="hi", stream=True) as stream:
        events = list(stream)

    assert [event.type for event in events] == TEXT_EVENTS
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == ["Hel", "lo"]
    first, last = events[0], events[-1]
    assert first.type == "response.created"
    assert last.type == "response.completed"
    assert first.response.id == last.response.id
    assert told(last.response.output) == [("message", "assistant", "Hello")]
    retrieved = client.responses.retrieve(first.response.id).to_dict()
    # Only an object says when it expires: frames read the same at any time (D-37).
    assert isinstance(retrieved.pop("expires_at"), int)
    assert retrieved == last.response.to_dict()


def test_the_streaming_aid_ends_with_what_was_streamed(client: OpenAI) -> None:
    """C20, C21: it throws when an event is missing or an id changes."""
    with client.responses.stream(model=MODEL, input="hi") as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()

    assert snapshots == ["Hel", "Hello"]
    assert told(final.output) == [("message", "assistant", "Hello")]


def test_a_stored_stream_can_be_followed_from_any_event(client: OpenAI) -> None:
    """The client's own way to resume: `stream(response_id=…, starting_after=…)`."""
    with client.responses.create(model=MODEL, input="hi", stream=True) as stream:
        events = list(stream)
    last = events[-1]
    assert last.type == "response.completed"

    with client.responses.retrieve(last.response.id, stream=True, starting_after=3) as rest:
        assert list(rest) == events[4:]
    with client.responses.stream(response_id=last.response.id, starting_after=3) as helper:
        assert helper.get_final_response().output_text == "Hello"


def test_signs_of_life_do_not_disturb_the_streaming_aid(restless_server: RunningServer) -> None:
    """D5, D6: `response.in_progress` comes again and again, under the number of the frame before it."""
    with (
        OpenAI(base_url=f"{restless_server.address}/v1", api_key="none", max_retries=0) as client,
        client.responses.stream(model=MODEL, input="take your time") as stream,
    ):
        events = list(stream)
        final = stream.get_final_response()

    signs = [event for event in events if event.type == "response.in_progress"]
    assert len(signs) > 2
    assert {event.sequence_number for event in signs} == {1}
    assert final.output_text == "At last."


def test_json_text_is_parsed_into_a_model(client: OpenAI) -> None:
    """F1, F2, F3: `responses.parse` and the streaming aid with a pydantic model."""
    parsed = client.responses.parse(model=MODEL, input="weather as JSON", text_format=Weather)
    with client.responses.stream(model=MODEL, input="weather as JSON", text_format=Weather) as stream:
        streamed = stream.get_final_response()

    assert parsed.output_parsed == Weather(city="Paris", degrees=21)
    assert streamed.output_parsed == parsed.output_parsed


def test_reasoning_comes_before_the_answer_as_a_summary(client: OpenAI) -> None:
    """D-04, F5."""
    with client.responses.stream(model=MODEL, input="think", reasoning={"effort": "high"}) as stream:
        events = list(stream)
        final = stream.get_final_response()

    assert told(final.output) == [
        ("reasoning", ["let me see"]),
        ("message", "assistant", "Thought through."),
    ]
    assert final.usage
    assert final.usage.output_tokens_details.reasoning_tokens == 2
    assert [event.type for event in events if "reasoning" in event.type] == [
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
    ]


def test_a_failure_is_raised_in_the_words_of_the_server(client: OpenAI) -> None:
    """D-05, D-32, D3, D16."""
    with pytest.raises(InternalServerError, match="it broke") as whole:
        client.responses.create(model=MODEL, input="boom")
    with (
        client.responses.create(model=MODEL, input="boom", stream=True) as stream,
        pytest.raises(APIError, match="it broke") as streamed,
    ):
        list(stream)

    assert (whole.value.code, streamed.value.code) == ("server_error", "server_error")


# ── asyncio ──


async def test_a_turn_of_the_async_client_answers_and_is_found_again(aclient: AsyncOpenAI) -> None:
    response = await aclient.responses.create(model=MODEL, input="hi")

    assert told(response.output) == [("message", "assistant", "Hello")]
    assert await aclient.responses.retrieve(response.id) == response


async def test_the_async_client_streams(aclient: AsyncOpenAI) -> None:
    async with await aclient.responses.create(model=MODEL, input="hi", stream=True) as stream:
        types = [event.type async for event in stream]
    async with aclient.responses.stream(model=MODEL, input="hi") as aid:
        snapshots = [event.snapshot async for event in aid if event.type == "response.output_text.delta"]
        final = await aid.get_final_response()

    assert types == TEXT_EVENTS
    assert snapshots == ["Hel", "Hello"]
    assert told(final.output) == [("message", "assistant", "Hello")]


async def test_the_async_client_parses_json_text(aclient: AsyncOpenAI) -> None:
    """F1."""
    parsed = await aclient.responses.parse(model=MODEL, input="weather as JSON", text_format=Weather)

    assert parsed.output_parsed == Weather(city="Paris", degrees=21)
