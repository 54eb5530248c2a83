"""Settings: from options and variables, refused by name when they are wrong."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from turnlog.app.cli.serve import serve_command
from turnlog.app.settings import (
    PREFIX,
    Settings,
    SettingsError,
    chain_write_wait_s,
    drain_limit_s,
    idle_delay_s,
    ignored_variables,
    load_settings,
    marker_ttl_ms,
    most_waiting,
    parse_models,
    parse_sampling,
    persist_hard_limit_s,
    persist_soft_limit_s,
    prompt_cache_keys_disabled,
    retention_s,
)
from turnlog.domain.defaults import ModelDefaults

CONFIGURATION = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_options_win_over_variables_and_variables_over_defaults() -> None:
    environ = {"TURNLOG_PORT": "81", "TURNLOG_HOST": "::1", "TURNLOG_MODEL": "a=x,b=y", "HOME": "/"}

    settings = load_settings(environ, {"port": "82", "db": "log.db", "host": None, "model": ()})

    assert settings == Settings(host="::1", port=82, db=Path("log.db"), model=("a=x", "b=y"))


def test_an_empty_variable_is_not_set() -> None:
    assert load_settings({"TURNLOG_PORT": ""}, {}).port == 8000


@pytest.mark.parametrize(
    ("environ", "options", "refusal"),
    [
        ({"TURNLOG_PORT": "many"}, {}, "TURNLOG_PORT is 'many'"),
        ({"TURNLOG_PORT": "65536"}, {}, "TURNLOG_PORT is '65536'"),
        ({"TURNLOG_ENGINE": "cuda"}, {}, "TURNLOG_ENGINE is 'cuda'"),
        ({"TURNLOG_MAX_CHAIN_LENGTH": "0"}, {}, "TURNLOG_MAX_CHAIN_LENGTH is '0'"),
        ({"TURNLOG_IDLE_CLEAR_CACHE_MS": "-1"}, {}, "TURNLOG_IDLE_CLEAR_CACHE_MS is '-1'"),
        ({"TURNLOG_IDLE_CLEAR_CACHE_MS": "0.5"}, {}, "TURNLOG_IDLE_CLEAR_CACHE_MS is '0.5'"),
        ({"TURNLOG_IDLE_CLEAR_CACHE_MS": "soon"}, {}, "TURNLOG_IDLE_CLEAR_CACHE_MS is 'soon'"),
        ({"TURNLOG_LOG_FORMAT": "xml"}, {}, "TURNLOG_LOG_FORMAT is 'xml'"),
        ({"TURNLOG_SSE_DRAIN_TIMEOUT_MS": "inf"}, {}, "TURNLOG_SSE_DRAIN_TIMEOUT_MS is 'inf'"),
        ({"TURNLOG_CHAIN_WRITE_WAIT_TIMEOUT_MS": "0"}, {}, "TURNLOG_CHAIN_WRITE_WAIT_TIMEOUT_MS is '0'"),
        ({"TURNLOG_RESPONSE_RETENTION_SECONDS": "week"}, {}, "TURNLOG_RESPONSE_RETENTION_SECONDS is 'week'"),
        ({"TURNLOG_DISABLE_PROMPT_CACHE_KEY": "x"}, {}, "TURNLOG_DISABLE_PROMPT_CACHE_KEY is 'x'"),
        ({}, {"port": "many"}, "--port is 'many'"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_it_was_given_under(
    environ: dict[str, str], options: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(SettingsError, match=refusal):
        load_settings(environ, options)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("TURNLOG_PROT", "TURNLOG_PORT"),
        ("TURNLOG_HOSTS", "TURNLOG_HOST"),
        ("TURNLOG_PRTO", "TURNLOG_PORT"),
        ("TURNLOG_BD", "TURNLOG_DB"),
        ("TURNLOG_MODLES", "TURNLOG_MODEL"),
        ("TURNLOG_MAX_QUEUE_DEPTH_PER_MODELS", "TURNLOG_MAX_QUEUE_DEPTH_PER_MODEL"),
        ("TURNLOG_LOGLEVEL", "TURNLOG_LOG_LEVEL"),
    ],
)
def test_a_misspelt_setting_is_refused_with_what_was_meant(variable: str, meant: str) -> None:
    """T2-01: one or two letters away."""
    with pytest.raises(SettingsError, match=f"^Unknown setting {variable}; did you mean {meant}\\?$"):
        load_settings({variable: "1"}, {})


@pytest.mark.parametrize(
    "variable",
    [
        "TURNLOG_SERVICE_HOST",
        "TURNLOG_SERVICE_PORT",
        "TURNLOG_PORT_8000_TCP",
        "TURNLOG_PORT_8000_TCP_ADDR",
        "TURNLOG_API_KEY",
        "TURNLOG_BASE_URL",
        "TURNLOG_UI",
        "TURNLOG_",
    ],
)
def test_what_others_put_into_the_environment_is_named_and_passed_over(variable: str) -> None:
    """T2-01: Kubernetes, Docker and clients; the value may be a secret, so it is not shown."""
    environ = {variable: "s3cret"}

    assert load_settings(environ, {"db": "a.db"}) == Settings(db=Path("a.db"))
    assert ignored_variables(environ) == [f"Ignoring unknown setting {variable}."]


@pytest.mark.parametrize(("option", "port"), [(None, 8000), ("9000", 9000)])
def test_a_port_that_is_an_address_is_kubernetes_own(option: str | None, port: int) -> None:
    """T2-01: a Service called turnlog puts it into every container; the default or the option holds."""
    environ = {"TURNLOG_PORT": "tcp://10.0.0.7:8000"}

    assert load_settings(environ, {"port": option}).port == port
    (sentence,) = ignored_variables(environ)
    assert sentence.startswith("Ignoring TURNLOG_PORT: it is an address, as Kubernetes sets it")


def test_settings_that_hold_are_not_warned_of() -> None:
    """T2-01."""
    assert ignored_variables({"TURNLOG_PORT": "81", "TURNLOG_SERVICE_HOST": "", "PATH": "x"}) == []


def test_a_shared_secret_is_said_to_have_no_effect() -> None:
    """R-394, D-18: whoever sets `MLX_SERVER_AUTH_TOKEN` must not believe that it protects anything."""
    (sentence,) = ignored_variables({"MLX_SERVER_AUTH_TOKEN": "s3cret"})

    assert sentence.startswith("Ignoring MLX_SERVER_AUTH_TOKEN:")
    assert "turnlog keys add" in sentence
    assert "s3cret" not in sentence


def test_each_inherited_variable_has_a_name_of_turnlogs_that_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-394."""
    limits: dict[str, Callable[[], float]] = {
        "CHAIN_WRITE_WAIT_TIMEOUT_MS": chain_write_wait_s,
        "POST_COMMIT_PERSIST_TIMEOUT_MS": persist_soft_limit_s,
        "POST_COMMIT_PERSIST_HARD_TIMEOUT_MS": persist_hard_limit_s,
        "HARD_TIMEOUT_MARKER_TTL_MS": lambda: marker_ttl_ms() / 1000,
        "SSE_DRAIN_TIMEOUT_MS": drain_limit_s,
        "RESPONSE_RETENTION_SECONDS": lambda: retention_s() / 1000,
        "DISABLE_PROMPT_CACHE_KEY": lambda: 1.0 + prompt_cache_keys_disabled(),
    }
    for name, limit in limits.items():
        own, inherited = ("1", "0") if name.startswith("DISABLE") else ("2000", "1000")
        monkeypatch.setenv(f"MLX_{name}", inherited)
        assert limit() == 1.0
        monkeypatch.setenv(f"TURNLOG_{name}", own)
        assert limit() == 2.0
        assert load_settings({f"TURNLOG_{name}": own}, {})


