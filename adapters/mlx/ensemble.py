"""Sequences that are computed together: `mlx_lm`'s `BatchGenerator` with fewer passes through the model.

Prompts, caches and sampling are `mlx_lm`'s. What differs is where an answer begins and when a token is told
(decision 0013).
"""

from typing import Any

from turnlog.adapters.mlx.runtime import BatchGenerator, GenerationBatch, PromptProcessingBatch, mx


class EnsembleGenerator(BatchGenerator):
    """Reads the last token of a prompt in one pass with the last tokens of the answers that are under way.

    `BatchGenerator` reads it in a pass of its own, and makes one batch of the two afterwards.

    Args:
        ahead: whether the next tokens are computed while the last ones are told, as `BatchGenerator` does.
            That keeps a GPU busy. A CPU is busy anyway: a token is told a pass late then, and after the last
            one comes one more pass.
        options: those of `BatchGenerator`.
    """

    def __init__(self, network: Any, *, ahead: bool, **options: Any) -> None:
        super().__init__(network, **options)
        self._prompt_batch = _Prompts.empty(network, self.sampler, self.prefill_step_size)
        self._generation_batch = _Answers.empty(network, self.sampler)
        self._generation_batch.ahead = ahead

    def _next(self) -> tuple[list[Any], list[Any]]:
        begun = self._begin_answers()
        read, told = super()._next()  # type: ignore[no-untyped-call]
        return begun + read, told

    def _begin_answers(self) -> list[Any]:
        """Have the prompts that are read but for their last token answered from this step on.

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
            # What would be told of them first is the last token of the prompt.
            self._num_tokens[-len(batch) :] = [-1] * len(batch)

    def next(self) -> list[Any]:
        """Make a token of each answer; what is told."""
        if not self.uids:
            return []
        tokens, logprobs = self._step()
        if not self.ahead:
            tokens, logprobs = self._next_tokens.tolist(), self._next_logprobs  # type: ignore[assignment]
        told, left = [], []
        for place, (uid, token) in enumerate(zip(self.uids, tokens, strict=True)):
            self._num_tokens[place] += 1
            reason = None
            if self._num_tokens[place]:
                reason = self._reason(place, token)
                read = (self.extract_cache(place), self.tokens[place]) if reason else (None, None)
                told.append(self.Response(uid, token, logprobs[place], reason, *read))
            if reason is None:
                left.append(place)
        if len(left) < len(self.uids):
            self.filter(left)
        return told

    def _reason(self, place: int, token: int) -> str | None:
        """Why the answer ends with this token, if it does."""
        if self._matchers[place].advance(token):
            return "stop"
        return "length" if self._num_tokens[place] >= self.max_tokens[place] else None
