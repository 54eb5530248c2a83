"""Batched sequences: `mlx_lm`'s `BatchGenerator` with fewer forward passes.

Prompts, caches and sampling are `mlx_lm`'s; the difference is where an answer begins and when a token is
returned (decision 0013).
"""

from typing import Any

from turnlog.adapters.mlx.runtime import BatchGenerator, GenerationBatch, PromptProcessingBatch, mx


class EnsembleGenerator(BatchGenerator):
    """Reads the last token of a prompt in the same forward pass as the last tokens of the running answers.

    `BatchGenerator` reads it in a separate pass, and merges the two batches afterwards.

    Args:
        ahead: whether the next tokens are computed while the last ones are delivered, as `BatchGenerator`
            does. That keeps a GPU busy. A CPU is busy anyway: each token would only be a pass late, with one
            extra pass after the last.
        options: those of `BatchGenerator`.
    """

    def __init__(self, network: Any, *, ahead: bool, **options: Any) -> None:
        super().__init__(network, **options)
        self._prompt_batch = _Prompts.empty(network, self.sampler, self.prefill_step_size)
        self._generation_batch = _Answers.empty(network, self.sampler)
        self._generation_batch.ahead = ahead

    def _next(self) -> tuple[list[Any], list[Any]]:
        begun = self._begin_answers()
        read, made = super()._next()  # type: ignore[no-untyped-call]
        return begun + read, made

    def _begin_answers(self) -> list[Any]:
        """Start the answers of prompts that are read except for their last token.

        `BatchGenerator` does the same after this step's pass, and so a step later.
        """
        under_way = self._currently_processing
        ready = [
            place for place, (unread, *_) in enumerate(under_way) if [len(part) for part in unread] == [1]
        ]
        if not ready:
            return []
        answers = self._prompt_batch.split(ready).generate([under_way[place][0][0] for place in ready])
        self._currently_processing = [each for place, each in enumerate(under_way) if place not in ready]
        begun = [
            PromptProcessingBatch.Response(uid, progress=(), end_of_segment=True, end_of_prompt=True)
            for uid in answers.uids
        ]
        self._generation_batch.extend(answers)
        return begun


class _Prompts(PromptProcessingBatch):
    def generate(self, tokens: list[list[int]]) -> "_NewAnswers":
        """Answers to the prompts. `tokens` are the last ones of each, which are still to be read."""
        return _NewAnswers(
            self.model,
            self.uids,
            mx.array(tokens, mx.uint32)[:, 0],
            self.prompt_cache,
            self.tokens,
            self.samplers,
            self.fallback_sampler,
            self.logits_processors,
            self.stop_sequences,
            self.max_tokens,
        )


class _NewAnswers(GenerationBatch):
    """Answers that join others before their first pass."""

    def _step(self) -> tuple[list[int], list[mx.array]]:
        self._next_logprobs = [mx.array(0.0)] * len(self.uids)
        return [], []


class _Answers(GenerationBatch):
    ahead: bool

    def extend(self, batch: GenerationBatch) -> None:
        super().extend(batch)  # type: ignore[no-untyped-call]
        if self.ahead:
            # Their first token would otherwise be the last one of the prompt.
            self._num_tokens[-len(batch) :] = [-1] * len(batch)

    def next(self) -> list[Any]:
        """Compute a token of each answer; returns those to deliver."""
        if not self.uids:
            return []
        tokens, logprobs = self._step()
        if not self.ahead:
            tokens, logprobs = self._next_tokens.tolist(), self._next_logprobs  # type: ignore[assignment]
        made, left = [], []
        for place, (uid, token) in enumerate(zip(self.uids, tokens, strict=True)):
            self._num_tokens[place] += 1
            reason = None
            if self._num_tokens[place]:
                reason = self._reason(place, token)
                read = (self.extract_cache(place), self.tokens[place]) if reason else (None, None)
                made.append(self.Response(uid, token, logprobs[place], reason, *read))
            if reason is None:
                left.append(place)
        if len(left) < len(self.uids):
            self.filter(left)
        return made

    def _reason(self, place: int, token: int) -> str | None:
        """Why the answer ends with this token, if it does."""
        if self._matchers[place].advance(token):
            return "stop"
        return "length" if self._num_tokens[place] >= self.max_tokens[place] else None
