"""On a model that can be batched, the `SoloGenerator` does what `BatchGenerator` does, token for token."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.mlx.model import load
from adapters.mlx.runtime import BatchGenerator, make_prompt_cache, mx
from adapters.mlx.sampling import penalties, sampler
from adapters.mlx.solo import SoloGenerator
from domain.events import Sampling
from tests.adapters.mlx.asking import GREEDY, SEEDED

PROMPT = [(11 * place) % 250 for place in range(50)]
Generator = Any
Make = Callable[[Any, Sequence[int]], Generator]


@pytest.fixture(scope="module")
def network(tiny_folder: Path) -> Any:
    return load(tiny_folder).network


def solo(network: Any, ends: Sequence[int] = ()) -> Generator:
    return SoloGenerator(network, stop_tokens=frozenset(ends), prefill_step_size=16)


def batching(network: Any, ends: Sequence[int] = ()) -> Generator:
    return BatchGenerator(
        network,
        stop_tokens=[[end] for end in ends],
        prefill_step_size=16,
        stream=mx.default_stream(mx.default_device()),
    )


def insert(
    generator: Generator, sampling: Sampling = GREEDY, *, budget: int = 40, warm: list[Any] | None = None
) -> int:
    """Ask for an answer to `PROMPT`, of which `warm` has read the first 20 tokens."""
    known = 0 if warm is None else 20
    [uid] = generator.insert(
        [PROMPT[known:]],
        max_tokens=[budget],
        caches=[warm],
        all_tokens=[PROMPT[:known]],
        samplers=[sampler(sampling)],
        logits_processors=[penalties(sampling, len(PROMPT))],
    )
    return int(uid)


def answers(generator: Generator, turns: int = 1) -> dict[int, list[Any]]:
    """What is told of each sequence until so many have ended."""
    told: dict[int, list[Any]] = {}
    while turns:
        for response in generator.next()[1]:
            told.setdefault(response.uid, []).append(response)
            turns -= response.finish_reason is not None
    return told


def answer(generator: Generator, sampling: Sampling = GREEDY, *, budget: int = 40) -> list[Any]:
    """What is told of one sequence."""
    uid = insert(generator, sampling, budget=budget)
    return answers(generator)[uid]


def summary(responses: list[Any]) -> tuple[list[int], str, list[int], set[int]]:
    """The tokens, why they ended, and what was read: the ids and how far each layer came."""
    last = responses[-1]
    offsets = {layer.offset for layer in last.prompt_cache}
    return [response.token for response in responses], last.finish_reason, last.all_tokens, offsets


@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        SEEDED,
        replace(SEEDED, temperature=1.0, top_p=1.0),
        replace(GREEDY, repetition_penalty=1.5, presence_penalty=0.5),
        replace(SEEDED, frequency_penalty=0.7),
    ],
)
def test_the_same_tokens_with_the_same_probabilities(network: Any, sampling: Sampling) -> None:
    mine, theirs = (answer(make(network), sampling) for make in (solo, batching))

    assert summary(mine) == summary(theirs)
    assert all(
        mx.allclose(one.logprobs, other.logprobs, atol=1e-4).item()
        for one, other in zip(mine, theirs, strict=True)
    )
    assert mine[0].logprobs.shape == theirs[0].logprobs.shape


@pytest.mark.parametrize("make", [solo, batching])
def test_the_layers_have_read_what_is_told_at_the_end(network: Any, make: Make) -> None:
    generator = make(network, ())
    tokens, reason, ids, offsets = summary(answer(generator, budget=10))

    # Both ends at once: the end token says why.
    stopped = summary(answer(make(network, tokens[4:5]), budget=5))

    assert (len(tokens), reason, ids, offsets) == (10, "length", PROMPT + tokens, {60})
    assert stopped == (tokens[:5], "stop", PROMPT + tokens[:5], {55})


@pytest.mark.parametrize("make", [solo, batching])
def test_a_sequence_that_is_removed_leaves_what_it_has_read(network: Any, make: Make) -> None:
    generator = make(network, ())
    full = summary(answer(generator, budget=10))[2]
    left: list[tuple[list[int], set[int]]] = []

    for steps in range(9):
        uid = insert(generator)
        for _ in range(steps):
            generator.next()
        layers, ids = generator.remove([uid], return_prompt_caches=True)[uid]
        left.append((ids, {layer.offset for layer in layers}))

    # Pieces of 16 tokens, all but the prompt's last; that one alone; and then what was told.
    assert left == [(full[:read], {read}) for read in (0, 16, 32, 48, 49, 50, 51, 52, 53)]
    assert generator.next() == ([], [])
    assert generator.remove([77], return_prompt_caches=True) == {}


@pytest.mark.parametrize("make", [solo, batching])
def test_a_warm_start_goes_on_from_what_is_known(network: Any, make: Make) -> None:
    warm = make_prompt_cache(network)
    network(mx.array([PROMPT[:20]]), cache=warm)
    sampling = replace(SEEDED, repetition_penalty=1.3)
    generator = make(network, ())

    insert(generator, sampling)
    insert(generator, sampling, warm=warm)
    cold, continued = answers(generator, turns=2).values()

    assert summary(continued) == summary(cold)


def test_the_piece_that_a_step_reads_can_be_changed(network: Any) -> None:
    generator = solo(network)
    first, second = insert(generator), insert(generator)

    read = []
    for size in (10, 30, 100):
        generator.prefill_step_size = size
        prompts, _ = generator.next()
        read.append([(prompt.uid, prompt.end_of_prompt) for prompt in prompts])
    generator.next()
    generator.remove([first])

    assert read == [[(first, False)], [(first, False)], [(first, False)]]
    assert generator.remove([second], return_prompt_caches=True)[second][1] == []


def test_sequences_wait_for_those_before_them(network: Any) -> None:
    generator = solo(network)
    uids = [insert(generator, budget=budget) for budget in (3, 2, 1)]

    told = answers(generator, turns=3)

    assert [(uid, len(responses)) for uid, responses in told.items()] == list(
        zip(uids, (3, 2, 1), strict=True)
    )


def test_what_cannot_be_run_is_not_queued(network: Any) -> None:
    generator = solo(network)

    with pytest.raises(ValueError, match="max_tokens must be > 0"):
        insert(generator, budget=0)
    with pytest.raises(ValueError, match="empty prompt"):
        generator.insert(
            [[]],
            max_tokens=[1],
            caches=[None],
            all_tokens=[[]],
            samplers=[sampler(GREEDY)],
            logits_processors=[[]],
        )

    assert generator.next() == ([], [])
    generator.close()
