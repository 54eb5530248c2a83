"""LangChain's `ChatOpenAI` as it comes: on Chat Completions (D-40)."""

from typing import Any, Final

import pytest
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from openai import APIError
from pydantic import SecretStr

from tests.clients.script import TOOL_LOOPS
from tests.clients.test_langchain import Weather, add, whole
from tests.serving import RunningServer


def chat(server: RunningServer, **settings: Any) -> ChatOpenAI:
    """The model as its users make it."""
    return ChatOpenAI(
        model="scripted",
        base_url=f"{server.address}/v1",
        api_key=SecretStr("none"),
        max_retries=0,
        **settings,
    )


both_ways: Final = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@both_ways
@pytest.mark.parametrize(("question", "said"), TOOL_LOOPS)
def test_a_tool_loop_ends_with_an_answer(
    server: RunningServer, question: str, said: list[str], *, stream: bool
) -> None:
    model = chat(server, stream_usage=True).bind_tools([add])
    history: list[AnyMessage] = [SystemMessage("Use the tool."), HumanMessage(question)]
    told: list[str] = []
    while True:
        answer = whole(model.stream(history)) if stream else model.invoke(history)
        history.append(answer)
        assert answer.usage_metadata
        if not answer.tool_calls:
            break
        for call in answer.tool_calls:
            output = add.invoke(call)
            assert isinstance(output, ToolMessage)
            history.append(output)
            told.append(output.text)

    assert [*told, answer.text] == said


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_json_text_is_parsed_into_a_model(server: RunningServer, method: Any) -> None:
    """F1."""
    model = chat(server).with_structured_output(Weather, method=method)

    assert model.invoke("weather as JSON") == Weather(city="Paris", degrees=21)


def test_a_failure_is_raised_in_the_words_of_the_server(server: RunningServer) -> None:
    """D-05, D-32."""
    with pytest.raises(APIError, match="it broke"):
        chat(server).invoke("boom")
    with pytest.raises(APIError, match="it broke"):
        list(chat(server).stream("boom"))
