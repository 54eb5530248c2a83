"""The oldest versions of libraries that turnlog runs with: those below have a known hole it would inherit.

Checked at start, because an environment can have been changed since it was made.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

from turnlog.app.settings import SettingsError

FLOORS: Mapping[str, tuple[str, str]] = {
    "jinja2": ("3.1.6", "templates break out of the sandbox (CVE-2024-56326, CVE-2025-27516)"),
    "mlx": ("0.29.4", "model files are read out of bounds (CVE-2025-62608, CVE-2025-62609)"),
    "mlx-lm": ("0.32.2", "a model's configuration can run Python (CVE-2026-5843)"),
    # The bounds of connections and bodies build on how these work; tested from here on.
    "httptools": ("0.9.0", "the bounds of connections are not kept"),
    "litestar": ("2.25.0", "the bounds of bodies are not kept"),
    "uvicorn": ("0.54.0", "the bounds of connections are not kept"),
    "zstandard": ("0.24.0", "the end of a compressed body is not told"),
}
"""The floor of each distribution, and what is wrong below it."""


def check_floors() -> None:
    """Refuse to start with a library below its floor.

    Raises:
        SettingsError: there is one; the sentence names it, its floor and what is wrong below.
    """
    if sentences := too_old():
        raise SettingsError(" ".join(sentences))


def too_old(installed: Callable[[str], str] = version) -> list[str]:
    """A sentence for each library below its floor; one that is not installed cannot do harm.

    Args:
        installed: the version of a distribution; raises `PackageNotFoundError` if it is not there.
    """
    return [
        f"{name} is {found}, but must be {floor} or newer: {reason}. Run `make setup`."
        for name, (floor, reason) in FLOORS.items()
        if (found := _installed(name, installed)) and _numbers(found) < _numbers(floor)
    ]


def _installed(name: str, installed: Callable[[str], str]) -> str:
    try:
        return installed(name)
    except PackageNotFoundError:
        return ""


def _numbers(text: str) -> tuple[int, ...]:
    """The release of a version as numbers; what is behind it, such as `rc1`, does not count."""
    numbers = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
