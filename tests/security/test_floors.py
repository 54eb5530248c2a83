"""Library versions with known vulnerabilities are excluded by the lower bounds in `pyproject.toml`."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED = {requirement.name: requirement for requirement in map(Requirement, PROJECT["dependencies"])}

LOWEST_SAFE = {
    "jinja2": "3.1.6",  # CVE-2024-56326, CVE-2025-27516
    "mlx": "0.29.4",  # CVE-2025-62608, CVE-2025-62609
    "mlx-lm": "0.32.2",  # CVE-2026-5843
    # The bounds of connections and bodies build on how these work; tested from here on.
    "httptools": "0.9",
    "litestar": "2.25",
    "uvicorn": "0.54",
    "zstandard": "0.24",
}


def pinned(file: str) -> dict[str, str]:
    """The version of each distribution in a file of hashed requirements."""
    lines = (ROOT / file).read_text().splitlines()
    pins = (line.split()[0].split("==") for line in lines if "==" in line and not line.startswith(" "))
    return {name.partition("[")[0]: found for name, found in pins}


@pytest.mark.parametrize("name", LOWEST_SAFE)
def test_no_lower_bound_is_below_the_lowest_safe_version(name: str) -> None:
    bounds = [Version(each.version) for each in DECLARED[name].specifier if each.operator in (">=", "==")]

    assert bounds
    assert max(bounds) >= Version(LOWEST_SAFE[name])


@pytest.mark.parametrize("name", DECLARED)
def test_the_installed_version_satisfies_the_declared_bounds(name: str) -> None:
    assert version(name) in DECLARED[name].specifier


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_the_hashed_requirements_satisfy_the_declared_bounds(file: str) -> None:
    pins = pinned(file)

    assert [name for name, declared in DECLARED.items() if pins[name] not in declared.specifier] == []
