"""The use case at the heart of the service: a request is checked, accepted and set running.

Everything that can refuse a turn comes first; then `ResponseCreated` says that it was accepted, and from
there on whatever happens is an event (D-26). `app.running` takes it from here to its end.
"""

import asyncio
import logging
from collections.abc import Callable

from app.chains import Chains
from app.live import LiveTurn
from app.models import Models, ServedModel
from app.persistence import TurnLog
from app.running import Plan, TurnRun
from app.settings import retention_s
from domain.conversation import Chain, conversation, effective_instructions, token_log
from domain.errors import ContextLengthError, ShuttingDownError
from domain.events import ResponseCreated, Sampling
from domain.ids import IdKind
from domain.ports import Clock, EventJournal, Framer, IdSource
from domain.request import DEFAULT_TEMPERATURE, DEFAULT_TOP_P, ENGINE_OUTPUT_TOKENS, TurnRequest
from domain.retention import expires_at
from domain.tokens import TokenIds, record_prompt

log = logging.getLogger("turnlog")

LOCAL_OWNER = "local"
"""Whose responses they are while there are no keys."""


class Turns:
    """Begins turns and sees each through to its last event.

    Args:
        live: where the turns are found whose last event is not stored yet, by response id.
        new_framer: makes the framer of one stream.
        boot_id: names this process, so that a chain knows which one made it (R-143).
    """

    def __init__(
        self,
        *,
        models: Models,
        chains: Chains,
        live: dict[str, LiveTurn],
        journal: EventJournal,
        clock: Clock,
        ids: IdSource,
        new_framer: Callable[[], Framer],
        boot_id: str,
    ) -> None:
        self._models = models
        self.chains = chains
        self._live = live
        self._journal = journal
        self._clock = clock
        self._ids = ids
        self._new_framer = new_framer
        self._boot_id = boot_id
        self._tasks: set[asyncio.Task[None]] = set()
        self._shutting_down = False

    async def begin(self, request: TurnRequest) -> LiveTurn:
        """Accept a turn and set it running.

        Raises:
            ResponsesError: the turn is refused; nothing has been recorded.
        """
        asked_ms = self._clock.now_ms()
        self._refuse_if_shutting_down()
        model = self._models.find(request.model)
        response_id = self._ids.new_id(IdKind.RESPONSE)
        chain = await self.chains.resolve(request.previous_response_id)
        instructions = effective_instructions(request.instructions, chain)
        plan = await asyncio.to_thread(make_plan, model, request, chain, instructions, asked_ms)
        self._refuse_if_shutting_down()
        created = self._created(response_id, request, instructions, model)
        return self._set_running(created, plan)

    async def shut_down(self, grace_s: float) -> None:
        """Take no new turns, end the running ones and see their writes through, for `grace_s` at most."""
        self._shutting_down = True
        for turn in list(self._live.values()):
            turn.abort("shutting_down")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)

    def _refuse_if_shutting_down(self) -> None:
        if self._shutting_down:
            raise ShuttingDownError

    def _created(
        self, response_id: str, request: TurnRequest, instructions: str | None, model: ServedModel
    ) -> ResponseCreated:
        now_ms = self._clock.now_ms()
        return ResponseCreated(
            at_ms=now_ms,
            response_id=response_id,
            model=request.model,
            input=request.input,
            instructions=instructions,
            previous_response_id=request.previous_response_id,
            sampling=Sampling(
                temperature=DEFAULT_TEMPERATURE if request.temperature is None else request.temperature,
                top_p=DEFAULT_TOP_P if request.top_p is None else request.top_p,
                seed=self._ids.new_seed() if request.seed is None else request.seed,
            ),
            max_output_tokens=request.max_output_tokens,
            metadata=request.metadata,
            store=request.store,
            expires_at=expires_at(now_ms, request.retention_s, retention_s()),
            retry_keys=request.retry_keys,
            instance_id=model.instance_id,
            boot_id=self._boot_id,
            owner=LOCAL_OWNER,
        )

    def _set_running(self, created: ResponseCreated, plan: Plan) -> LiveTurn:
        turn = LiveTurn(created, self._new_framer())
        # A turn that is not to be stored leaves no event, only what its readers read (D-30).
        turn_log = TurnLog(turn.response.id, self._journal) if created.store else None
        run = TurnRun(turn, turn_log, plan, clock=self._clock, ids=self._ids)
        if turn_log:
            turn_log.keep([created])
        self._live[turn.response.id] = turn
        task = asyncio.create_task(run.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._live.pop(turn.response.id))
        return turn


def make_plan(
    model: ServedModel, request: TurnRequest, chain: Chain, instructions: str | None, asked_ms: int
) -> Plan:
    """Render the conversation and see that it fits; heavy enough to be kept off the event loop.

    Raises:
        ContextLengthError: the prompt leaves no room for an answer (R-237, D-34).
    """
    prompt = model.engine.render(conversation(instructions, chain, request.input))
    tokens = len(prompt.ids)
    budget = request.max_output_tokens or ENGINE_OUTPUT_TOKENS
    window = model.engine.info.context_window_tokens
    if window is not None:
        if tokens >= window:
            raise ContextLengthError(tokens, window)
        budget = min(budget, window - tokens)
    record = record_prompt(prompt.ids, request.previous_response_id, _read_and_written(chain))
    return Plan(model=model, prompt=prompt, record=record, output_budget_tokens=budget, asked_ms=asked_ms)


def _read_and_written(chain: Chain) -> TokenIds:
    """The token ids of the chain, which the new prompt is told by; none if the log contradicts itself."""
    try:
        return token_log(chain)
    except ValueError:
        log.exception("[responses] the log of a prompt contradicts itself; the new one is recorded whole")
        return ()
