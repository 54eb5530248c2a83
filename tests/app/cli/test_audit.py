"""`turnlog ls`, `log`, `chain` and `compare` as an auditor types them, on a log without a server."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.adapters.eventstore.stories import (
    COMMITTED,
    FAILED,
    PERSISTED,
    STARTED,
    created,
    opened,
    recorded,
    turn,
)
from tests.app.commands import command, refusal, told
from turnlog.adapters.eventstore import finder
from turnlog.domain.events import ItemClosed, Recorded
from turnlog.domain.items import FunctionCallItem, MessageItem

FIRST = "resp_0a1"
SECOND = "resp_0a2"
BROKEN = "resp_0b1"
AGAIN = "resp_0b2"
CALL = "resp_0c1"
ESCAPES = "\x1b[2J\x1b[31m[red]I am the log[/]"


def said(response_id: str, text: str, answer: str, *, took_ms: int = 5, **fields: Any) -> list[Recorded]:
    begun = replace(created(response_id, text=text), **fields)
    item = MessageItem(f"msg_{response_id}", "completed", answer)
    closed = ItemClosed(at_ms=1004, output_index=0, item=item)
    committed = replace(COMMITTED, at_ms=begun.at_ms + took_ms)
    return recorded(response_id, begun, STARTED, closed, committed, PERSISTED)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A conversation of ada with a failed turn, its replay, a call and a fork."""
    path = tmp_path_factory.mktemp("audit") / "turnlog.db"
    call = FunctionCallItem("fc_1", "call_1", "add", '{"a":1}', "completed")
    closed = ItemClosed(at_ms=4001, output_index=0, item=call)
    broken = replace(created(BROKEN, previous=FIRST, text="boom", at_ms=2000), instructions="Be nice")
    failed = replace(FAILED, at_ms=2005, reason="error", message="the GPU is on fire")
    again = replace(broken, response_id=AGAIN, replay_of=BROKEN, at_ms=3000, model="big")
    asked = created(CALL, previous=FIRST, text="add it", at_ms=4000)
    of_team = {"metadata": {"team": "x"}, "instructions": "Be nice"}
    with opened(path) as store:
        for story in (
            said(FIRST, "What is a log?", "One\ntwo", took_ms=9, **of_team),
            recorded(BROKEN, broken, STARTED, failed),
            recorded(AGAIN, again, STARTED, replace(COMMITTED, at_ms=3005)),
            recorded(CALL, asked, STARTED, closed, replace(COMMITTED, at_ms=4005)),
            said(SECOND, ESCAPES, "One\ntoo", previous_response_id=FIRST, at_ms=5000),
            turn("resp_9", at_ms=6000)[:3],
        ):
            store.journal.append(story).result()
    return path


def listed(log: Path, *arguments: str) -> list[str]:
    """The ids that `ls` finds."""
    return [json.loads(line)["id"] for line in told(log, "ls", "--json", *arguments).splitlines()]


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        ((), ["resp_9", SECOND, CALL, AGAIN, BROKEN, FIRST]),
        (("--status", "failed"), [BROKEN]),
        (("--status", "error"), [BROKEN]),
        (("--status", "completed", "--order", "asc", "--limit", "1"), [FIRST]),
        (("--status", "in_progress"), ["resp_9"]),
        (("--state", "persisted", "--model", "big"), [AGAIN]),
        (("--reason", "error", "--until", "2"), []),
        (("--since", "4", "--until", "5"), [CALL]),
        (("--owner", "nobody"), []),
        (("--chain", "0c1"), [SECOND, CALL, AGAIN, BROKEN, FIRST]),
        (("--replay-of", "0b1"), [AGAIN]),
        (("--metadata", "team=x"), [FIRST]),
        (("--tool", "add"), [CALL]),
        (("--q", "GPU"), []),
        (("-q", "a LOG?"), [FIRST]),
        (("--min-tokens", "6"), []),
        (("--min-latency-ms", "6", "--after", "0a2"), [FIRST]),
        (("--limit", "2", "--after", "resp_9"), [SECOND, CALL]),
    ],
)
def test_responses_are_found_by_options(log: Path, arguments: tuple[str, ...], ids: list[str]) -> None:
    assert listed(log, *arguments) == ids


def test_a_list_is_a_table(log: Path) -> None:
    titles, *rows = told(log, "ls").splitlines()

    assert titles.split() == [
        "response",
        "created",
        "owner",
        "model",
        "state",
        "outcome",
        "duration",
        "tokens",
    ]
    words = [line.split() for line in rows]
    assert [line[0] for line in words] == ["resp_9", SECOND, CALL, AGAIN, BROKEN, FIRST]
    assert words[3][4:] == ["ada", "big", "persisted", "completed", "(replay)", "5", "ms", "5"]
    assert words[4][4:] == ["ada", "smol", "failed", "error", "5", "ms", "0"]


