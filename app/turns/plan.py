"""The plan of a turn, made before it is accepted: its messages, prompt, tools and constraint.

Everything here can refuse the turn, and leaves no trace when it does (D-26).
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping

from msgspec import Struct

from turnlog.domain.conversation import (
    Answers,
    Chain,
    answers_among,
    completed,
    conversation,
    effective_instructions,
    placed,
    recorded_answers,
    replay,
    token_log,
)
from turnlog.domain.errors import (
    ContextLengthError,
    InvalidRequestError,
    PromptTooLongError,
    SchemaTooComplexError,
)
from turnlog.domain.events import Limit
from turnlog.domain.inputs import check_images, own_messages, resolve
from turnlog.domain.items import Item
from turnlog.domain.messages import Message
from turnlog.domain.ports import CallConstraint, CompiledConstraint, InferenceEngine, JsonConstraint, Prompt
from turnlog.domain.request import ENGINE_OUTPUT_TOKENS, TurnRequest
from turnlog.domain.tokens import PromptRecord, TokenIds, record_prompt
from turnlog.domain.toolcalls import canonical_history
from turnlog.domain.tools import Toolbox
from turnlog.domain.truncation import ShorterHistories, shorter_histories

log = logging.getLogger("turnlog")

MOST_KEPT_TOKENS = 4_096
"""The most room reserved for an answer whose length the request does not limit."""


MOST_COUNTED_TOKENS = 1_000_000
"""The longest prompt that is counted without being asked for, unless the window is even larger."""

MOST_HISTORIES = 512
"""How many shortened histories are considered, of which nine are rendered at most."""


class Plan(Struct, frozen=True, kw_only=True):
    """A turn that can be accepted. `asked_ms` is when its request came.

    `answers` are the conversation's answers that are in the prompt as the model's own ids.
    """

    instructions: str | None
    own: tuple[Message, ...]
    prompt: Prompt
    answers: Answers
    record: PromptRecord
    truncated_messages: int
    output_budget_tokens: int
    output_limit: Limit
    toolbox: Toolbox
    parallel_calls: bool
    constraint: CompiledConstraint | None
    asked_ms: int


def make_plan(
    engine: InferenceEngine,
    request: TurnRequest,
    chain: Chain,
    items: Mapping[str, Item],
    cached_answers: Answers,
    *,
    window_tokens: int | None,
    fits: bool = True,
    asked_ms: int,
) -> Plan:
    """Make the plan of a turn. Renders the prompt, so it is too slow for the event loop.

    Args:
        cached_answers: answers whose ids are known from cache entries; the log has those of the chain.
        window_tokens: how many tokens prompt and answer may have together; None if unknown.
        fits: whether a prompt that leaves no room for an answer is refused; otherwise it is only counted.
        items: the stored items that the request refers to, by id.

    Raises:
        ResponsesError: a rule is broken, a reference leads nowhere, or the prompt does not fit.
    """
    history = [message for response in chain for message in replay(response)]
    own = own_messages(
        resolve(request.input, items),
        history,
        {item.id for response in chain for item in response.items},
        # What was only read made no calls: Codex sends a whole history behind a prompt that was read ahead.
        continues=any(response.created.generate for response in chain),
        is_new=request.is_new,
    )
    check_images(own, readable=engine.info.reads_images)
    instructions = effective_instructions(request.instructions, chain)
    toolbox = Toolbox(request.tools, request.choice)
    constraint = _compile_constraint(engine, request, toolbox)
    messages = canonical_history(conversation(instructions, chain, own))
    if not request.generate and all(message.role == "system" for message in messages):
        messages.append(Message("user", ""))  # Templates want a question; what comes before it is read ahead.
    logged = recorded_answers(chain, engine.info.tokenizer_fingerprint)
    recorded = placed(completed(logged, cached_answers), messages)
    window = _Window(window_tokens, request, fits=fits)
    prompt, truncated = _fitting_prompt(engine, messages, recorded, toolbox, request, window=window)
    budget_tokens, limit = window.budget(prompt)
    return Plan(
        instructions=instructions,
        own=own,
        prompt=prompt,
        answers=answers_among(messages, recorded),
        record=_record(prompt, request, chain),
        truncated_messages=truncated,
        output_budget_tokens=budget_tokens if request.generate else 1,
        output_limit=limit,
        toolbox=toolbox,
        parallel_calls=request.parallel_tool_calls,
        constraint=constraint,
        asked_ms=asked_ms,
    )


def _compile_constraint(
    engine: InferenceEngine, request: TurnRequest, toolbox: Toolbox
) -> CompiledConstraint | None:
    """The answer's constraint: a required call, else a JSON format (D-08)."""
    many, json_format = request.parallel_tool_calls, request.json_format
    try:
        if toolbox.forced:
            return engine.compile(CallConstraint(toolbox.offered, many=many))
        if json_format:
            return engine.compile(JsonConstraint(json_format.schema, toolbox.offered, many))
    except InvalidRequestError as error:
        param = "tools" if toolbox.forced else "text.format"
        code = error.code if isinstance(error, SchemaTooComplexError) else "invalid_schema"
        raise InvalidRequestError(error.message, param=param, code=code) from error
    return None


