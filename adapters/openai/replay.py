"""Replays on the wire: the request body, and the answer to a check."""

from typing import Any, Literal

from msgspec import Struct

from turnlog.domain.audit.check import Token, Verdict

Json = dict[str, Any]


class ReplayBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/responses/{id}/replay`; nothing in it must be given.

    - kind "rerun": the same input through the model again, a new response;
    - kind "retell": what was streamed, streamed again from the log;
    - kind "check": a re-run with the same seed on the same model, answered by whether the output is the same.

    `set` changes settings of a re-run, such as temperature; `yields` lets live turns go first.
    """

    kind: Literal["rerun", "retell", "check"] = "rerun"
    model: str | None = None
    seed: Literal["same", "new"] = "same"
    set: dict[str, Any] = {}
    stream: bool = False
    pace: Literal["fast", "original"] = "fast"
    yields: bool = False


def verdict_object(verdict: Verdict) -> Json:
    """What a check found; the difference is the first place where the answers are not the same."""
    first = verdict.difference
    return {
        "object": "replay.check",
        "original": verdict.original,
        "replay": verdict.replay,
        "identical": verdict.identical,
        "compared": verdict.compared,
        "same_prompt": verdict.same_prompt,
        "alone": verdict.alone,
        "first_difference": first
        and {"index": first.at, "original": _place(first.original), "replay": _place(first.replay)},
    }


def _place(output: Token | str | None) -> Json | None:
    """A token with its text, or a piece of text; None where an answer had ended."""
    if isinstance(output, Token):
        return {"token": output.id, "text": output.text}
    return None if output is None else {"text": output}
