"""Prompt cache keys and salts as fingerprints."""

import hashlib
import hmac

import pytest

from tests.app.turns.writes import Lines
from turnlog.app.prefix_cache.prints import REMEMBERED_KEYS, KeyPrints

NONCE = bytes(range(32))
KEY = "a-key-of-mine"


def test_a_fingerprint_is_32_hex_digits_keyed_with_the_nonce_of_the_process() -> None:
    """R-097, R-099, G-096: without the nonce a fingerprint tells nothing, and a restart makes another."""
    prints = KeyPrints(NONCE)

    printed = prints.key(KEY)

    assert printed == hmac.new(NONCE, b"key:" + KEY.encode(), hashlib.sha256).hexdigest()[:32]
    assert KeyPrints(NONCE).key(KEY) == printed
    assert KeyPrints().key(KEY) != KeyPrints().key(KEY)
    assert prints.salt(KEY) not in (KEY, printed, KeyPrints().salt(KEY))


def test_only_keys_of_eight_characters_and_more_have_a_fingerprint() -> None:
    """R-094, R-095, G-093."""
    prints = KeyPrints()

    assert [prints.key(key) for key in (None, "", "1234567")] == [None] * 3
    assert prints.key("12345678") not in (None, prints.key("12345679"))


def test_no_salt_differs_from_every_salt_also_the_empty_one() -> None:
    """R-099."""
    prints = KeyPrints()

    printed = [prints.salt(salt) for salt in (None, "", "a", "b")]

    assert printed[0] is None
    assert len(set(printed)) == 4


@pytest.mark.parametrize(("value", "in_use"), [("1", False), ("0", True), ("true", True), (" 1", True)])
def test_exactly_1_switches_keys_off_and_is_looked_at_each_time(
    monkeypatch: pytest.MonkeyPatch, value: str, in_use: bool
) -> None:
    """R-096."""
    prints = KeyPrints()
    before = prints.key(KEY)
    assert before

    monkeypatch.setenv("MLX_DISABLE_PROMPT_CACHE_KEY", value)
    assert prints.key(KEY) == (before if in_use else None)

    monkeypatch.delenv("MLX_DISABLE_PROMPT_CACHE_KEY")
    assert prints.key(KEY) == before


def test_a_key_of_no_use_is_warned_of_once_and_never_named(
    monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """R-098: also one that is long enough but switched off; no key and the empty one are no matter."""
    prints = KeyPrints()
    for key in (None, "", "qwert", "qwert", KEY, "zxcvb"):
        prints.key(key)
    assert len(lines.told) == 2

    monkeypatch.setenv("MLX_DISABLE_PROMPT_CACHE_KEY", "1")
    for key in (KEY, "qwert", KEY):
        prints.key(key)

    assert len(lines.told) == 3
    assert not any(key in line for line in lines.told for key in ("qwert", "zxcvb", KEY))


def test_of_thousands_of_such_keys_the_latest_256_are_remembered(lines: Lines) -> None:
    """R-098, G-094."""
    prints = KeyPrints()
    keys = [str(number) for number in range(3_000)]
    for key in keys:
        prints.key(key)
    assert len(lines.told) == 3_000

    for key in keys[-REMEMBERED_KEYS:]:
        prints.key(key)
    assert (REMEMBERED_KEYS, len(lines.told)) == (256, 3_000)

    prints.key(keys[-REMEMBERED_KEYS - 1])
    assert len(lines.told) == 3_001
