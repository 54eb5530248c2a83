"""The official Python client on Chat Completions: answers, streams, tools, stored completions (D-40)."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from openai import APIError, BadRequestError, InternalServerError, NotFoundError, OpenAI
from openai.types.chat import (
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageParam,
    ParsedChatCompletion,
)
from pydantic import BaseModel

from tests.clients.openai_sdk import ADD, MODEL
from tests.clients.script import TOOL_LOOPS
from tests.serving import RunningServer
from tests.waiting import until

TOOL: Final[ChatCompletionFunctionToolParam] = {
    "type": "function",
    "function": {"name": "add", "parameters": ADD["parameters"] or {}, "strict": True},
}

Ask = Callable[..., ParsedChatCompletion[Any]]


class Weather(BaseModel):
    """What the model is asked to answer with."""

    city: str
    degrees: int


def whole(client: OpenAI, **params: Any) -> Any:
    """A completion."""
    return client.chat.completions.create(model=MODEL, **params)


def streamed(client: OpenAI, **params: Any) -> Any:
    """A completion as the streaming aid puts it together."""
    with client.chat.completions.stream(model=MODEL, **params) as stream:
        return stream.get_final_completion()


both_ways: Final = pytest.mark.parametrize("ask", [whole, streamed])


def user(text: str) -> list[ChatCompletionMessageParam]:
    """A conversation that begins."""
    return [{"role": "user", "content": text}]


@both_ways
@pytest.mark.parametrize(("question", "said"), TOOL_LOOPS)
def test_a_tool_loop_ends_with_an_answer(client: OpenAI, ask: Ask, question: str, said: list[str]) -> None:
    messages: list[Any] = user(question)
    told: list[str] = []
    while calls := (answer := ask(client, messages=messages, tools=[TOOL]).choices[0]).message.tool_calls:
        assert answer.finish_reason == "tool_calls"
        messages.append(answer.message)
        for call in calls:
            numbers = json.loads(call.function.arguments)
            told.append(f"the sum is {numbers['a'] + numbers['b']}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": told[-1]})

    assert [*told, answer.message.content] == said


@both_ways
def test_a_model_thinks_before_it_answers(client: OpenAI, ask: Ask) -> None:
    message = ask(client, messages=user("think")).choices[0].message

    assert (message.model_dump()["reasoning_content"], message.content) == ("let me see", "Thought through.")


def test_an_answer_comes_in_pieces_and_its_usage_at_the_end(client: OpenAI) -> None:
    options: Any = {"include_usage": True}
    stream = client.chat.completions.create(
        model=MODEL, messages=user("hi"), stream=True, stream_options=options
    )

    chunks = list(stream)

    assert [chunk.choices[0].delta.content for chunk in chunks[1:-2]] == ["Hel", "lo"]
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 2


def test_an_answer_is_parsed(client: OpenAI) -> None:
    """F1."""
    completion = client.chat.completions.parse(
        model=MODEL, messages=user("weather as JSON"), response_format=Weather
    )

    assert completion.choices[0].message.parsed == Weather(city="Paris", degrees=21)


def test_a_failure_is_raised_in_the_words_of_the_server(client: OpenAI) -> None:
    """D-05, D-32: also after the first byte."""
    with pytest.raises(InternalServerError, match="it broke"):
        whole(client, messages=user("boom"))
    with pytest.raises(APIError, match="it broke"):
        list(client.chat.completions.create(model=MODEL, messages=user("boom"), stream=True))
    with pytest.raises(APIError, match="it broke"):
        streamed(client, messages=user("boom"))
    with pytest.raises(BadRequestError, match="send one request for each answer") as caught:
        whole(client, messages=user("hi"), n=2)
    assert caught.value.param == "n"


def test_silence_is_borne(restless_server: RunningServer) -> None:
    """D5."""
    with OpenAI(base_url=f"{restless_server.address}/v1", api_key="none", max_retries=0) as client:
        answer = streamed(client, messages=user("take your time"))

    assert answer.choices[0].message.content == "At last."


def test_stored_completions_are_read_listed_changed_and_deleted(client: OpenAI) -> None:
    made = [whole(client, messages=user("hi"), metadata={"of": "python"}) for _ in range(3)]
    completions = client.chat.completions

    def found() -> list[Any]:
        listed = list(completions.list(metadata={"of": "python"}, limit=2))
        return listed if len(listed) == len(made) else []

    listed = until(found)  # An answer does not wait for the store.

    assert [each.id for each in listed] == [each.id for each in made]
    assert completions.retrieve(made[0].id).choices == made[0].choices
    assert completions.delete(made[0].id).deleted
    with pytest.raises(NotFoundError):
        completions.retrieve(made[0].id)
    assert completions.update(made[1].id, metadata={"of": "nobody"}).metadata == {"of": "nobody"}
