"""What is asked for in a query or by options, as a filter."""

import pytest

from tests.domain.stories import NOON_MS
from turnlog.app.audit.filters import read_filter
from turnlog.app.audit.times import read_time
from turnlog.domain.audit.filters import AuditFilter
from turnlog.domain.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90s", NOON_MS - 90_000),
        ("30m", NOON_MS - 1_800_000),
        ("30min", NOON_MS - 1_800_000),
        ("1h", NOON_MS - 3_600_000),
        ("2d", NOON_MS - 172_800_000),
        ("1w", NOON_MS - 604_800_000),
        ("1795000000", NOON_MS),
        ("1795000000.25", NOON_MS + 250),
        ("2026-11-18", 1_794_960_000_000),
        ("2026-11-18T11:06:40Z", NOON_MS),
        ("2026-11-18T13:06:40+02:00", NOON_MS),
        ("2026-11-18T13:06:40 02:00", NOON_MS),  # the plus sign of a query that was not escaped
        ("2026-11-18 11:06:40", NOON_MS),
    ],
)
def test_a_time_is_some_time_ago_a_date_or_unix_seconds(text: str, ms: int) -> None:
    """T2-37."""
    assert read_time("since", text, now_ms=NOON_MS) == ms


@pytest.mark.parametrize(
    "text", ["", "yesterday", "1y", "-1h", "2026-13-01", "1795000000000", "\u0661h", "nan"]
)
def test_what_is_no_time_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="until is") as refused:
        read_time("until", text, now_ms=NOON_MS)

    assert refused.value.param == "until"


def test_every_condition_has_a_name() -> None:
    given = {
        "since": "1h",
        "until": "1795000000",
        "state": "failed",
        "status": "failed",
        "reason": "error",
        "model": "tiny",
        "owner": "alice",
        "chain": "resp_a",
        "metadata.team": "x",
        "metadata.a.b": "",
        "tool": "add",
        "min_latency_ms": "5",
        "min_tokens": "6",
        "replay_of": "resp_b",
        "q": "abc",
        "limit": "50",
        "after": "resp_c",
        "order": "asc",
    }

    assert read_filter(given.items(), now_ms=NOON_MS) == AuditFilter(
        since_ms=NOON_MS - 3_600_000,
        until_ms=NOON_MS,
        state="failed",
        status="failed",
        reason="error",
        model="tiny",
        owner="alice",
        chain="resp_a",
        metadata={"team": "x", "a.b": ""},
        tool="add",
        min_latency_ms=5,
        min_tokens=6,
        replay_of="resp_b",
        q="abc",
        limit=50,
        after="resp_c",
        order="asc",
    )


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([("sttus", "failed")], "sttus"),
        ([("metadata", "x")], "metadata"),
        ([("metadata.", "x")], "metadata."),
        ([("since_ms", "1")], "since_ms"),
        ([("model", "a"), ("model", "b")], "model"),
        ([("metadata.k", "a"), ("metadata.k", "b")], "metadata.k"),
        ([("limit", "many")], "limit"),
        ([("min_tokens", "-1")], "min_tokens"),
        ([("min_latency_ms", "²")], "min_latency_ms"),
        ([("min_tokens", "9" * 30)], "min_tokens"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_name(given: list[tuple[str, str]], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read_filter(given, now_ms=NOON_MS)

    assert refused.value.param == param
