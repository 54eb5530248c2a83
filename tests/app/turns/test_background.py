"""Background turns in one service: in whose turn they run, what they cost while they wait, how they end."""

import asyncio
import gc
import tracemalloc
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.app.scripts import SCRIPT
from tests.app.services import asked, running
from tests.domain.stories import CREATED
from tests.fakes.journal import HeldJournal, RefusingJournal
from turnlog.app.http.service import Service
from turnlog.app.turns import quotas
from turnlog.app.turns.queued_turns import Line, QueuedTurn, QueuedTurns
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.errors import (
    OwnersShareError,
    PreviousResponseNotCompletedError,
    ResponseNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from turnlog.domain.events import ResponseCreated, TurnFailed
from turnlog.domain.owners import LOCAL_OWNER
from turnlog.domain.response import Response, api_status

ONE_AT_A_TIME = SCRIPT | {"concurrency": 1, "context_window": None}
BIG = "x" * 1_000_000


async def begun(service: Service, text: str, **fields: object) -> str:
    """The id of a background turn that was accepted."""
    request = asked(text, background=True, **fields)
    with service.quotas.queueing(LOCAL_OWNER):
        return (await service.background.begin(request, LOCAL_OWNER)).id


async def ended(service: Service, response_id: str) -> Response:
    """The response at its end."""
    if queued := service.retrieval.queued(response_id):
        await queued.begun.wait()
    if turn := service.retrieval.live(response_id):
        await turn.settled.wait()
    return (await service.retrieval.response(response_id)).response


def queued(response_id: str, owner: str, model: str = "tiny") -> QueuedTurn:
    """A turn that waits."""
    return QueuedTurn(replace(CREATED, response_id=response_id, owner=owner, model=model), None)


def test_the_turns_of_one_owner_and_model_wait_for_each_other_only() -> None:
    """The lane then serves the owners in turn."""
    turns = QueuedTurns()
    for response_id in ("a1", "b1", "a2"):
        turns.add(queued(response_id, owner=response_id[0]))
    turns.add(queued("other", owner="a", model="large"))

    order = [each.response_id for each in iter(lambda: turns.next(Line("tiny", "a")), None)]

    assert order == ["a1", "a2"]


def test_a_turn_that_is_withdrawn_is_passed_over_and_known_until_it_is_removed() -> None:
    turns = QueuedTurns()
    first, second = queued("a1", "a"), queued("a2", "a")
    turns.add(first)
    turns.add(second)

    turns.withdraw(first)

    assert turns.of("a1", "a") is first
    assert (turns.of("a1", "b"), turns.of("a1", None)) == (None, first)
    assert turns.next(second.line) is second
    turns.remove(first)
    turns.remove(first)
    assert (turns.of("a1", "a"), turns.count_of("a")) == (None, 1)


async def test_an_owner_has_so_many_queued_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-40: counted apart from the turns that wait for their lane (D-38)."""
    monkeypatch.setattr(quotas, "MAX_BACKGROUND_TURNS", 3)
    async with running(tmp_path, ONE_AT_A_TIME) as service:
        hanging = await service.turns.begin(asked("hang"))
        ids = [await begun(service, "hi") for _ in range(3)]
        with pytest.raises(OwnersShareError):
            await begun(service, "hi")
        live = await service.turns.begin(asked("hi"))
        hanging.abort("client_abort")
        await live.settled.wait()
        answers = [api_status(await ended(service, each)) for each in ids]
        again = await begun(service, "hi")
        await ended(service, again)

    assert answers == ["completed"] * 3


async def test_queued_turns_keep_no_prompt_in_memory(tmp_path: Path) -> None:
    """D-40: but for the one that waits for its slot next."""
    async with running(tmp_path, ONE_AT_A_TIME) as service:
        hanging = await service.turns.begin(asked("hang"))
        await begun(service, f"first {BIG}")
        gc.collect()
        tracemalloc.start()
        for _ in range(10):
            await begun(service, f"hi {BIG}")
        gc.collect()
        grown_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        hanging.abort("client_abort")

    assert grown_bytes < 3 * len(BIG)


async def test_what_is_queued_is_not_continued_yet(tmp_path: Path) -> None:
    """D-12."""
    async with running(tmp_path, ONE_AT_A_TIME) as service:
        hanging = await service.turns.begin(asked("hang"))
        await begun(service, "hi")
        response_id = await begun(service, "hi")
        with pytest.raises(PreviousResponseNotCompletedError, match="is queued"):
            await service.turns.begin(asked("hi", previous_response_id=response_id))
        hanging.abort("client_abort")


async def test_a_turn_whose_chain_is_deleted_meanwhile_fails_and_says_so(tmp_path: Path) -> None:
    """D-37, D-40."""
    async with running(tmp_path, ONE_AT_A_TIME) as service:
        first = await service.turns.begin(asked("hi"))
        await first.settled.wait()
        hanging = await service.turns.begin(asked("hang"))
        await begun(service, "hi")
        response_id = await begun(service, "hi", previous_response_id=first.response.id)
        await service.deletion.delete(first.response.id, LOCAL_OWNER)
        hanging.abort("client_abort")
        response = await ended(service, response_id)

    assert isinstance(response.ended, TurnFailed)
    assert first.response.id in response.ended.message


@pytest.mark.parametrize("count", [1, 2])
async def test_a_queued_turn_is_cancelled_once(tmp_path: Path, count: int) -> None:
    """D-02: the one that is prepared for its slot, and one behind it."""
    async with running(tmp_path, ONE_AT_A_TIME) as service:
        hanging = await service.turns.begin(asked("hang"))
        ids = [await begun(service, "hi") for _ in range(count)]
        turns = await asyncio.gather(*(service.cancellation.cancel(ids[-1], LOCAL_OWNER) for _ in range(2)))
        hanging.abort("client_abort")
        for each in ids:
            await ended(service, each)
        story = await service.retrieval.events(ids[-1])

    assert all(turn and api_status(turn.response) == "cancelled" for turn in turns)
    assert [type(each.event) for each in story] == [ResponseCreated, TurnFailed]


async def test_a_turn_that_cannot_be_stored_is_not_accepted(tmp_path: Path) -> None:
    async with running(tmp_path, wrap=RefusingJournal()) as service:
        with pytest.raises(StorageError):
            await begun(service, "hi")

        assert list(service.retrieval._live.queued) == []


async def test_a_turn_that_is_stored_too_late_is_cancelled_when_it_lands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-40: its client was told that it was not accepted."""
    monkeypatch.setenv("TURNLOG_CHAIN_WRITE_WAIT_TIMEOUT_MS", "10")
    monkeypatch.setenv("MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS", "10")
    journal = HeldJournal(holds=ResponseCreated)
    async with running(tmp_path, wrap=journal) as service:
        with pytest.raises(StorageUnavailableError):
            await begun(service, "hi")
        journal.land()
        # The loop is told of the write before it is told of the read that follows.
        page = await asyncio.wrap_future(service.audit.log.find(AuditFilter()))
        response = await ended(service, page.rows[0].response_id)
        with pytest.raises(ResponseNotFoundError):
            await service.retrieval.response(f"resp_{'0' * 32}")

    assert api_status(response) == "cancelled"


@pytest.mark.parametrize("durability", ["best_effort", "strict"])
async def test_its_frames_are_the_same_with_strict_durability(tmp_path: Path, durability: str) -> None:
    """D-22, D-40."""
    async with running(tmp_path, durability=durability) as service:
        response_id = await begun(service, "think")
        waiting = service.retrieval.queued(response_id)
        log = await service.background.follow(waiting) if waiting else None
        told = [frame async for chunk in log.read() for frame in chunk] if log else []
        response = await ended(service, response_id)

    assert api_status(response) == "completed"
    assert not told or (told[1].startswith(b"event: response.queued"), told[-1].endswith(b"[DONE]\n\n")) == (
        True,
        True,
    )
