"""How the next token is drawn: the same seed draws the same, alone, in a batch and in a replay."""

from collections.abc import Callable

from turnlog.adapters.mlx.runtime import apply_min_p, apply_top_k, apply_top_p, greedy_sampler, mx
from turnlog.domain.events import Sampling

Sampler = Callable[[mx.array], mx.array]
"""Takes log-probabilities, shape (batch, vocabulary), and gives token ids, shape (batch,)."""

Processor = Callable[[mx.array, mx.array], mx.array]
"""Takes all ids of a sequence so far, shape (T,), and its logits, shape (1, vocabulary); gives logits."""

_MASK = (1 << 64) - 1


def sampler(sampling: Sampling) -> Sampler:
    """What draws the tokens of one turn, from its first to its last.

    All greedy turns get the same object: `BatchGenerator` then draws for the whole batch in one call.
    """
    if sampling.temperature == 0:
        return greedy_sampler
    return SeededSampler(sampling)


class SeededSampler:
    """Draws the n-th token with a key made of the seed and n alone.

    MLX's own random state belongs to a thread and moves with every draw of any turn; this has none.
    """

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._step = 0

    def __call__(self, logprobs: mx.array) -> mx.array:
        key = splitmix64(self._sampling.seed, self._step)
        self._step += 1
        return mx.random.categorical(
            self._likely(logprobs) / self._sampling.temperature,
            key=mx.array([key >> 32, key & 0xFFFFFFFF], dtype=mx.uint32),
        )

    def _likely(self, logprobs: mx.array) -> mx.array:
        """Without the tokens that top_p, min_p and top_k leave out, in the order of `mlx_lm`."""
        sampling = self._sampling
        # Out of these bounds the functions would raise, and with them the step of the whole batch.
        if sampling.top_p < 1:
            logprobs = apply_top_p(logprobs, max(sampling.top_p, 1e-6))
        if 0 < sampling.min_p <= 1:
            logprobs = apply_min_p(logprobs, sampling.min_p)
        if 0 < sampling.top_k < logprobs.shape[-1]:
            logprobs = apply_top_k(logprobs, sampling.top_k)
        return logprobs


def splitmix64(seed: int, step: int) -> int:
    """The `step`-th number, counted from 0, of the SplitMix64 generator started with `seed`; 64 bits."""
    state = (seed + (step + 1) * 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def penalties(sampling: Sampling, prompt_tokens: int) -> list[Processor]:
    """What makes tokens less likely that were there before; none if nothing asks for it.

    A repetition penalty looks at prompt and answer, presence and frequency penalties at the answer only,
    all of them as far back as it goes.
    """
    found: list[Processor] = []
    if sampling.repetition_penalty > 0 and sampling.repetition_penalty != 1:
        found.append(RepetitionPenalty(sampling.repetition_penalty))
    if sampling.presence_penalty or sampling.frequency_penalty:
        found.append(
            AnswerPenalty(sampling.presence_penalty, sampling.frequency_penalty, after=prompt_tokens)
        )
    return found


class RepetitionPenalty:
    """Divides what speaks for a token that was there before, and multiplies what speaks against it."""

    def __init__(self, penalty: float) -> None:
        self._penalty = penalty

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        less = mx.where(logits < 0, logits * self._penalty, logits / self._penalty)
        return mx.where(_counts(tokens, logits) > 0, less, logits)


class AnswerPenalty:
    """Takes `presence` from a token that the answer has, and `frequency` for each time it has it."""

    def __init__(self, presence: float, frequency: float, *, after: int) -> None:
        self._presence = presence
        self._frequency = frequency
        self._after = after

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        counts = _counts(tokens[self._after :], logits)
        there = (counts > 0).astype(logits.dtype)
        return logits - self._presence * there - self._frequency * counts


def _counts(tokens: mx.array, logits: mx.array) -> mx.array:
    """How often each token of the vocabulary is there, in the type of the logits."""
    counts = mx.zeros((logits.shape[-1],), dtype=mx.float32).at[tokens].add(1.0)
    return counts.astype(logits.dtype)
