"""Conversations that were begun long ago, over HTTP: T2-08, D-37."""

import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.adapters.eventstore.stories import COMMITTED, STARTED, created, item_events, opened, recorded
from tests.app.http.test_turns import create, refused
from tests.app.scripts import write_script
from tests.serving import serving
from tests.waiting import until
from turnlog.domain.events import Recorded
from turnlog.domain.owners import LOCAL_OWNER

NOW_S = int(time.time())
DAY_S = 86_400


def life(name: str, previous: str | None, *, ago_s: int, kept_s: int, **fields: Any) -> list[Recorded]:
    """A turn of so long ago that was to be kept for so long."""
    made_s = NOW_S - ago_s
    begun = replace(
        created(name, previous=previous, at_ms=1000 * made_s),
        owner=LOCAL_OWNER,
        model="scripted",
        expires_at=made_s + kept_s,
        **fields,
    )
    return recorded(name, begun, STARTED, *item_events(f"msg_{name}"), COMMITTED)


def test_a_conversation_in_use_goes_on_and_what_was_limited_is_said_to_have_expired(tmp_path: Path) -> None:
    """T2-08, D-37: begun eight days ago, and used since."""
    lives = [
        life("resp_a", None, ago_s=8 * DAY_S, kept_s=7 * DAY_S),
        life("resp_b", "resp_a", ago_s=2 * DAY_S, kept_s=7 * DAY_S),
        life("resp_x", None, ago_s=DAY_S, kept_s=60, retention_s=60),
        life("resp_y", "resp_x", ago_s=DAY_S - 1, kept_s=7 * DAY_S),
    ]
    with opened(tmp_path / "turnlog.db") as store:
        for each in lives:
            store.journal.append(each).result()
    engine = ("--engine", "scripted", "--script", str(write_script(tmp_path)))

    with serving(tmp_path / "turnlog.db", *engine) as server, server.http as http:
        before = http.get("/v1/responses/resp_a").json()
        newest = create(http, "on", previous_response_id="resp_b")
        # The turn has ended; that it is stored may take a moment.
        until(lambda: http.get("/v1/responses/resp_a").json()["expires_at"] > before["expires_at"])
        after = http.get("/v1/responses/resp_a").json()
        audited = http.get("/v1/audit/responses/resp_a").json()
        read = http.get(f"/v1/responses/{newest['id']}")
        gone = http.get("/v1/responses/resp_x")
        ends = [
            refused(http.post("/v1/responses", json={"model": "scripted", "input": "on", **each}), 404)
            for each in ({"previous_response_id": "resp_x"}, {"previous_response_id": "resp_y"})
        ]

    assert before["expires_at"] == NOW_S + 5 * DAY_S
    assert after["expires_at"] == audited["response"]["expires_at"] == newest["expires_at"]
    assert newest["expires_at"] == newest["created_at"] + 7 * DAY_S
    assert read.json() == newest
    assert refused(gone, 404)["code"] == "response_not_found"
    assert {(each["code"], each["param"]) for each in ends} == {
        ("previous_response_expired", "previous_response_id")
    }
    assert ["'resp_x'" in each["message"] for each in ends] == [True, True]
