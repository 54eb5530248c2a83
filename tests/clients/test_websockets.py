"""The clients that speak WebSocket mode, each in the way of its own (D-40). Codex is in `test_codex`."""

from agents import Agent, function_tool, responses_websocket_session
from openai import AsyncOpenAI

from tests.serving import RunningServer


@function_tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"the sum is {a + b}"


async def test_the_agents_sdk_runs_its_loop_on_one_connection(server: RunningServer) -> None:
    agent = Agent(name="Ada", instructions="Use the tool.", model="scripted", tools=[add])

    async with responses_websocket_session(base_url=f"{server.address}/v1", api_key="none") as session:
        whole = await session.run(agent, "add 1 and 2")
        streamed = session.run_streamed(agent, "add both pairs", auto_previous_response_id=True)
        async for _ in streamed.stream_events():
            pass

    assert whole.final_output == "1 and 2 make 3."
    assert streamed.final_output == "They make 3 and 7."


async def test_the_official_client_reads_two_streams_of_one_connection(server: RunningServer) -> None:
    told: dict[str | None, str] = {}
    async with (
        AsyncOpenAI(base_url=f"{server.address}/v1", api_key="none") as client,
        client.responses.connect() as connection,
    ):
        for stream_id, asked in (("a", "think"), ("b", "hi")):
            await connection.response.create(model="scripted", input=asked, stream_id=stream_id)
        async for event in connection:
            if event.type == "response.completed":
                told[event.stream_id] = event.response.output_text
            if len(told) == 2:
                break

    assert told == {"a": "Thought through.", "b": "Hello"}
