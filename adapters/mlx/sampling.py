"""How the next token is drawn: the same seed draws the same, alone, in a batch and in a replay."""

from collections.abc import Callable

from adapters.mlx.runtime import apply_top_p, greedy_sampler, mx
from domain.events import Sampling

Sampler = Callable[[mx.array], mx.array]
"""Takes log-probabilities, shape (batch, vocabulary), and gives token ids, shape (batch,)."""

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
        if self._sampling.top_p < 1:
            logprobs = apply_top_p(logprobs, self._sampling.top_p)
        return mx.random.categorical(
            logprobs / self._sampling.temperature,
            key=mx.array([key >> 32, key & 0xFFFFFFFF], dtype=mx.uint32),
        )


def splitmix64(seed: int, step: int) -> int:
    """The `step`-th number, counted from 0, of the SplitMix64 generator started with `seed`; 64 bits."""
    state = (seed + (step + 1) * 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)
