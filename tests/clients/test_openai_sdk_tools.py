"""The official Python client: the tool loop that its users write by hand, with every kind of tool."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from openai import AsyncOpenAI, OpenAI, pydantic_responses_function_tool
from openai.types.responses import (
    ParsedResponseFunctionToolCall,
    Response,
    ResponseCustomToolCall,
    ResponseInputParam,
    ToolParam,
)
from pydantic import BaseModel

from tests.clients.openai_sdk import ADD, MEMBER, MODEL, add, asking, calls_of, told

CALL_EVENTS: Final = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]


class Add(BaseModel):
    """The arguments of `add`, for the client to read."""

    a: int
    b: int


def continued(response: Response, sent: ResponseInputParam, outputs: ResponseInputParam) -> dict[str, Any]:
    """The next turn of a conversation that the server keeps."""
    del sent
    return {"previous_response_id": response.id, "input": outputs}


def echoed(response: Response, sent: ResponseInputParam, outputs: ResponseInputParam) -> dict[str, Any]:
    """The next turn of a conversation that the client keeps: everything is sent again."""
    output = [item.to_dict(exclude_unset=True) for item in response.output]
    return {"store": False, "input": [*sent, *output, *outputs]}


FollowUp = Callable[[Response, ResponseInputParam, ResponseInputParam], dict[str, Any]]

follow_ups: Final = pytest.mark.parametrize("follow_up", [continued, echoed])


@follow_ups
@pytest.mark.parametrize(
    ("question", "calls", "answer"),
    [
        ("add 1 and 2", [("function_call", None, "add", {"a": 1, "b": 2})], "1 and 2 make 3."),
        (
            "add both pairs",
            [
                ("function_call", None, "add", {"a": 1, "b": 2}),
                ("function_call", None, "add", {"a": 3, "b": 4}),
            ],
            "They make 3 and 7.",
        ),
        (
            "think, then add",
            [("reasoning", ["A sum."]), ("function_call", None, "add", {"a": 1, "b": 2})],
            "1 and 2 make 3.",
        ),
    ],
    ids=["one call", "two calls", "reasoning and a call"],
)
def test_a_tool_loop_ends_with_an_answer(
    client: OpenAI, follow_up: FollowUp, question: str, calls: list[tuple[Any, ...]], answer: str
) -> None:
    """B2, B5, B19, B20, C22."""
    sent = asking(question)
    first = client.responses.create(model=MODEL, input=sent, tools=[ADD])
    outputs: ResponseInputParam = [add(call) for call in calls_of(first)]
    second = client.responses.create(model=MODEL, tools=[ADD], **follow_up(first, sent, outputs))

    assert told(first.output) == calls
    assert len({call.call_id for call in calls_of(first)}) == len(outputs)
    assert told(second.output) == [("message", "assistant", answer)]


@follow_ups
def test_a_loop_may_take_several_rounds(client: OpenAI, follow_up: FollowUp) -> None:
    """A tool is called, the user goes on, the tool is called again."""
    request: dict[str, Any] = {"input": asking("add 1 and 2")}
    answers = []
    for next_question in ("add on", "enough"):
        response = client.responses.create(model=MODEL, tools=[ADD], **request)
        while calls := calls_of(response):
            request = follow_up(response, request["input"], [add(call) for call in calls])
            response = client.responses.create(model=MODEL, tools=[ADD], **request)
        answers.append(response.output_text)
        request = follow_up(response, request["input"], asking(next_question))

    assert answers == ["1 and 2 make 3.", "That makes 10."]


def test_a_kept_and_an_echoed_conversation_are_the_same_to_the_model(client: OpenAI) -> None:
    """R-157: as many tokens are read either way."""
    sent = asking("add both pairs")
    first = client.responses.create(model=MODEL, input=sent, tools=[ADD])
    outputs: ResponseInputParam = [add(call) for call in calls_of(first)]

    read = [
        client.responses.create(model=MODEL, tools=[ADD], **follow_up(first, sent, outputs)).usage
        for follow_up in (continued, echoed)
    ]

    assert read[0]
    assert read[1]
    assert read[0].input_tokens == read[1].input_tokens


def test_calls_are_streamed_one_after_the_other(client: OpenAI) -> None:
    """D-33, C1, C14, C19, C22, C25: what the stream says of a call is what the response holds."""
    with client.responses.create(model=MODEL, input="add both pairs", tools=[ADD], stream=True) as stream:
        events = list(stream)

    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        *CALL_EVENTS,
        *CALL_EVENTS,
        "response.completed",
    ]
    last = events[-1]
    assert last.type == "response.completed"
    assert told(last.response.output) == [
        ("function_call", None, "add", {"a": 1, "b": 2}),
        ("function_call", None, "add", {"a": 3, "b": 4}),
    ]
    done = [event for event in events if event.type == "response.output_item.done"]
    assert [event.output_index for event in done] == [0, 1]
    assert [event.item for event in done] == last.response.output
    arguments = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert [event.arguments for event in arguments] == [call.arguments for call in calls_of(last.response)]
    assert client.responses.retrieve(last.response.id).output == last.response.output


def test_a_tool_given_as_a_pydantic_model_has_its_arguments_parsed(client: OpenAI) -> None:
    tools = [pydantic_responses_function_tool(Add, name="add")]
    parsed = client.responses.parse(model=MODEL, input="add 1 and 2", tools=tools)
    with client.responses.stream(model=MODEL, input="add 1 and 2", tools=tools) as stream:
        streamed = stream.get_final_response()

    for (call,) in (parsed.output, streamed.output):
        assert isinstance(call, ParsedResponseFunctionToolCall)
        assert call.parsed_arguments == Add(a=1, b=2)


@follow_ups
def test_a_member_of_a_namespace_is_called_by_its_own_name(client: OpenAI, follow_up: FollowUp) -> None:
    """D-07, A2, A4, A13."""
    tools: list[ToolParam] = [
        {"type": "namespace", "name": "math", "description": "Sums.", "tools": [MEMBER]},
    ]
    sent = asking("add by namespace")
    first = client.responses.create(model=MODEL, input=sent, tools=tools)
    outputs: ResponseInputParam = [add(call) for call in calls_of(first)]
    second = client.responses.create(model=MODEL, tools=tools, **follow_up(first, sent, outputs))

    assert told(first.output) == [("function_call", "math", "add", {"a": 1, "b": 2})]
    assert second.output_text == "1 and 2 make 3."


@follow_ups
def test_a_custom_tool_gets_plain_text(client: OpenAI, follow_up: FollowUp) -> None:
    """D-07, A6, A10, A11, A12."""
    tools: list[ToolParam] = [{"type": "custom", "name": "shout", "description": "Say it loudly."}]
    sent = asking("shout hello")
    first = client.responses.create(model=MODEL, input=sent, tools=tools)
    (call,) = first.output
    assert isinstance(call, ResponseCustomToolCall)
    outputs: ResponseInputParam = [
        {"type": "custom_tool_call_output", "call_id": call.call_id, "output": call.input.upper()}
    ]
    second = client.responses.create(model=MODEL, tools=tools, **follow_up(first, sent, outputs))

    assert told(first.output) == [("custom_tool_call", None, "shout", "hello")]
    assert second.output_text == "Shouted."


def test_the_input_of_a_custom_tool_is_streamed(client: OpenAI) -> None:
    """A10."""
    tools: list[ToolParam] = [{"type": "custom", "name": "shout", "description": "Say it loudly."}]
    with client.responses.create(model=MODEL, input="shout hello", tools=tools, stream=True) as stream:
        events = list(stream)

    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.completed",
    ]
    last = events[-1]
    assert last.type == "response.completed"
    assert told(last.response.output) == [("custom_tool_call", None, "shout", "hello")]


def test_hosted_tools_are_accepted_beside_functions(client: OpenAI) -> None:
    """D-07, A1, A3, A5, A7, A9."""
    tools: list[ToolParam] = [{"type": "web_search"}, {"type": "image_generation"}, ADD]
    response = client.responses.create(model=MODEL, input="add 1 and 2", tools=tools)

    assert told(response.output) == [("function_call", None, "add", {"a": 1, "b": 2})]


@follow_ups
async def test_a_tool_loop_of_the_async_client_ends_with_an_answer(
    aclient: AsyncOpenAI, follow_up: FollowUp
) -> None:
    """B2, C22."""
    sent = asking("add both pairs")
    async with aclient.responses.stream(model=MODEL, input=sent, tools=[ADD]) as stream:
        first = await stream.get_final_response()
    outputs: ResponseInputParam = [add(call) for call in calls_of(first)]
    second = await aclient.responses.create(model=MODEL, tools=[ADD], **follow_up(first, sent, outputs))

    assert told(first.output) == [
        ("function_call", None, "add", {"a": 1, "b": 2}),
        ("function_call", None, "add", {"a": 3, "b": 4}),
    ]
    assert second.output_text == "They make 3 and 7."
