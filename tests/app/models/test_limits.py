"""How many requests may wait for one model: the setting, the inherited variable, the default (R-040)."""

import pytest

from turnlog.app.settings import Settings, SettingsError, load_settings, most_waiting


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (None, 512),
        ("1", 1),
        ("+7", 7),
        ("64", 64),
        ("", 512),
        ("0", 512),
        ("-1", 512),
        ("2.5", 512),
        ("unbounded", 512),
    ],
)
def test_the_variable_is_a_positive_integer_or_ignored(
    text: str | None, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-040, D-38."""
    monkeypatch.delenv("MLX_MAX_QUEUE_DEPTH_PER_MODEL", raising=False)
    if text is not None:
        monkeypatch.setenv("MLX_MAX_QUEUE_DEPTH_PER_MODEL", text)

    assert most_waiting(Settings()) == limit


@pytest.mark.parametrize(("text", "limit"), [("3", 3), ("unbounded", None)])
def test_the_setting_wins_over_the_variable(
    text: str, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-040."""
    monkeypatch.setenv("MLX_MAX_QUEUE_DEPTH_PER_MODEL", "9")

    assert most_waiting(load_settings({"TURNLOG_MAX_QUEUE_DEPTH_PER_MODEL": text}, {})) == limit


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "many", "Unbounded"])
def test_any_other_value_of_the_setting_is_refused_at_start(text: str) -> None:
    """R-040."""
    with pytest.raises(SettingsError, match=f"^TURNLOG_MAX_QUEUE_DEPTH_PER_MODEL is '{text}': "):
        load_settings({"TURNLOG_MAX_QUEUE_DEPTH_PER_MODEL": text}, {})
