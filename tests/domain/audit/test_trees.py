"""A conversation laid out: lines, forks, failed tries, replays."""

from hypothesis import given
from hypothesis import strategies as st

from tests.domain.audit.rows import FAILED, row
from turnlog.domain.audit.rows import AuditRow
from turnlog.domain.audit.trees import lay_out


def told(rows: list[AuditRow]) -> list[tuple[str, str, int]]:
    return [(node.row.response_id, node.kind, node.depth) for node in lay_out(rows)]


def test_what_branches_off_stands_where_it_branches_off() -> None:
    rows = [
        row("a", created_ms=1),
        row("b", "a", created_ms=2),
        row("broken", "b", created_ms=3, **FAILED),
        row("c", "b", created_ms=4),
        row("fork", "a", created_ms=5),
        row("on", "fork", created_ms=6),
        row("again", "b", created_ms=7, replay_of="broken"),
        row("more", "again", created_ms=8),
        row("a2", created_ms=9, replay_of="a"),
    ]

    assert told(rows) == [
        ("a", "start", 0),
        ("fork", "fork", 1),
        ("on", "continuation", 1),
        ("a2", "replay", 1),
        ("b", "continuation", 0),
        ("broken", "attempt", 1),
        ("again", "replay", 2),
        ("more", "continuation", 2),
        ("c", "continuation", 0),
    ]


def test_tries_at_the_first_request_come_before_the_one_that_stands() -> None:
    rows = [row("x", created_ms=1, **FAILED), row("a", created_ms=2), row("b", "a", created_ms=3)]

    assert told(rows) == [("x", "attempt", 1), ("a", "start", 0), ("b", "continuation", 0)]


def test_a_line_that_only_failed_ends_with_the_last_try() -> None:
    rows = [
        row("a", created_ms=1),
        row("x", "a", created_ms=2, **FAILED),
        row("y", "a", created_ms=3, **FAILED),
    ]

    assert told(rows) == [("a", "start", 0), ("x", "attempt", 1), ("y", "continuation", 0)]


def test_a_conversation_whose_beginning_is_gone_begins_with_what_is_left() -> None:
    assert told([row("b", "gone"), row("c", "b", created_ms=1001)]) == [
        ("b", "start", 0),
        ("c", "continuation", 0),
    ]


def test_a_very_long_conversation_is_laid_out() -> None:
    rows = [row(f"r{n}", f"r{n - 1}" if n else None, created_ms=n) for n in range(10_000)]

    assert told(rows)[-1] == ("r9999", "continuation", 0)


@given(st.data())
def test_every_response_is_told_once_whatever_the_tree(data: st.DataObject) -> None:
    rows: list[AuditRow] = []
    for n in range(data.draw(st.integers(0, 12))):
        earlier = [each.response_id for each in rows]
        previous = data.draw(st.sampled_from([None, "gone", *earlier]))
        replay_of = data.draw(st.sampled_from([None, None, "gone", *earlier]))
        failed = FAILED if data.draw(st.booleans()) else {}
        rows.append(row(f"r{n}", previous, created_ms=n, replay_of=replay_of, **failed))

    nodes = lay_out(rows)

    assert sorted(node.row.response_id for node in nodes) == sorted(each.response_id for each in rows)
