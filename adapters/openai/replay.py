"""Replays on the wire: what a request for one says, and what a check answers."""

from typing import Any, Literal

from msgspec import Struct

Json = dict[str, Any]


class ReplayBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/responses/{id}/replay`; nothing in it must be given.

    - kind "rerun": the same input through the model again, a new response;
    - kind "retell": what was streamed, streamed again from the log;
    - kind "check": a re-run with the same seed on the same model, answered by whether it said the same.

    `set` changes settings of a re-run, such as temperature; `yields` lets live turns go first.
    """

    kind: Literal["rerun", "retell", "check"] = "rerun"
    model: str | None = None
    seed: Literal["same", "new"] = "same"
    set: dict[str, Any] = {}
    stream: bool = False
    pace: Literal["fast", "original"] = "fast"
    yields: bool = False


def verdict_object(
    *,
    original: str,
    replay: str,
    compared: str,
    identical: bool,
    same_prompt: bool,
    alone: bool,
    difference: tuple[int, Any, Any] | None,
) -> Json:
    """What a check found; the difference is the first place where the answers are not the same."""
    first = None
    if difference:
        index, said, said_again = difference
        first = {"index": index, "original": _place(said), "replay": _place(said_again)}
    return {
        "object": "replay.check",
        "original": original,
        "replay": replay,
        "identical": identical,
        "compared": compared,
        "same_prompt": same_prompt,
        "alone": alone,
        "first_difference": first,
    }


def _place(what: Any) -> Json | None:
    """A token with its text, or a piece of text; None where an answer had ended."""
    if what is None:
        return None
    return {"text": what} if isinstance(what, str) else {"token": what[0], "text": what[1]}
