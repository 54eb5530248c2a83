from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.mlx.unbatched import make_tiny_llama4
from tests.tiny_model import make_tiny_model
from turnlog.adapters.mlx.engine import MlxEngine


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def llama4_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama4(tmp_path_factory.mktemp("models") / "llama4")


@pytest.fixture(scope="session")
def engine(tiny_folder: Path) -> Iterator[MlxEngine]:
    yield from _loaded(tiny_folder)


@pytest.fixture(scope="session")
def llama4(llama4_folder: Path) -> Iterator[MlxEngine]:
    yield from _loaded(llama4_folder)


def _loaded(folder: Path) -> Iterator[MlxEngine]:
    engine = MlxEngine.load(folder)
    yield engine
    engine.close()
