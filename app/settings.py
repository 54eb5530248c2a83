"""Every setting, in one place: `TURNLOG_*` for the server, `MLX_*` for what the specification names.

`TURNLOG_*` values are checked at start, and a wrong one is refused by name. `MLX_*` values follow R-395:
what does not parse counts as not set. Each `MLX_*` variable has a `TURNLOG_*` name too, which wins.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import platformdirs
from msgspec import Meta, Struct

from turnlog.domain.defaults import ModelDefaults, read_default
from turnlog.domain.retention import DEFAULT_RETENTION_S

APP_NAME = "turnlog"


class SettingsError(Exception):
    """A setting has a value that it cannot have; the sentence names the variable or option."""


def default_database() -> Path:
    """Where the log is kept when nothing else is said: the user's data directory."""
    return Path(platformdirs.user_data_dir(APP_NAME)) / "turnlog.db"


def default_cache() -> Path:
    """Where prepared models are kept: the user's cache directory."""
    return Path(platformdirs.user_cache_dir(APP_NAME))


# Bounded, as infinity is a number to msgspec, too.
Positive = Annotated[float, Meta(gt=0, le=1e12)]
NotNegative = Annotated[float, Meta(ge=0, le=1e12)]


class Settings(Struct, frozen=True, kw_only=True):
    """What the server is told at its start, by option or by `TURNLOG_<NAME>`; options win.

    Those from `chain_write_wait_timeout_ms` to `disable_prompt_cache_key` are only checked here: they are
    read from the environment at each use (R-396).
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    db: Path = msgspec.field(default_factory=default_database)
    model: tuple[str, ...] = ()
    default: str | None = None
    sampling: tuple[str, ...] = ()
    engine: Literal["mlx", "scripted"] = "mlx"
    script: Path | None = None
    cache: Path = msgspec.field(default_factory=default_cache)
    max_queue_depth_per_model: Annotated[int, Meta(ge=1)] | Literal["unbounded"] | None = None
    max_waiting_bytes: Annotated[int, Meta(ge=1)] | None = None
    memory_bytes: Annotated[int, Meta(ge=1)] | None = None
    memory_wait_s: Annotated[float, Meta(ge=0)] = 60.0
    warm_entries: Annotated[int, Meta(ge=0)] = 32
    warm_bytes: Annotated[int, Meta(ge=0)] | None = None
    warm_ttl_s: Annotated[float, Meta(gt=0)] = 1_800.0
    max_chain_length: Annotated[int, Meta(ge=1)] = 10_000
    max_body_bytes: Annotated[int, Meta(ge=1)] = 10 * 1024 * 1024
    max_json_depth: Annotated[int, Meta(ge=8, le=256)] = 100
    max_json_values: Annotated[int, Meta(ge=1)] = 200_000
    max_input_items: Annotated[int, Meta(ge=1)] = 10_000
    max_instructions_chars: Annotated[int, Meta(ge=1)] = 1_000_000
    max_name_chars: Annotated[int, Meta(ge=64)] = 512
    max_tools: Annotated[int, Meta(ge=1)] = 512
    max_schema_bytes: Annotated[int, Meta(ge=1)] = 64 * 1024
    max_schema_depth: Annotated[int, Meta(ge=1)] = 32
    max_stops: Annotated[int, Meta(ge=1)] = 16
    max_stop_chars: Annotated[int, Meta(ge=1)] = 256
    max_head_bytes: Annotated[int, Meta(ge=1024)] = 64 * 1024
    head_timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    body_timeout_s: Annotated[float, Meta(gt=0)] = 120.0
    durability: Literal["best_effort", "strict"] = "best_effort"
    max_queued_bytes: Annotated[int, Meta(ge=1)] = 64 * 1024 * 1024
    token_timeout_s: Annotated[float, Meta(gt=0)] = 600.0
    turn_timeout_s: Annotated[float, Meta(gt=0)] = 3_600.0
    idempotency_grace_s: NotNegative = 60.0
    chat_store: bool = True
    heartbeat_s: Annotated[float, Meta(gt=0)] = 10.0
    shutdown_grace_s: Annotated[float, Meta(ge=0)] = 5.0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_connections: Annotated[int, Meta(ge=1)] = 1_024
    max_streams_per_owner: Annotated[int, Meta(ge=1)] = 512
    max_queued_turns_per_owner: Annotated[int, Meta(ge=1)] = 256
    max_websockets_per_owner: Annotated[int, Meta(ge=1)] = 64
    websocket_idle_s: Annotated[float, Meta(gt=0)] = 1_800.0
    websocket_lifetime_s: Annotated[float, Meta(gt=0)] = 3_600.0
    idle_clear_cache_ms: Annotated[int, Meta(ge=0)] | None = None
    chain_write_wait_timeout_ms: Positive | None = None
    post_commit_persist_timeout_ms: Positive | None = None
    post_commit_persist_hard_timeout_ms: NotNegative | None = None
    hard_timeout_marker_ttl_ms: NotNegative | None = None
    sse_drain_timeout_ms: Positive | None = None
    response_retention_seconds: Annotated[int, Meta(ge=1)] | None = None
    disable_prompt_cache_key: Literal["0", "1"] | None = None
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    access_log: bool = False

    @property
    def in_memory(self) -> bool:
        """Whether the log is not to be kept."""
        return str(self.db) == IN_MEMORY


IN_MEMORY = ":memory:"
PREFIX = "TURNLOG_"
_LISTS = ("model", "sampling", "allowed_hosts", "allowed_origins")


def load_settings(environ: Mapping[str, str], options: Mapping[str, Any]) -> Settings:
    """The settings that hold: an option that was given, else its variable, else the default.

    Args:
        environ: the environment; lists are separated by commas there.
        options: options by name; None and () mean not given.

    Raises:
        SettingsError: a variable is a setting misspelt, or a value cannot be read or is out of range.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    known = Settings.__struct_fields__
    for variable, text in _given(environ):
        name = variable.removeprefix(PREFIX).lower()
        if name in known and not _is_kubernetes(variable, text):
            values[name] = [part for part in text.split(",") if part] if name in _LISTS else text
            sources[name] = variable
        elif name not in known and (meant := _nearest(name)):
            raise SettingsError(f"Unknown setting {variable}; did you mean {PREFIX}{meant.upper()}?")
    for name, value in options.items():
        if value is not None and value != ():
            values[name] = value
            sources[name] = f"--{name.replace('_', '-')}"
    for name, value in values.items():
        try:
            # One at a time, so that the error is about this one.
            msgspec.convert({name: value}, Settings, strict=False, dec_hook=_path)
        except msgspec.ValidationError as error:
            reason = str(error).split(" - at ")[0]
            raise SettingsError(f"{sources[name]} is {value!r}: {reason}") from None
    return msgspec.convert(values, Settings, strict=False, dec_hook=_path)


