"""A stored turn as a request again: whatever made it what it was comes back."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.app.services import asked, running
from tests.domain.stories import CREATED
from turnlog.adapters.openai.request import decode_request
from turnlog.app.http.service import Service
from turnlog.domain.errors import InvalidRequestError, PreviousResponseNotFoundError
from turnlog.domain.events import ResponseCreated
from turnlog.domain.request import TurnRequest
from turnlog.domain.rerun import Changes, as_request

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}
RICH: dict[str, Any] = {
    "model": "scripted",
    "input": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": [{"type": "input_text", "text": "and"}]},
    ],
    "instructions": "Be kind.",
    "temperature": 0.3,
    "top_p": 0.9,
    "top_k": 7,
    "seed": 11,
    "stop": ["x"],
    "presence_penalty": 0.5,
    "max_output_tokens": 99,
    "tools": [TOOL],
    "tool_choice": "none",
    "parallel_tool_calls": False,
    "text": {"format": {"type": "json_object"}},
    "reasoning": {"effort": "high"},
    "truncation": "auto",
    "prompt_cache_key": "conversation",
    "cache_salt": "pepper",
    "max_tool_calls": 3,
    "safety_identifier": "somebody",
    "metadata": {"team": "a", "retention_seconds": 900},
    "top_logprobs": 2,
    "include": ["message.output_text.logprobs"],
}


def decoded(**fields: Any) -> TurnRequest:
    """The command that a body asks for."""
    return decode_request(msgspec.json.encode(fields), {})


async def made(service: Service, request: TurnRequest) -> ResponseCreated:
    """What is recorded of a turn of that request."""
    turn = await service.turns.begin(request)
    await turn.settled.wait()
    return turn.response.created


def of_the_turn(created: ResponseCreated) -> dict[str, Any]:
    """What is recorded, without what is new in every turn."""
    fields = msgspec.structs.asdict(created)
    for name in ("at_ms", "response_id", "expires_at", "replay_of"):
        del fields[name]
    return fields


async def test_a_turn_that_is_run_again_is_asked_for_in_every_way_as_it_was(tmp_path: Path) -> None:
    """Replay: the resolved seed, the effective instructions and all that was asked come from the log."""
    async with running(tmp_path) as service:
        first = await made(service, asked("hi", instructions="Be brief."))
        original = await made(service, decoded(**RICH))
        continuing = decoded(model="scripted", input="on", previous_response_id=first.response_id)
        continued = await made(service, continuing)

        again = await made(service, as_request(original, Changes()))
        continued_again = await made(service, as_request(continued, Changes()))

    assert of_the_turn(again) == of_the_turn(original)
    assert of_the_turn(continued_again) == of_the_turn(continued)
    assert (again.replay_of, continued_again.replay_of) == (original.response_id, continued.response_id)
    assert again.expires_at - again.at_ms // 1000 == 900
    assert continued_again.instructions == "Be brief."


def test_a_new_seed_another_model_and_settings_change_just_that() -> None:
    request = as_request(CREATED, Changes(model="big", new_seed=True, settings={"temperature": 0.2}))

    same = as_request(CREATED, Changes())
    assert (request.model, request.new_seed, request.sampling.temperature) == ("big", True, 0.2)
    assert (same.model, same.new_seed, same.sampling) == ("tiny", False, CREATED.sampling)
    assert msgspec.structs.replace(request, model="tiny", new_seed=False, sampling=same.sampling) == same


def test_what_cannot_be_changed_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError, match="'input' cannot be changed in a replay") as refusal:
        Changes(settings={"input": "something else"})

    assert refusal.value.param == "set.input"


async def test_a_replay_whose_chain_is_gone_says_so_before_it_starts(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        original = await made(service, asked("hi"))
        orphan = msgspec.structs.replace(original, previous_response_id="resp_gone")

        with pytest.raises(PreviousResponseNotFoundError, match="resp_gone"):
            await service.turns.begin(as_request(orphan, Changes()))