def test_models_are_declared_by_name_and_path() -> None:
    assert parse_models(("a=x", "b=y=z")) == {"a": Path("x"), "b": Path("y=z")}


@pytest.mark.parametrize("declared", [("a",), ("=x",), ("a=",), ("a=x", "a=y")])
def test_a_wrong_declaration_is_refused(declared: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match="--model"):
        parse_models(declared)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, 2.0),
        ("", 2.0),
        ("1500", 1.5),
        ("0.5", 0.0005),
        ("0", 2.0),
        ("-1", 2.0),
        ("text", 2.0),
        ("inf", 2.0),
        ("nan", 2.0),
        ("1_000", 2.0),
    ],
)
def test_a_time_limit_that_does_not_parse_counts_as_not_set(
    monkeypatch: pytest.MonkeyPatch, text: str | None, expected: float
) -> None:
    """R-394, R-395, R-396, R-397: kind A, read anew at each use."""
    if text is not None:
        monkeypatch.setenv("MLX_CHAIN_WRITE_WAIT_TIMEOUT_MS", text)
        monkeypatch.setenv("MLX_POST_COMMIT_PERSIST_TIMEOUT_MS", text)

    assert chain_write_wait_s() == expected
    assert persist_soft_limit_s() == (expected if expected != 2.0 else 5.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 60.0), ("  ", 60.0), ("0", 0.0), (" 250 ", 0.25), ("soon", 60.0), ("-1", 60.0)],
)
def test_the_hard_limit_may_be_zero(monkeypatch: pytest.MonkeyPatch, text: str, expected: float) -> None:
    """R-395, G-073: kind B."""
    monkeypatch.setenv("MLX_POST_COMMIT_PERSIST_HARD_TIMEOUT_MS", text)

    assert persist_hard_limit_s() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("60", 60), ("", 604_800), ("0", 604_800), ("-5", 604_800), ("1.5", 604_800), ("week", 604_800)],
)
def test_the_servers_retention_is_a_positive_integer_or_the_default(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: int
) -> None:
    """R-025, R-395: kind C."""
    monkeypatch.setenv("MLX_RESPONSE_RETENTION_SECONDS", text)

    assert retention_s() == expected


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        (None, 30.0),
        ("", 30.0),
        ("250", 0.25),
        ("0", 0.0),
        ("-1", 30.0),
        ("1.5", 30.0),
        ("1_000", 30.0),
        ("soon", 30.0),
    ],
)
def test_the_idle_delay_is_inherited_unless_it_does_not_parse(
    monkeypatch: pytest.MonkeyPatch, text: str | None, expected_s: float
) -> None:
    """R-381, R-395: kind D."""
    monkeypatch.delenv("MLX_IDLE_CLEAR_CACHE_MS", raising=False)
    if text is not None:
        monkeypatch.setenv("MLX_IDLE_CLEAR_CACHE_MS", text)

    assert idle_delay_s(Settings()) == expected_s