def ignored_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that looks like a setting of turnlog and has no effect.

    Kubernetes and Docker put the names and addresses of services into the environment of every container, and
    clients keep theirs there, so such a variable is no reason not to start. None of the values is shown.
    """
    sentences = []
    for variable, text in _given(environ):
        if _is_kubernetes(variable, text):
            sentences.append(
                f"Ignoring {variable}: it is an address, as Kubernetes sets it for a Service named turnlog. "
                "Set the port with --port."
            )
        elif variable.removeprefix(PREFIX).lower() not in Settings.__struct_fields__:
            sentences.append(f"Ignoring unknown setting {variable}.")
    if environ.get("MLX_SERVER_AUTH_TOKEN"):
        sentences.append(
            "Ignoring MLX_SERVER_AUTH_TOKEN: turnlog uses API keys instead of a shared secret. "
            "Create one with 'turnlog keys add NAME'."
        )
    return sentences


def _given(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables that begin like settings; an empty one is not set."""
    return ((name, text) for name, text in environ.items() if name.startswith(PREFIX) and text)


def _is_kubernetes(variable: str, text: str) -> bool:
    return variable == "TURNLOG_PORT" and "://" in text


def _nearest(name: str) -> str | None:
    """The setting that `name` misspells by one or two letters, if there is one.

    By one letter only if the setting has two: `TURNLOG_UI` is not a misspelt `TURNLOG_DB`.
    """
    near = [
        (distance, field)
        for field in Settings.__struct_fields__
        if (distance := _edits(name, field)) <= min(2, len(field) // 2)
    ]
    return min(near)[1] if near else None


def _edits(one: str, other: str) -> int:
    """How many letters are added, left out, changed, or swapped with their neighbour (optimal alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one):
        before, above, row = row, before, [i + 1]
        for j, wanted in enumerate(other):
            edits = min(before[j + 1] + 1, row[j] + 1, before[j] + (letter != wanted))
            if above and j and letter == other[j - 1] and one[i - 1] == wanted:
                edits = min(edits, above[j - 1] + 1)
            row.append(edits)
    return row[-1]


def _path(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value)).expanduser()
    raise NotImplementedError(kind)


def parse_models(declared: tuple[str, ...]) -> dict[str, Path]:
    """Model folders by name, from `NAME=PATH` declarations.

    Raises:
        SettingsError: a declaration has another form, or a name comes twice.
    """
    folders: dict[str, Path] = {}
    for text in declared:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise SettingsError(f"--model is '{text}': expected NAME=PATH, for example qwen=./models/qwen3")
        if name in folders:
            raise SettingsError(f"--model declares '{name}' twice")
        folders[name] = Path(path).expanduser()
    return folders


def parse_sampling(declared: tuple[str, ...]) -> dict[str, ModelDefaults]:
    """Defaults by the name of a model, from `NAME.FIELD=VALUE` declarations.

    Raises:
        SettingsError: a declaration has another form, or its value is out of bounds.
    """
    found: dict[str, ModelDefaults] = {}
    for text in declared:
        place, _, value = text.rpartition("=")
        name, _, field = place.rpartition(".")
        if not name:
            raise SettingsError(
                f"--sampling is '{text}': expected NAME.FIELD=VALUE, for example qwen.temperature=0.6"
            )
        try:
            found[name] = read_default(field, value).over(found.get(name, ModelDefaults()))
        except msgspec.ValidationError as error:
            reason = str(error).split(" - at ")[0]
            raise SettingsError(f"--sampling is '{text}': {reason}") from None
    return found


# ── the variables of the specification ────────────────────────────────────────────────────

# TURNLOG_<NAME> wins over MLX_<NAME>.

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"\+?\d+", re.ASCII)

DEFAULT_IDLE_DELAY_S = 30.0
DEFAULT_MAX_QUEUE_DEPTH = 512
DEFAULT_MAX_WAITING_BYTES = 256 * 1024 * 1024


def chain_write_wait_s() -> float:
    """How long a continuation waits for the write of what it continues (R-117)."""
    return _seconds("CHAIN_WRITE_WAIT_TIMEOUT_MS", default_ms=2_000)


def persist_soft_limit_s() -> float:
    """After how long a slow write of a finished turn is logged (R-354)."""
    return _seconds("POST_COMMIT_PERSIST_TIMEOUT_MS", default_ms=5_000)


def persist_hard_limit_s() -> float:
    """After how long such a write counts as wedged; 0 means never (R-356)."""
    return _seconds("POST_COMMIT_PERSIST_HARD_TIMEOUT_MS", default_ms=60_000, zero_allowed=True)


def marker_ttl_ms() -> float:
    """How long a wedged write is remembered after somebody last asked for it (R-136)."""
    return _milliseconds("HARD_TIMEOUT_MARKER_TTL_MS", default_ms=300_000, zero_allowed=True)


def drain_limit_s() -> float:
    """How long a reader may leave a stream's bytes untaken before it is dropped (R-310)."""
    return _seconds("SSE_DRAIN_TIMEOUT_MS", default_ms=30_000)


def most_waiting(settings: Settings) -> int | None:
    """How many requests may wait for one model beside those that run; None for no limit (R-040)."""
    if settings.max_queue_depth_per_model == "unbounded":
        return None
    text = os.environ.get("MLX_MAX_QUEUE_DEPTH_PER_MODEL", "")
    inherited = int(text) if _INTEGER.fullmatch(text) else 0
    return settings.max_queue_depth_per_model or inherited or DEFAULT_MAX_QUEUE_DEPTH


def most_waiting_bytes(settings: Settings) -> int | None:
    """How much the requests that wait may hold together; None for no limit (D-38)."""
    if settings.max_waiting_bytes is None and settings.max_queue_depth_per_model == "unbounded":
        return None
    return settings.max_waiting_bytes or DEFAULT_MAX_WAITING_BYTES


def retention_s() -> int:
    """How long responses are kept when a request does not say, in seconds (R-025)."""
    text = _inherited("RESPONSE_RETENTION_SECONDS")
    value = int(text) if _INTEGER.fullmatch(text) else 0
    return value if value > 0 else DEFAULT_RETENTION_S


def prompt_cache_keys_disabled() -> bool:
    """Whether prompt cache keys are of no use (R-096)."""
    return _inherited("DISABLE_PROMPT_CACHE_KEY") == "1"


def idle_delay_s(settings: Settings) -> float:
    """How long nothing is asked of the engine before its free memory is given back; 0 = never (R-381)."""
    if settings.idle_clear_cache_ms is not None:
        return settings.idle_clear_cache_ms / 1000
    text = os.environ.get("MLX_IDLE_CLEAR_CACHE_MS", "")
    return int(text) / 1000 if _INTEGER.fullmatch(text) else DEFAULT_IDLE_DELAY_S


def _inherited(name: str) -> str:
    return os.environ.get(f"TURNLOG_{name}") or os.environ.get(f"MLX_{name}", "")


def _seconds(name: str, *, default_ms: float, zero_allowed: bool = False) -> float:
    return _milliseconds(name, default_ms=default_ms, zero_allowed=zero_allowed) / 1000


def _milliseconds(name: str, *, default_ms: float, zero_allowed: bool) -> float:
    """A limit, read anew at each use so that it can be changed meanwhile (R-395, R-396)."""
    value = _finite(_inherited(name))
    if value is None or value < 0 or (value == 0 and not zero_allowed):
        return default_ms
    return value


def _finite(text: str) -> float | None:
    """A number as other languages read it: no "inf", no "nan", no "1_000" (R-397)."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None
