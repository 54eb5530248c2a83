"""What is known of a model before it is loaded, and what a load does beside running turns."""

import gc
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from mlx.nn.layers.quantized import quantize

from tests.adapters.mlx.asking import HELLO, answer, submission
from tests.tiny_model import make_tiny_model
from tests.waiting import SOON_S
from turnlog.adapters.engine_process.source import ProcessSource
from turnlog.adapters.mlx import model, source
from turnlog.adapters.mlx.model import load
from turnlog.adapters.mlx.runtime import ON_GPU, load_model, mx, tree_flatten
from turnlog.adapters.mlx.source import MlxSource
from turnlog.adapters.mlx.thread import EngineThread
from turnlog.adapters.model_folder.config import checked_config
from turnlog.adapters.model_folder.weights import Machine, expected_weight_bytes
from turnlog.domain.errors import EngineError


@pytest.fixture
def thread() -> Iterator[EngineThread]:
    """A thread for the engines of one test."""
    thread = EngineThread()
    yield thread
    thread.close()


def change_config(folder: Path, **fields: object) -> None:
    """Set fields of the configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def halve(folder: Path) -> None:
    """Store the weights in half precision."""
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    halved = {name: weight.astype(mx.bfloat16) for name, weight in weights.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), halved)


def quantise(folder: Path) -> None:
    """Store the weights quantised, those of the embedding in a way of their own."""
    network, _ = load_model(folder)
    own = {"group_size": 64, "bits": 8}
    quantize(
        network,
        group_size=32,
        bits=4,
        class_predicate=lambda path, module: (
            own if path == "model.embed_tokens" else hasattr(module, "to_quantized")
        ),
    )
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(network.parameters())))
    change_config(folder, quantization={"group_size": 32, "bits": 4, "model.embed_tokens": own})


@pytest.mark.parametrize(
    ("store", "openblas"),
    [(lambda _: None, False), (halve, False), (quantise, False), (quantise, True)],
    ids=["float32", "bfloat16", "quantised", "quantised, with an OpenBLAS"],
)
def test_a_model_weighs_what_was_expected(
    tmp_path: Path,
    thread: EngineThread,
    monkeypatch: pytest.MonkeyPatch,
    store: Callable[[Path], object],
    openblas: bool,
) -> None:
    machine = Machine(ON_GPU, openblas)
    monkeypatch.setattr(model, "Machine", lambda *_: machine)
    folder = make_tiny_model(tmp_path / "tiny")
    store(folder)

    expected = expected_weight_bytes(folder, checked_config(folder), machine)
    engine = MlxSource(folder, thread).load()

    assert engine.info.weight_bytes == expected
    # Keys and values of 2 layers with 2 heads of 16 dimensions; on a GPU, half precision stays.
    assert engine.info.kv_bytes_per_token == 2 * 2 * 2 * 16 * (2 if ON_GPU and store is halve else 4)


@pytest.mark.parametrize(
    "content",
    [b"nothing", (1 << 60).to_bytes(8, "little") + b"{}", (8).to_bytes(8, "little") + b'{"a": 1}'],
    ids=["too short", "too long", "no header"],
)
def test_weights_that_cannot_be_read_weigh_what_their_files_do(tmp_path: Path, content: bytes) -> None:
    folder = make_tiny_model(tmp_path / "tiny")
    (folder / "model.safetensors").write_bytes(content)

    assert ProcessSource(folder).weight_bytes == len(content)


def test_a_folder_that_is_no_model_is_refused_before_anything_is_loaded(
    tmp_path: Path, thread: EngineThread
) -> None:
    foreign = make_tiny_model(tmp_path / "foreign")
    change_config(foreign, auto_map={"AutoModel": "evil.Model"})

    for declare in (ProcessSource, partial(MlxSource, thread=thread)):
        with pytest.raises(EngineError, match=r"No model folder at .*nowhere"):
            declare(tmp_path / "nowhere")
        with pytest.raises(EngineError, match="turnlog never runs"):
            declare(foreign)


def test_two_names_of_one_folder_are_one_source(tmp_path: Path) -> None:
    folder, other = make_tiny_model(tmp_path / "tiny"), make_tiny_model(tmp_path / "other")
    (tmp_path / "link").symlink_to(folder)

    sources = {ProcessSource(path) for path in (folder, tmp_path / "link", other)}

    assert len(sources) == 2


def test_a_thread_that_loads_may_load_again(tiny_folder: Path, thread: EngineThread) -> None:
    declared = MlxSource(tiny_folder, thread)

    engines = [declared.load() for _ in range(2)]
    said = [answer(engine, submission(engine.render(HELLO))).output_ids for engine in engines]

    assert said[0] == said[1] is not None
    assert engines[0].info == engines[1].info


def test_turns_go_on_while_a_model_is_loaded(
    tiny_folder: Path, thread: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-29: a load holds up nobody."""
    declared = MlxSource(tiny_folder, thread)
    resident = declared.load()
    began, may_end = Event(), Event()

    def load_slowly(*arguments: object) -> object:
        began.set()
        assert may_end.wait(SOON_S), "the test forgot this load"
        return load(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(source, "load", load_slowly)
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(declared.load)
        assert began.wait(SOON_S), "the load did not begin"
        meanwhile = answer(resident, submission(resident.render(HELLO)))
        was_loading = not loading.done()
        may_end.set()
        loaded = loading.result(SOON_S)

    assert was_loading
    assert answer(loaded, submission(loaded.render(HELLO))).output_ids == meanwhile.output_ids


def test_a_load_that_fails_keeps_no_memory(tmp_path: Path, thread: EngineThread) -> None:
    folder = make_tiny_model(tmp_path / "tiny")
    # Seen last, when the weights are there.
    (folder / "tokenizer_config.json").write_text("{}")
    declared = MlxSource(folder, thread)
    gc.collect()
    before = mx.get_active_memory()

    # Whoever logs the refusal keeps it a while.
    with pytest.raises(EngineError, match="has no chat template") as refused:
        declared.load()

    assert mx.get_active_memory() <= before
    assert refused.value.__traceback__