def _fitting_prompt(
    engine: InferenceEngine,
    messages: list[Message],
    recorded: Mapping[int, TokenIds],
    toolbox: Toolbox,
    request: TurnRequest,
    *,
    window: "_Window",
) -> tuple[Prompt, int]:
    """The prompt, and how many of the oldest messages had to be dropped from it.

    Args:
        recorded: the ids of answers, by the index of their message.

    Raises:
        ContextLengthError: it leaves no room for an answer, however short it is made.
    """
    leading = sum(message.role == "system" for message in messages[:1])

    def render(candidate: list[Message]) -> Prompt | PromptTooLongError:
        left_out = len(messages) - len(candidate)
        kept = {index - left_out: ids for index, ids in recorded.items() if index - left_out >= leading}
        try:
            return engine.render(
                candidate,
                tools=toolbox.offered,
                effort=request.effort,
                recorded=kept,
                most_tokens=window.most_prompt_tokens,
            )
        except PromptTooLongError as too_long:
            return too_long

    found, left_out = render(messages), 0
    if isinstance(found, PromptTooLongError) and request.truncation == "auto":
        found, left_out = _longest_fitting(shorter_histories(messages), render, found)
    if isinstance(found, PromptTooLongError):
        raise window.refusal(found, fixed=render([*messages[:leading], Message("user", "")]))
    return found, left_out


def _longest_fitting(
    histories: ShorterHistories,
    render: Callable[[list[Message]], Prompt | PromptTooLongError],
    whole: PromptTooLongError,
) -> tuple[Prompt | PromptTooLongError, int]:
    """The prompt of the longest history that fits, and how many messages it leaves out.

    Of very many histories, every nth is tried. If none fits, why the shortest does not.

    Args:
        whole: why the whole conversation does not fit.
    """
    tried: dict[int, Prompt | PromptTooLongError] = {0: whole}

    def fits(place: int) -> int:
        tried[place] = render(histories[place])
        return int(isinstance(tried[place], Prompt))

    last = len(histories) - 1
    step = len(histories) // MOST_HISTORIES + 1
    places = [*range(step, last, step), *([last] if last else [])]
    index = bisect_left(places, 1, key=fits)
    place = places[index] if index < len(places) else last
    return tried[place], len(histories[0]) - len(histories[place])


class _Window:
    """Divides the model's context window between a prompt and its answer.

    With `truncation: auto` it reserves room for the requested output length, or else a quarter of the window,
    4,096 tokens at most (T2-06). Otherwise, room for one token is enough (R-237, D-34).

    Args:
        tokens: the window; None if unknown.
    """

    def __init__(self, tokens: int | None, request: TurnRequest, *, fits: bool) -> None:
        self._tokens = tokens
        self._fits = fits
        self._asked_tokens = request.max_output_tokens
        self._room_tokens = 1
        if request.truncation == "auto" and tokens is not None:
            self._room_tokens = max(1, min(tokens // 4, MOST_KEPT_TOKENS))
            # A model's own default may be more than its window.
            if request.max_output_tokens and "max_output_tokens" not in request.defaulted:
                self._room_tokens = request.max_output_tokens

    @property
    def most_prompt_tokens(self) -> int | None:
        """The longest prompt that leaves room for an answer, or that is counted."""
        if self._tokens is None:
            return None
        return self._tokens - self._room_tokens if self._fits else max(self._tokens, MOST_COUNTED_TOKENS)

    def budget(self, prompt: Prompt) -> tuple[int, Limit]:
        """The turn's output budget in tokens, and what limits it."""
        budget = self._asked_tokens or ENGINE_OUTPUT_TOKENS
        if self._tokens is None or budget <= self._tokens - len(prompt.ids):
            return budget, "max_output_tokens"
        return self._tokens - len(prompt.ids), "context_window"

    def refusal(
        self, too_long: PromptTooLongError, *, fixed: Prompt | PromptTooLongError
    ) -> ContextLengthError:
        """The error that states how much too long the prompt is.

        Args:
            fixed: the prompt without the conversation.
        """
        assert self._tokens is not None
        fixed_tokens = fixed.tokens if isinstance(fixed, PromptTooLongError) else len(fixed.ids)
        return ContextLengthError(
            too_long, self._tokens, fixed_tokens=fixed_tokens, room_tokens=self._room_tokens
        )


def _record(prompt: Prompt, request: TurnRequest, chain: Chain) -> PromptRecord:
    """The prompt as it is recorded: against its chain, unless the log will not have that."""
    if request.store and not all(response.created.store for response in chain):
        return record_prompt(prompt.ids, None, ())
    return record_prompt(prompt.ids, request.previous_response_id, _read_and_written(chain))


def _read_and_written(chain: Chain) -> TokenIds:
    """The chain's token ids, which the new prompt is recorded against; none if the log is inconsistent."""
    try:
        return token_log(chain)
    except ValueError:
        log.exception("[responses] inconsistent token log; recording the whole prompt")
        return ()
