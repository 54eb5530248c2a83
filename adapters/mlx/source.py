"""A model folder, loaded beside whatever this process computes."""

import gc
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from traceback import clear_frames

from turnlog.adapters.engine_process.source import CONCURRENCY
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.mlx.fingerprint import FileHashes
from turnlog.adapters.mlx.model import LoadedModel, load
from turnlog.adapters.mlx.runtime import mx, release_memory
from turnlog.adapters.mlx.thread import EngineThread
from turnlog.adapters.model_folder.config import checked_config


class MlxSource:
    """Loads the model in a folder, any number of times.

    Args:
        folder: of an MLX model.
        thread: computes the turns of the loaded model, as those of others.
        hashes: of files, for the fingerprints; those that are kept on disk make later loads quicker.
        concurrency: how many turns are decoded together at most.
        delivered: see `MlxEngine`.

    Raises:
        EngineError: the folder is missing or is no model's; nothing is loaded to see that.
    """

    def __init__(
        self,
        folder: Path,
        thread: EngineThread,
        hashes: FileHashes | None = None,
        *,
        concurrency: int = CONCURRENCY,
        delivered: Callable[[], None] = lambda: None,
    ) -> None:
        checked_config(folder)
        self._folder = folder.resolve()
        self._thread = thread
        self._hashes = hashes
        self._concurrency = concurrency
        self._delivered = delivered

    def load(self) -> MlxEngine:
        """Read the weights on a thread of its own, beside the turns that run, and hand them over."""
        loaded: Future[LoadedModel] = Future()
        # A thread whose streams were cleared cannot compute again, so each load has a fresh one.
        reader = Thread(target=self._read, args=(loaded,), name="mlx-load", daemon=True)
        reader.start()
        reader.join()
        return MlxEngine(loaded.result(), self._thread, self._concurrency, self._delivered)

    def _read(self, loaded: Future[LoadedModel]) -> None:
        """The life of the thread that loads."""
        try:
            loaded.set_result(load(self._folder, self._hashes))
        except BaseException as error:
            _forget_values(error)
            loaded.set_exception(error)
        gc.collect()
        mx.synchronize()
        release_memory()
        # MLX aborts the process at its exit if a thread that computed leaves anything behind.
        mx.clear_streams()


def _forget_values(error: BaseException | None) -> None:
    """Let go of what the failed functions held, such as half of the weights; their lines are still told."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
