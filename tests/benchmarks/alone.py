"""A contestant without a server: `mlx_lm`'s bare `BatchGenerator`, or turnlog's engine on top of it.

Reads a JSON object a line, {"questions": [[message, …], …], "tokens": n}, and answers with what it measured.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter

import msgspec

from turnlog.adapters.engine_process.source import CONCURRENCY
from turnlog.adapters.mlx.batch import PREFILL_STEP_TOKENS
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.mlx.model import load
from turnlog.adapters.mlx.runtime import BatchGenerator
from turnlog.domain.events import Sampling
from turnlog.domain.messages import Message
from turnlog.domain.ports import EngineFinal, EngineOutput, Submission

Conversation = list[dict[str, str]]
Measured = dict[str, float]
Ask = Callable[[list[Conversation], int], Measured]


def bare(folder: Path) -> Ask:
    """Token ids in, token ids out. Prompts are read in pieces as long as those of turnlog's engine."""
    model = load(folder)
    generator = BatchGenerator(
        model.network, completion_batch_size=CONCURRENCY, prefill_batch_size=CONCURRENCY
    )

    def ask(questions: list[Conversation], tokens: int) -> Measured:
        prompts = [
            model.tokenizer.apply_chat_template(question, add_generation_prompt=True)
            for question in questions
        ]
        generator.prefill_step_size = PREFILL_STEP_TOKENS // len(prompts)
        began = perf_counter()
        running = set(generator.insert([list(prompt) for prompt in prompts], [tokens] * len(prompts)))
        made, unheard, first_s = 0, set(running), 0.0
        while running:
            _, responses = generator.next()  # type: ignore[no-untyped-call]
            for response in responses:
                made += 1
                unheard.discard(response.uid)
                first_s = first_s or (0.0 if unheard else perf_counter() - began)
                if response.finish_reason:
                    running.discard(response.uid)
        return {"tokens": made, "seconds": perf_counter() - began, "first_s": first_s}

    return ask


def engine(folder: Path) -> Ask:
    """Messages in, chunks of text out."""
    found = MlxEngine.load(folder)

    def ask(questions: list[Conversation], tokens: int) -> Measured:
        outputs: SimpleQueue[tuple[int, EngineOutput]] = SimpleQueue()
        began = perf_counter()
        for place, question in enumerate(questions):
            submission = Submission(
                turn_id=str(place),
                prompt=found.render(msgspec.convert(question, list[Message])),
                sampling=Sampling(temperature=0.0, top_p=1.0, seed=0),
                output_budget_tokens=tokens,
            )
            found.submit(submission, lambda output, place=place: outputs.put((place, output)))  # type: ignore[misc]
        made, running, unheard, first_s = 0, len(questions), set(range(len(questions))), 0.0
        while running:
            place, output = outputs.get()
            unheard.discard(place)
            first_s = first_s or (0.0 if unheard else perf_counter() - began)
            if isinstance(output, EngineFinal):
                running -= 1
                made += getattr(output, "output_tokens", 0)
        return {"tokens": made, "seconds": perf_counter() - began, "first_s": first_s}

    return ask


def main() -> None:
    """Answer until the input ends."""
    ask = {"bare": bare, "engine": engine}[sys.argv[1]](Path(sys.argv[2]))
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(ask(asked["questions"], asked["tokens"])), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
