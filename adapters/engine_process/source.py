"""A model folder that was declared: checked and weighed, and loaded in a process of its own."""

import logging
import socket
import struct
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Final

from turnlog.adapters.engine_process.channel import Channel
from turnlog.adapters.engine_process.engine import ProcessEngine
from turnlog.adapters.engine_process.heartbeat import TICK_S
from turnlog.adapters.engine_process.messages import FromEngine, Loaded, LoadFailed, LoadModel
from turnlog.adapters.engine_process.spawned import SpawnedProcess
from turnlog.adapters.engine_process.texts import TextProcess
from turnlog.adapters.model_folder.config import checked_config, sampling_defaults
from turnlog.adapters.model_folder.weights import expected_weight_bytes, this_machine
from turnlog.domain.defaults import ModelDefaults
from turnlog.domain.errors import EngineError

_log = logging.getLogger("turnlog")

MODULE: Final = "turnlog.adapters.mlx.engine_process"

CONCURRENCY: Final = 16
"""How many turns are decoded together unless said otherwise; more wait for a place."""

LOAD_LIMIT_S: Final = 1_800.0
"""A load that takes longer is given up."""


class ProcessSource:
    """A `ModelSource`. Two on the same folder are equal, links followed.

    Args:
        folder: of an MLX model.
        hashes: where hashes of files are kept, which make later loads quicker.
        concurrency: how many turns are decoded together at most.

    Raises:
        EngineError: the folder is missing or is no model's; nothing is loaded to see that.
    """

    def __init__(self, folder: Path, hashes: Path | None = None, *, concurrency: int = CONCURRENCY) -> None:
        checked_config(folder)
        self._folder = folder.resolve()
        self._hashes = hashes
        self._concurrency = concurrency
        self._texts = TextProcess(self._folder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessSource) and other._folder == self._folder

    def __hash__(self) -> int:
        return hash(self._folder)

    @cached_property
    def weight_bytes(self) -> int:
        """As the headers of the files say."""
        return expected_weight_bytes(self._folder, checked_config(self._folder), this_machine())

    @cached_property
    def defaults(self) -> ModelDefaults:
        """Those of generation_config.json."""
        return sampling_defaults(self._folder)

    def load(self) -> ProcessEngine:
        """Start the processes of the model and wait until it is loaded."""
        self._texts.retain()
        try:
            process = SpawnedProcess(MODULE)
            try:
                channel: Channel[FromEngine] = Channel(process.socket, FromEngine)  # type: ignore[arg-type]
                loaded = self._loaded(process, channel)
                self._texts.wait_until_ready()
            except BaseException:
                process.close()
                raise
        except BaseException:
            self._texts.release()
            raise
        if loaded.slow_because:
            _log.warning("[models] %s", loaded.slow_because)
        return ProcessEngine(process, channel, loaded.info, self._texts)

    def _loaded(self, process: SpawnedProcess, channel: Channel[FromEngine]) -> Loaded:
        # A timeout of reads alone: a long message may take its time to be written.
        seconds, microseconds = divmod(round(TICK_S * 1e6), 1_000_000)
        timeout = struct.pack("@ll", seconds, microseconds)
        process.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        hashes = str(self._hashes) if self._hashes else None
        channel.send(LoadModel(str(self._folder), hashes, self._concurrency))
        began_s = monotonic()
        while monotonic() - began_s < LOAD_LIMIT_S:
            try:
                answer = channel.receive()
            except TimeoutError:
                continue
            except EOFError:
                how = process.wait()
                raise EngineError(
                    f"The engine process ended while loading the model in {self._folder}: {how}. "
                    f"{process.last_words()}".strip()
                ) from None
            match answer:
                case Loaded():
                    return answer
                case LoadFailed(message=message):
                    raise EngineError(message)
        raise EngineError(f"Loading the model in {self._folder} took longer than {LOAD_LIMIT_S:g} s.")
