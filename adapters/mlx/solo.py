"""Sequences one after the other, for a model that cannot be batched: an `EnsembleGenerator` of batch size 1.

It implements the part of that interface which `Batch` uses, by the same rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from turnlog.adapters.mlx.runtime import make_prompt_cache, mx
from turnlog.adapters.mlx.sampling import Processor, Sampler

# Growing layers leave freed memory behind, which MLX keeps until its cache is cleared.
_TOKENS_BETWEEN_CLEARINGS = 512


@dataclass(frozen=True)
class PromptRead:
    """A piece of a prompt was read; tokens follow after the one with `end_of_prompt`."""

    uid: int
    end_of_prompt: bool


@dataclass(frozen=True)
class TokenMade:
    """The next token of a sequence. `logprobs` are of the whole vocabulary, shape (V,).

    The last one has `all_tokens`, the ids that were read, and the layers after them: prompt and answer, with
    the answer's last token only if it was read ahead.
    """

    uid: int
    token: int
    logprobs: mx.array
    finish_reason: str | None = None
    prompt_cache: list[Any] | None = None
    all_tokens: list[int] | None = None


class SoloGenerator:
    """Computes the first sequence until it ends or is removed, then the next. One thread only.

    Args:
        ahead: whether the next token is computed while the last one is delivered (see `EnsembleGenerator`).
        stop_tokens: ids that end an answer.
        prefill_step_size: how many tokens of a prompt a step reads; may be changed between steps.
    """

    def __init__(
        self, network: Any, *, ahead: bool, stop_tokens: frozenset[int], prefill_step_size: int
    ) -> None:
        self.prefill_step_size = prefill_step_size
        self._ahead = ahead
        self._network = network
        self._stop_tokens = stop_tokens
        # In the order of their arrival; the first is the one that is computed.
        self._sequences: dict[int, _Sequence] = {}
        self._inserted = 0
        # As BatchGenerator does: on a Mac, weights that may be paged out are slow to compute with.
        limit_bytes: Any = mx.device_info().get("max_recommended_working_set_size")
        self._old_wired_limit = None if limit_bytes is None else mx.set_wired_limit(limit_bytes)

    def insert(
        self,
        prompts: Sequence[list[int]],
        *,
        max_tokens: Sequence[int],
        caches: Sequence[list[Any] | None],
        all_tokens: Sequence[list[int]],
        samplers: Sequence[Sampler],
        logits_processors: Sequence[Sequence[Processor]],
    ) -> list[int]:
        """Queue sequences; returns their uids.

        Args:
            prompts: the unread part of each prompt.
            max_tokens: the longest answers.
            caches: layers that have read `all_tokens` already; they are written to.

        Raises:
            ValueError: a prompt is empty or an answer has no token budget; nothing is queued then.
        """
        if not all(prompts):
            raise ValueError("A sequence has an empty prompt.")
        if min(max_tokens) <= 0:
            raise ValueError("A sequence's max_tokens must be > 0.")
        uids = []
        asked = zip(prompts, max_tokens, caches, all_tokens, samplers, logits_processors, strict=True)
        for prompt, most, layers, ids, sampler, processors in asked:
            self._sequences[self._inserted] = _Sequence(
                network=self._network,
                ahead=self._ahead,
                unread=list(prompt),
                most_tokens=most,
                layers=make_prompt_cache(self._network) if layers is None else layers,
                ids=list(ids),
                sampler=sampler,
                processors=processors,
            )
            uids.append(self._inserted)
            self._inserted += 1
        return uids

    def next(self) -> tuple[list[PromptRead], list[TokenMade]]:
        """Read a piece of the first sequence's prompt or make its next token."""
        if not self._sequences:
            return [], []
        uid, sequence = next(iter(self._sequences.items()))
        if not sequence.is_at_last:
            sequence.read(self.prefill_step_size)
            return [PromptRead(uid, end_of_prompt=False)], []
        begun = [] if sequence.answers else [PromptRead(uid, end_of_prompt=True)]
        made = sequence.advance()
        if made is None:
            return begun, []
        token, logprobs = made
        reason = "stop" if token in self._stop_tokens else "length" if sequence.is_used_up else None
        if reason is None:
            return begun, [TokenMade(uid, token, logprobs)]
        del self._sequences[uid]
        return begun, [TokenMade(uid, token, logprobs, reason, sequence.layers, sequence.ids)]

    def remove(
        self, uids: Sequence[int], *, return_prompt_caches: bool = False
    ) -> dict[int, tuple[list[Any], list[int]]]:
        """Remove sequences; on request, returns the layers of each and the ids they have read.

        Unknown ones, such as those that have ended, are ignored.
        """
        removed = {uid: self._sequences.pop(uid) for uid in uids if uid in self._sequences}
        if not return_prompt_caches:
            return {}
        return {uid: (sequence.layers, sequence.ids) for uid, sequence in removed.items()}

    def close(self) -> None:
        """Drop all sequences. Idempotent."""
        self._sequences.clear()
        if self._old_wired_limit is not None:
            mx.synchronize()
            mx.set_wired_limit(self._old_wired_limit)
            self._old_wired_limit = None


