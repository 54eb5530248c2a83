"""Both generators say what `mlx_lm`'s `BatchGenerator` says, token for token, ahead or not."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.adapters.mlx.asking import GREEDY, SEEDED
from turnlog.adapters.mlx.ensemble import EnsembleGenerator
from turnlog.adapters.mlx.model import load
from turnlog.adapters.mlx.runtime import BatchGenerator, make_prompt_cache, mx
from turnlog.adapters.mlx.sampling import penalties, sampler
from turnlog.adapters.mlx.solo import SoloGenerator
from turnlog.domain.events import Sampling

PROMPT = [(11 * place) % 250 for place in range(50)]
Generator = Any
Make = Callable[[Any, Sequence[int]], Generator]


@pytest.fixture(scope="module")
def network(tiny_folder: Path) -> Any:
    return load(tiny_folder).network


def solo(network: Any, ends: Sequence[int] = (), *, ahead: bool = False) -> Generator:
    return SoloGenerator(network, ahead=ahead, stop_tokens=frozenset(ends), prefill_step_size=16)


def ensemble(
    network: Any, ends: Sequence[int] = (), *, ahead: bool = False, window: int | None = None
) -> Generator:
    return EnsembleGenerator(network, ahead=ahead, max_kv_size=window, **batching(ends))


def reference(network: Any, ends: Sequence[int] = ()) -> Generator:
    return BatchGenerator(network, **batching(ends))


def batching(ends: Sequence[int]) -> dict[str, Any]:
    stream = mx.default_stream(mx.default_device())
    return {"stop_tokens": [[end] for end in ends], "prefill_step_size": 16, "stream": stream}


MAKES = [solo, partial(solo, ahead=True), ensemble, partial(ensemble, ahead=True)]
every_generator = pytest.mark.parametrize(
    "make", MAKES, ids=["solo", "solo ahead", "ensemble", "ensemble ahead"]
)


def is_ahead(make: Make) -> bool:
    return isinstance(make, partial)


def insert(
    generator: Generator,
    sampling: Sampling = GREEDY,
    *,
    budget: int = 40,
    prompt: Sequence[int] = PROMPT,
    warm: list[Any] | None = None,
) -> int:
    """Ask for an answer to `prompt`, of which `warm` has read the beginning."""
    known = 0 if warm is None else warm[0].offset
    [uid] = generator.insert(
        [list(prompt[known:])],
        max_tokens=[budget],
        caches=[warm],
        all_tokens=[list(prompt[:known])],
        samplers=[sampler(sampling)],
        logits_processors=[penalties(sampling, len(prompt))],
    )
    return int(uid)


def reading(network: Any, prompt: Sequence[int], window: int | None = None) -> list[Any]:
    """The layers after they have read that."""
    layers = make_prompt_cache(network, window)
    network(mx.array([prompt]), cache=layers)
    return layers


def step(generator: Generator, told: dict[int, list[Any]]) -> None:
    """Take a step; what is told in it goes to that of its sequence."""
    for response in generator.next()[1]:
        told.setdefault(response.uid, []).append(response)


def ended(told: dict[int, list[Any]]) -> int:
    return sum(responses[-1].finish_reason is not None for responses in told.values())


def answers(generator: Generator, turns: int = 1) -> dict[int, list[Any]]:
    """What is told of each sequence until so many have ended."""
    told: dict[int, list[Any]] = {}
    while ended(told) < turns:
        step(generator, told)
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


@every_generator
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
def test_the_same_tokens_with_the_same_probabilities(network: Any, make: Make, sampling: Sampling) -> None:
    mine, theirs = (answer(made(network, ()), sampling) for made in (make, reference))

    assert summary(mine)[:2] == summary(theirs)[:2]
    assert all(
        mx.allclose(one.logprobs, other.logprobs, atol=1e-4).item()
        for one, other in zip(mine, theirs, strict=True)
    )
    assert mine[0].logprobs.shape == theirs[0].logprobs.shape


@every_generator
def test_the_layers_have_read_what_is_told_at_the_end(network: Any, make: Make) -> None:
    tokens, reason, ids, offsets = summary(answer(make(network, ()), budget=10))

    # Both ends at once: the end token says why.
    stopped = summary(answer(make(network, tokens[4:5]), budget=5))

    unread = 0 if is_ahead(make) else 1
    assert (len(tokens), reason, ids, offsets) == (
        10,
        "length",
        [*PROMPT, *tokens][: 60 - unread],
        {60 - unread},
    )
    assert stopped == (tokens[:5], "stop", [*PROMPT, *tokens][: 55 - unread], {55 - unread})


@every_generator
def test_a_sequence_that_is_removed_leaves_what_it_has_read(network: Any, make: Make) -> None:
    generator = make(network, ())
    full = PROMPT + summary(answer(generator, budget=10))[0]
    left: list[tuple[list[int], set[int]]] = []

    for steps in range(9):
        uid = insert(generator)
        for _ in range(steps):
            generator.next()
        layers, ids = generator.remove([uid], return_prompt_caches=True)[uid]
        left.append((ids, {layer.offset for layer in layers}))

    # Pieces of 16 tokens, all but the prompt's last; that one alone; and then the answer's.
    assert left == [(full[:read], {read}) for read in (0, 16, 32, 48, 49, 50, 51, 52, 53)]
    assert generator.next() == ([], [])
    assert generator.remove([77], return_prompt_caches=True) == {}


@every_generator
def test_the_first_token_is_told_by_the_step_that_ends_the_prompt_unless_it_runs_ahead(
    network: Any, make: Make
) -> None:
    generator = make(network, ())
    uid = insert(generator, budget=3)

    steps = [generator.next() for _ in range(7 + is_ahead(make))]

    assert [[prompt.end_of_prompt for prompt in read] for read, _ in steps[:5]] == [[False]] * 4 + [[True]]
    assert [len(told) for _, told in steps] == [0] * (4 + is_ahead(make)) + [1] * 3
    assert {response.uid for _, told in steps for response in told} == {uid}


@every_generator
def test_a_warm_start_goes_on_from_what_is_known(network: Any, make: Make) -> None:
    warm = reading(network, PROMPT[:20])
    sampling = replace(SEEDED, repetition_penalty=1.3)
    generator = make(network, ())

    insert(generator, sampling)
    insert(generator, sampling, warm=warm)
    cold, continued = answers(generator, turns=2).values()

    assert summary(continued) == summary(cold)


@pytest.mark.parametrize("ahead", [False, True], ids=["behind", "ahead"])
@pytest.mark.parametrize("window", [None, 12, 24], ids=["all", "12", "24"])
def test_sequences_come_and_go_and_say_what_they_say_alone(
    network: Any, window: int | None, *, ahead: bool
) -> None:
    """Also with layers that keep no more than a `window` of what they have read."""
    make = partial(ensemble, network, ahead=ahead, window=window)
    prompts = [PROMPT, PROMPT[7:], PROMPT[:1], [5, *PROMPT], PROMPT[30:]]
    samplings = [GREEDY, SEEDED, replace(SEEDED, repetition_penalty=1.3), GREEDY, GREEDY]
    alone = []
    for prompt, sampling in zip(prompts, samplings, strict=True):
        generator = make()
        insert(generator, sampling, budget=12, prompt=prompt)
        [responses] = answers(generator).values()
        alone.append(summary(responses))

    generator = make()
    told: dict[int, list[Any]] = {}
    uids = []
    for number, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True)):
        # Every other one has but one token left to read.
        warm = reading(network, prompt[:-1], window) if number % 2 else None
        uids.append(insert(generator, sampling, budget=12, prompt=prompt, warm=warm))
        leaving = insert(generator, prompt=prompt[:20])
        for _ in range(3):
            step(generator, told)
        generator.remove([leaving])
    while ended(told) < len(uids):
        step(generator, told)

    assert [summary(told[uid]) for uid in uids] == alone


def test_the_piece_that_a_step_reads_can_be_changed(network: Any) -> None:
    generator = solo(network)
    first, second = insert(generator), insert(generator)

    read = []
    for size in (10, 30, 100):
        generator.prefill_step_size = size
        prompts, _ = generator.next()
        read.append([(prompt.uid, prompt.end_of_prompt) for prompt in prompts])
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
