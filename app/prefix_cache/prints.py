"""Prompt cache keys and salts as keyed fingerprints; the raw ones are not kept (R-094 … R-099)."""

import hashlib
import hmac
import logging
import secrets

from turnlog.app.settings import prompt_cache_keys_disabled

log = logging.getLogger("turnlog")

LEAST_KEY_LENGTH = 8
"""Shorter keys are ignored: different conversations would share them by accident (R-095)."""

REMEMBERED_KEYS = 256


class KeyPrints:
    """Fingerprints of one process: after a restart the same key gives another one (R-097).

    Args:
        nonce: 32 random bytes.
    """

    def __init__(self, nonce: bytes | None = None) -> None:
        self._nonce = nonce or secrets.token_bytes(32)
        self._warned: dict[str, None] = {}

    def key(self, raw: str | None) -> str | None:
        """The fingerprint of a `prompt_cache_key`; None if there is none, or it is too short or disabled."""
        if not raw:
            return None
        if len(raw) < LEAST_KEY_LENGTH or prompt_cache_keys_disabled():
            self._warn_once(raw)
            return None
        return self._print("key", raw)

    def salt(self, raw: str | None) -> str | None:
        """The fingerprint of a `cache_salt`; no salt differs from every salt, even the empty one (R-099)."""
        return None if raw is None else self._print("salt", raw)

    def _print(self, kind: str, raw: str) -> str:
        return hmac.new(self._nonce, f"{kind}:{raw}".encode(), hashlib.sha256).hexdigest()[:32]

    def _warn_once(self, raw: str) -> None:
        """Warn that a key is ignored, once for each recent key (R-098)."""
        seen = hashlib.sha256(raw.encode()).hexdigest()[:16]
        if seen in self._warned:
            return
        if len(self._warned) >= REMEMBERED_KEYS:
            del self._warned[next(iter(self._warned))]
        self._warned[seen] = None
        log.warning(
            "[responses] ignoring a prompt_cache_key: it is shorter than %d characters, or "
            "TURNLOG_DISABLE_PROMPT_CACHE_KEY is 1",
            LEAST_KEY_LENGTH,
        )