@dataclass
class _Sequence:
    """A prompt and its answer. Invariant: the layers have read exactly `ids`."""

    network: Any
    ahead: bool
    unread: list[int]
    most_tokens: int
    layers: list[Any]
    ids: list[int]
    sampler: Sampler
    processors: Sequence[Processor]
    made_tokens: int = 0
    # The token that comes after them, shape (1,), with its log probabilities, shape (V,).
    _coming: tuple[mx.array, mx.array] | None = None
    # `ids`, for the processors.
    _context: mx.array = field(default_factory=lambda: mx.array([], dtype=mx.int32))

    @property
    def is_at_last(self) -> bool:
        """Whether the prompt is read but for its last token, at least."""
        return len(self.unread) <= 1

    @property
    def answers(self) -> bool:
        """Whether the prompt is read."""
        return not self.unread

    @property
    def is_used_up(self) -> bool:
        """Whether the answer is as long as it may be."""
        return self.made_tokens >= self.most_tokens

    def read(self, most_tokens: int) -> None:
        """Read a piece of the prompt, but never its last token."""
        piece = self.unread[: min(most_tokens, len(self.unread) - 1)]
        self.network(mx.array([piece]), cache=self.layers)
        mx.eval([layer.state for layer in self.layers])
        mx.clear_cache()
        self.ids += piece
        del self.unread[: len(piece)]

    def advance(self) -> tuple[int, mx.array] | None:
        """Read one more token, the prompt's last or the answer's; returns the token to deliver with its log
        probabilities. When computing ahead, that is the token just read, and None at first.
        """
        if self._coming is None:
            self._context = mx.array(self.ids, dtype=mx.int32)
            last, self.unread = mx.array(self.unread), []
        else:
            last, _ = self._coming
        made, self._coming = self._coming, self._after(last)
        self.ids.append(_id(last))
        if not self.ahead:
            made = self._coming
        if made is None:
            return None
        self.made_tokens += 1
        if self.made_tokens % _TOKENS_BETWEEN_CLEARINGS == 0:
            mx.clear_cache()
        token, logprobs = made
        return _id(token), logprobs

    def _after(self, token: mx.array) -> tuple[mx.array, mx.array]:
        """The successor of `token`, shape (1,). Starts the computation without waiting for it."""
        logits = self.network(token[None], cache=self.layers)[:, -1, :]
        if self.processors:
            self._context = mx.concatenate([self._context, token.astype(mx.int32)])
            for processor in self.processors:
                logits = processor(self._context, logits)
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        coming = self.sampler(logprobs), logprobs[0]
        mx.async_eval(*coming, self._context)  # type: ignore[no-untyped-call]
        return coming


def _id(token: mx.array) -> int:
    found: Any = token.item()
    return int(found)