def test_a_short_text_is_looked_for_in_the_turns_themselves(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2-14: and the answer says how far."""
    shown = told(log, "ls", "-q", "LO")
    *ids, scan = [json.loads(line) for line in told(log, "ls", "--json", "-q", "lo").splitlines()]
    monkeypatch.setattr(finder, "SCANNED_RESPONSES", 1)
    cut = command(log, "ls", "-q", "lo")

    assert FIRST in shown
    assert [each["id"] for each in ids] == [SECOND, FIRST]
    assert scan == {
        "object": "audit.scan",
        "responses": 5,
        "reached": "1970-01-01T00:00:01.000Z",
        "reached_id": FIRST,
        "complete": True,
    }
    assert "Text this short has no index: searched 1 responses so far, up to " in cut.stderr
    assert f"More responses: add --after {SECOND}" in cut.stderr


def test_a_list_that_goes_on_says_how(log: Path) -> None:
    assert "More responses: add --after resp_0a2" in command(log, "ls", "--limit", "2").stderr
    assert command(log, "ls", "--owner", "nobody").stderr == "No matching responses.\n"


def test_a_failed_turn_is_told_with_the_reason_in_plain_words(log: Path) -> None:
    page = told(log, "log", "resp_0b1")

    assert page.startswith(
        "resp_0b1  failed (error)\nmodel smol, owner ada, created 1970-01-01 00:00:02 UTC, "
    )
    assert "continues resp_0a1\nreplayed by resp_0b2  completed\n" in page
    assert "Why it failed: The engine failed with an error" in page
    assert "Engine error: the GPU is on fire\nSuggested action: Check the engine error" in page


def test_what_the_model_saw_is_told_on_demand(log: Path) -> None:
    page = told(log, "log", BROKEN, "--seen")

    assert "system\n  Be nice\nuser\n  What is a log?\nassistant\n  One\n  two\nuser\n  boom\n" in page


def test_a_turn_that_runs_says_so(log: Path) -> None:
    assert "Still running." in told(log, "log", "resp_9")


def test_a_turn_whose_time_is_over_says_so(log: Path) -> None:
    assert "Expired: hidden from clients." in told(log, "log", FIRST)


def test_texts_of_strangers_cannot_take_over_the_terminal(log: Path) -> None:
    """Neither by escape sequences nor by the mark-up of the library that prints."""
    for arguments in (("log", SECOND, "--seen"), ("chain", SECOND, "--full"), ("chain", SECOND)):
        page = told(log, *arguments)
        assert "␛[2J␛[31m[red]I am the log[/]" in page
        assert "\x1b" not in page


def test_a_conversation_is_told_from_any_of_its_responses(log: Path) -> None:
    page = told(log, "chain", CALL, "--full")
    heads = [line.split("  2")[0] for line in page.splitlines() if "resp_" in line]

    assert page.startswith("conversation of 2 turns, 1 fork, 1 failed attempt, 1 replay\n")
    assert heads == [
        "● resp_0a1",
        "  ├ failed attempt resp_0b1",
        "    ├ replay resp_0b2",
        "  ├ fork resp_0a2",
        "● resp_0c1",
    ]
    assert "    What is a log?\n    One\n    two\n" in page
    assert '    [calls add {"a":1}]\n' in page


def test_a_conversation_is_told_as_json_in_the_order_to_read_it(log: Path) -> None:
    nodes = [json.loads(line) for line in told(log, "chain", "0a1", "--json").splitlines()]

    assert [(node["id"], node["kind"], node["depth"]) for node in nodes] == [
        (FIRST, "start", 0),
        (BROKEN, "attempt", 1),
        (AGAIN, "replay", 2),
        (SECOND, "fork", 1),
        (CALL, "continuation", 0),
    ]


def test_two_turns_are_told_beside_each_other(log: Path) -> None:
    page = told(log, "compare", BROKEN, AGAIN)
    texts = told(log, "compare", FIRST, SECOND)

    assert "outcome        failed (error)  completed" in page
    assert "model          smol            big" in page
    assert "input       same" in page
    assert "prompt      same" in page
    assert "text        different  from character 5\n" in texts
    assert texts.endswith("--- a\n+++ b\n@@ -1,2 +1,2 @@\n One\n-two\n+too\n")
    assert json.loads(told(log, "compare", "0a1", "0a2", "--json"))["text"]["first_difference"] == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ls", "--since", "soon"), "since is not a valid time. Expected a time such as"),
        (("ls", "--q", " "), "q must have at least one visible character."),
        (("ls", "--metadata", "team"), "--metadata is 'team': expected KEY=VALUE."),
        (("ls", "--min-tokens", "many"), "min_tokens must be an integer."),
        (("ls", "--limit", "5000"), "limit must be from 1 to 1000."),
        (("ls", "--status", "error", "--reason", "cancelled"), "exclude each other"),
        (("ls", "--chain", "resp_zz"), "begins with 'resp_zz'. List responses with 'turnlog ls'."),
        (("log", "resp_zz"), "No response id in"),
        (("log", "0"), "'resp_0' is ambiguous: resp_0a1, resp_0a2, resp_0b1, resp_0b2, resp_0c1. Type"),
        (("chain", "resp_"), "resp_0c1 …. Type more of the id."),
        (("compare", "resp_9", "zz"), "'resp_zz'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(log: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in refusal(log, *arguments)


@pytest.mark.parametrize("name", ["ls", "log", "chain", "compare", "export", "vacuum", "reindex"])
def test_a_log_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    wanted = {"log": ["x"], "chain": ["x"], "compare": ["x", "y"], "export": ["--out", str(tmp_path / "out")]}

    line = refusal(tmp_path / "missing.db", name, *wanted.get(name, []))

    assert f"No event store at '{tmp_path / 'missing.db'}'" in line
    assert not (tmp_path / "out").exists()


def test_a_whole_id_is_found_though_others_begin_with_it(tmp_path: Path) -> None:
    with opened(tmp_path / "turnlog.db") as store:
        for name in ("resp_a", "resp_ab"):
            store.journal.append(turn(name)).result()

    assert told(tmp_path / "turnlog.db", "log", "resp_a").startswith("resp_a ")
