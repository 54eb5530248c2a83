"""The models that the settings declare: where each comes from, and whether it fits. Nothing is loaded here.

Beside `app.server.bootstrap` the other half of the composition root: it names the engines.
"""

from collections.abc import Callable, Collection
from pathlib import Path

from turnlog.adapters.engine_process import default_model
from turnlog.adapters.engine_process.source import ProcessSource
from turnlog.adapters.scripted.source import ScriptedSource
from turnlog.adapters.system import physical_memory_bytes
from turnlog.app.settings import Settings, SettingsError, parse_models, parse_sampling
from turnlog.domain.defaults import ModelDefaults
from turnlog.domain.ports import ModelSource

DEFAULT_MODEL = "smollm2"
SCRIPTED_MODEL = "scripted"

SMOLLM2_DEFAULTS = ModelDefaults(temperature=0.2, top_p=0.9)
"""Its authors' recommendations, which its files lack."""

Progress = Callable[[str, float], None]
"""Called with what is being prepared and the fraction done, 0 … 1."""


def pull_default_model(cache: Path, progress: Progress) -> Path:
    """The folder of the embedded default model below `cache`, made at the first call.

    Raises:
        EngineError: it could not be fetched or prepared; the sentence says what to do.
    """
    return default_model.prepare(cache / "models", progress)


def declare_models(settings: Settings, progress: Progress) -> dict[str, ModelSource]:
    """What the settings name, by the name it is served under. Nothing is loaded yet.

    Raises:
        EngineError: a model or script cannot be used.
        SettingsError: the settings contradict each other, or a model is larger than the memory budget.
    """
    sources = _scripts(settings) if settings.engine == "scripted" else _folders(settings, progress)
    if settings.default is not None and settings.default not in sources:
        raise SettingsError(f"--default is '{settings.default}'. Declared models: {', '.join(sources)}")
    budget_bytes = memory_budget_bytes(settings)
    for name, source in sources.items():
        if source.weight_bytes > budget_bytes:
            raise SettingsError(
                f"The model '{name}' needs about {source.weight_bytes:,} bytes, but the memory budget is "
                f"{budget_bytes:,}. Use a smaller model, or raise TURNLOG_MEMORY_BYTES."
            )
    return sources


def declared_defaults(settings: Settings, names: Collection[str]) -> dict[str, ModelDefaults]:
    """What is set for the names of models.

    Raises:
        SettingsError: no such model is served.
    """
    found = parse_sampling(settings.sampling)
    for name in found.keys() - set(names):
        raise SettingsError(
            f"--sampling names the unknown model '{name}'. Declared models: {', '.join(names)}"
        )
    if settings.engine == "mlx" and not settings.model:
        found[DEFAULT_MODEL] = found.get(DEFAULT_MODEL, ModelDefaults()).over(SMOLLM2_DEFAULTS)
    return found


def memory_budget_bytes(settings: Settings) -> int:
    """The memory budget of models, turns and prefix cache: as set, else three quarters of the memory."""
    return settings.memory_bytes or physical_memory_bytes() * 3 // 4


def _scripts(settings: Settings) -> dict[str, ModelSource]:
    files = parse_models(settings.model)
    if settings.script is not None:
        files = {SCRIPTED_MODEL: settings.script} | files
    if not files:
        raise SettingsError("--engine scripted requires --script FILE or --model NAME=FILE")
    return {name: ScriptedSource(path) for name, path in files.items()}


def _folders(settings: Settings, progress: Progress) -> dict[str, ModelSource]:
    if settings.script is not None:
        raise SettingsError("--script requires --engine scripted")
    folders = parse_models(settings.model) or {DEFAULT_MODEL: pull_default_model(settings.cache, progress)}
    return {name: ProcessSource(folder, settings.cache) for name, folder in folders.items()}
