"""How much one owner may have at a time (D-18), in the test's own loop."""

from pathlib import Path
from typing import Any

import pytest

from tests.app.scripts import HELLO, entry
from tests.app.services import asked, running
from turnlog.adapters.keys import KeyFile
from turnlog.app.http.service import Service
from turnlog.app.turns.live import LiveTurn
from turnlog.domain.errors import BacklogFullError, OwnersShareError
from turnlog.domain.events import TurnCommitted
from turnlog.domain.owners import LOCAL_OWNER, Role

ONE_BY_ONE: dict[str, Any] = {
    "concurrency": 1,
    "turns": [entry("hang", {"text": "Hel"}, {"hang": True}), HELLO],
}


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    """The folder of a log that has keys, so that its owners have shares."""
    KeyFile(tmp_path / "turnlog.db").add("alice", Role.CLIENT, now_s=0)
    return tmp_path


async def begun(service: Service, text: str, owner: str) -> LiveTurn:
    """A turn that was accepted within its owner's share."""
    with service.quotas.beginning(owner):
        return await service.turns.begin(asked(text), owner)


async def is_answered(turn: LiveTurn) -> None:
    """Wait for the first word of the answer."""
    async for frames in turn.frames.read():
        if any(b"output_text.delta" in frame for frame in frames):
            return


async def test_an_owner_has_so_many_turns_waiting_and_others_have_theirs(keyed: Path) -> None:
    """A turn waits until it has its lane; one that left the queue makes room."""
    async with running(keyed, ONE_BY_ONE, max_queued_turns_per_owner=2) as service:
        first = await begun(service, "hang", "alice")
        await is_answered(first)
        second, third = [await begun(service, "hi", "alice") for _ in range(2)]

        with pytest.raises(OwnersShareError, match=r"Queued turn limit reached \(2 per owner\)"):
            await begun(service, "hi", "alice")
        assert (await begun(service, "hi", "bob")).response.created.owner == "bob"

        third.abort("client_abort")
        await third.ended.wait()
        fourth = await begun(service, "hi", "alice")
        with pytest.raises(OwnersShareError):
            await begun(service, "hi", "alice")

        first.abort("client_abort")
        for turn in (second, fourth):
            await turn.ended.wait()
            assert isinstance(turn.response.ended, TurnCommitted)
        for _ in range(2):
            await begun(service, "hi", "alice")


async def test_what_is_being_accepted_counts_already(keyed: Path) -> None:
    """Or as many as come at once would all be let in before the first is counted."""
    async with running(keyed, ONE_BY_ONE, max_queued_turns_per_owner=2) as service:
        with service.quotas.beginning("alice"), service.quotas.beginning("alice"):
            with pytest.raises(OwnersShareError), service.quotas.beginning("alice"):
                pass
            with service.quotas.beginning("bob"):
                pass
        with pytest.raises(ZeroDivisionError), service.quotas.beginning("alice"):
            raise ZeroDivisionError
        with service.quotas.beginning("alice"), service.quotas.beginning("alice"):
            pass


async def test_an_owner_reads_so_many_streams(keyed: Path) -> None:
    """However each of them ends."""
    async with running(keyed, ONE_BY_ONE, max_streams_per_owner=2) as service:
        with service.quotas.streaming("alice"):
            with pytest.raises(ZeroDivisionError), service.quotas.streaming("alice"):
                raise ZeroDivisionError
            with service.quotas.streaming("alice"):
                with (
                    pytest.raises(OwnersShareError, match=r"Stream limit reached \(2 per owner\)"),
                    service.quotas.streaming("alice"),
                ):
                    pass
                with service.quotas.streaming("bob"):
                    pass
        with service.quotas.streaming("alice"), service.quotas.streaming("alice"):
            pass


async def test_without_keys_there_are_no_shares_and_unbounded_is_unbounded(tmp_path: Path) -> None:
    """R-040, D-38, G-023: everybody is one owner then; 600 turns wait, more than any default allows."""
    script = {"concurrency": 1, "turns": [entry("hang", {"hang": True})]}
    bounds: dict[str, Any] = {"max_queued_turns_per_owner": 1, "max_streams_per_owner": 1}
    async with running(tmp_path, script, max_queue_depth_per_model="unbounded", **bounds) as service:
        turns = [await begun(service, "hang", LOCAL_OWNER) for _ in range(601)]
        with service.quotas.streaming(LOCAL_OWNER), service.quotas.streaming(LOCAL_OWNER):
            assert service.models.status("scripted").queued_turns == 600

        for turn in turns:
            turn.abort("client_abort")


async def test_what_waits_is_bounded_in_bytes(tmp_path: Path) -> None:
    """D-38, T2-20: by what was sent; a turn that runs, and one that yields, count nothing."""
    async with running(tmp_path, ONE_BY_ONE, max_waiting_bytes=10_000) as service:
        begin = service.turns.begin
        first = await begin(asked("hang"), size_bytes=50_000)
        await is_answered(first)
        second = await begin(asked("hi"), size_bytes=6_000)

        with pytest.raises(BacklogFullError, match="Retry after"):
            await begin(asked("hi"), size_bytes=6_000)
        third = await begin(asked("hi"), size_bytes=6_000, yields=True)

        second.abort("client_abort")
        await second.ended.wait()
        fourth = await begin(asked("hi"), size_bytes=6_000)
        first.abort("client_abort")
        for turn in (third, fourth):
            await turn.ended.wait()
            assert isinstance(turn.response.ended, TurnCommitted)
