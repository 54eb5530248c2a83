from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.mlx.engine import MlxEngine
from tests.tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def engine(tiny_folder: Path) -> Iterator[MlxEngine]:
    engine = MlxEngine.load(tiny_folder)
    yield engine
    engine.close()
