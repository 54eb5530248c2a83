"""What can still refuse a turn once it is admitted: its model, its chain, its references, its plan."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

from turnlog.app.models import Admission, Lease, Models
from turnlog.app.prefix_cache import PrefixCache, Scope
from turnlog.app.turns.chains import Chains
from turnlog.app.turns.in_flight import InTurn
from turnlog.app.turns.plan import Plan, make_plan
from turnlog.app.turns.retrieval import Retrieval
from turnlog.app.turns.unstored import UnstoredTurns
from turnlog.domain.continuation import check_identity
from turnlog.domain.conversation import Chain
from turnlog.domain.errors import BindingChangedError
from turnlog.domain.events import ResponseCreated
from turnlog.domain.inputs import ItemReference
from turnlog.domain.request import TurnRequest
from turnlog.domain.retention import earliest_expiry


class Prepared(NamedTuple):
    """A request that can be accepted: what its turn will be, the chain it continues, where caches are found.

    `asked_ms` is when the request came.
    """

    request: TurnRequest
    owner: str
    plan: Plan
    chain: Chain
    scope: Scope

    def expires_ms(self, created: ResponseCreated) -> int:
        """When the response can no longer be continued (`retention.earliest_expiry`).

        This number is all that the turn's last write keeps of the chain (R-126, R-352).
        """
        return earliest_expiry(created, (response.created for response in self.chain)) * 1000


class Preparation:
    """Prepares turns of this process; nothing of it is recorded.

    Args:
        boot_id: identifies this process, so that a chain records which one made it (R-143).
    """

    def __init__(
        self,
        *,
        models: Models,
        chains: Chains,
        retrieval: Retrieval,
        prefix_cache: PrefixCache,
        in_turn: InTurn,
        boot_id: str,
    ) -> None:
        self.models = models
        self.chains = chains
        self._retrieval = retrieval
        self.prefix_cache = prefix_cache
        self._in_turn = in_turn
        self.boot_id = boot_id

    async def of(
        self,
        request: TurnRequest,
        owner: str,
        admission: Admission,
        asked_ms: int,
        *,
        fits: bool = True,
        unstored: UnstoredTurns | None = None,
    ) -> Prepared:
        """Prepare a turn of `owner`; takes the lease of its model.

        Args:
            fits: whether to refuse a prompt that leaves no room for an answer.
            unstored: the turns that it may continue though the log does not have them.

        Raises:
            ResponsesError: the turn is refused.
        """
        lease = await admission.take_lease()
        request = request.with_defaults(self.models.defaults(lease.name))
        async with AsyncExitStack() as held:
            if request.previous_response_id:
                await held.enter_async_context(self._retrieval.places.one(owner))
            return await self._planned(request, owner, lease, asked_ms, fits=fits, unstored=unstored)

    async def _planned(
        self,
        request: TurnRequest,
        owner: str,
        lease: Lease,
        asked_ms: int,
        *,
        fits: bool,
        unstored: UnstoredTurns | None,
    ) -> Prepared:
        chain = await self.chains.resolve(request.previous_response_id, owner, unstored)
        if chain:
            self._check_model(chain, lease, exempt=request.replay_of is not None)
        referenced = {piece.id for piece in request.input if isinstance(piece, ItemReference)}
        items = await self._retrieval.items(referenced, owner) if referenced else {}
        scope = self.prefix_cache.scope(owner, request.cache_salt, lease.engine)
        window_tokens = self.models.window_tokens(lease.engine)
        work = partial(
            make_plan,
            lease.engine,
            request,
            chain,
            items,
            self.prefix_cache.answers(scope),
            window_tokens=window_tokens,
            fits=fits or request.truncation == "auto",
            asked_ms=asked_ms,
        )
        plan = await asyncio.wrap_future(self._in_turn((owner, lease.name), work))
        self.models.check_prompt(lease, plan.record.digest)
        return Prepared(request, owner, plan, chain, scope)

    def _check_model(self, chain: Chain, lease: Lease, *, exempt: bool) -> None:
        """Refuse to continue a chain on another model than the one it was made with (R-138, R-145).

        Args:
            exempt: whether a different model is intended, as in a replay (D-27).
        """
        if not lease.holds:
            raise BindingChangedError(lease.name, "while its previous response was looked up")
        if exempt:
            return
        check_identity(
            chain[-1],
            model=lease.name,
            boot_id=self.boot_id,
            instance_id=lease.instance_id,
            fingerprint=lease.engine.info.model_fingerprint,
        )