@pytest.mark.parametrize(("text", "expected_s"), [("0", 0.0), ("250", 0.25)])
def test_turnlogs_own_idle_delay_wins(monkeypatch: pytest.MonkeyPatch, text: str, expected_s: float) -> None:
    """R-381: 0 is never, not "not set"."""
    monkeypatch.setenv("MLX_IDLE_CLEAR_CACHE_MS", "7000")

    assert idle_delay_s(load_settings({"TURNLOG_IDLE_CLEAR_CACHE_MS": text}, {})) == expected_s


def test_defaults_are_declared_by_name_and_field() -> None:
    """R-177: names may have dots and equal signs."""
    declared = ("qwen3.5.temperature=0.6", "qwen3.5.top_k=20", "a=b.max_output_tokens=7", "a=b.top_p=1")

    assert parse_sampling(declared) == {
        "qwen3.5": ModelDefaults(temperature=0.6, top_k=20),
        "a=b": ModelDefaults(max_output_tokens=7, top_p=1.0),
    }


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ("qwen", "expected NAME.FIELD=VALUE"),
        ("temperature=1", "expected NAME.FIELD=VALUE"),
        ("qwen.temperatur=1", "there are temperature, top_p, top_k, min_p, repetition_penalty, max_output_"),
        ("qwen.temperature=3", "Expected `float` <= 2.0"),
        ("qwen.top_k=many", "Expected `int"),
        ("qwen.max_output_tokens=0", "Expected `int` >= 1"),
    ],
)
def test_a_wrong_default_is_refused(declared: str, reason: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        parse_sampling((declared,))

    assert str(refusal.value).startswith(f"--sampling is '{declared}': {reason}")


# ── documentation ─────────────────────────────────────────────────────────────────────────────────

SETTINGS = {f"{PREFIX}{name.upper()}": getattr(Settings(), name) for name in Settings.__struct_fields__}
DEFAULTS = SETTINGS | {
    f"{PREFIX}MAX_QUEUE_DEPTH_PER_MODEL": most_waiting(Settings()),
    f"{PREFIX}IDLE_CLEAR_CACHE_MS": idle_delay_s(Settings()) * 1000,
    f"{PREFIX}RESPONSE_RETENTION_SECONDS": retention_s(),
    f"{PREFIX}CHAIN_WRITE_WAIT_TIMEOUT_MS": chain_write_wait_s() * 1000,
    f"{PREFIX}POST_COMMIT_PERSIST_TIMEOUT_MS": persist_soft_limit_s() * 1000,
    f"{PREFIX}POST_COMMIT_PERSIST_HARD_TIMEOUT_MS": persist_hard_limit_s() * 1000,
    f"{PREFIX}HARD_TIMEOUT_MARKER_TTL_MS": marker_ttl_ms(),
    f"{PREFIX}SSE_DRAIN_TIMEOUT_MS": drain_limit_s() * 1000,
    f"{PREFIX}DISABLE_PROMPT_CACHE_KEY": int(prompt_cache_keys_disabled()),
    "MLX_DISABLE_OPENBLAS": False,
}
OPTIONS = {f"{PREFIX}{str(option.name).upper()}": f"`{option.opts[0]}`" for option in serve_command.params}


def test_the_documentation_lists_every_setting_with_its_option_and_default() -> None:
    """And no other. Where a default is empty or computed, any words will do."""
    rows = re.findall(
        r"^\| `([A-Z_]+)` \| (.*?) ?\| (.*?) \| ", CONFIGURATION.read_text(encoding="utf-8"), re.MULTILINE
    )

    documented = {name: (option, _value(default)) for name, option, default in rows}

    assert documented == {
        name: (OPTIONS.get(name, ""), default if isinstance(default, int | float | str) else ANY)
        for name, default in DEFAULTS.items()
    }


def _value(documented: str) -> object:
    """A default as a number, a truth value or a word."""
    if number := re.fullmatch(r"([\d,]+)(?: ([KM])iB)?", documented):
        return int(number[1].replace(",", "")) * {"": 1, "K": 1024, "M": 1024**2}[number[2] or ""]
    return {"`false`": False, "`true`": True}.get(documented, documented.strip("`"))
