"""What turnlog's own code never does, seen in its source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [path for package in ("domain", "adapters", "app") for path in (ROOT / package).rglob("*.py")]

RUNS_CODE = {"eval", "exec", "compile", "__import__", "loads_pickle"}
MODULES_THAT_RUN_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "runpy"}
MODULES_THAT_FETCH = {"urllib.request", "requests", "aiohttp", "http.client", "ftplib", "httpx"}
# The default model, once, from an address in the code and against a hash in the code; and the command line,
# which asks the server of its own log.
MAY_FETCH = {"adapters/mlx/smollm2.py"}
MAY_FETCH_BELOW = "app/cli/"


def trees() -> Iterator[tuple[str, ast.AST]]:
    """Every node of every module, with the module's path."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path.relative_to(ROOT).as_posix(), node


def imported(node: ast.AST) -> set[str]:
    """The modules that an import names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return set()


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 50


def test_nothing_is_evaluated() -> None:
    """CVE-2026-61539, CVE-2025-9141: text of a model or client is never code."""
    found = [
        f"{path}:{node.lineno}"
        for path, node in trees()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNS_CODE
    ]

    assert found == []


def test_nothing_is_unpickled() -> None:
    """CVE-2026-3059, CVE-2026-3060, CVE-2025-32444."""
    found = [path for path, node in trees() if imported(node) & MODULES_THAT_RUN_CODE]

    assert found == []


def test_no_code_of_a_model_is_trusted() -> None:
    """CVE-2026-27893, CVE-2026-46432, CVE-2026-114053: not by an argument, not by an option in a dict."""
    trusted = []
    for path, node in trees():
        if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
            trusted.append((path, node.value))
        if isinstance(node, ast.Dict):
            trusted += [
                (path, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and key.value == "trust_remote_code"
            ]

    assert [path for path, value in trusted if not isinstance(value, ast.Constant) or value.value] == []


def test_nothing_is_fetched() -> None:
    """CVE-2025-6242, CVE-2026-24779, vllm-mlx #488: no URL of a request can be, for there is nothing to."""
    found = {
        path
        for path, node in trees()
        if imported(node) & MODULES_THAT_FETCH and not path.startswith(MAY_FETCH_BELOW)
    }

    assert found <= MAY_FETCH


@pytest.mark.parametrize("name", ["shell", "system", "popen"])
def test_no_shell_is_asked(name: str) -> None:
    found = [
        path
        for path, node in trees()
        if (isinstance(node, ast.keyword) and node.arg == name == "shell")
        or (isinstance(node, ast.Attribute) and node.attr == name and _is_os(node.value))
    ]

    assert found == []


def _is_os(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("os", "subprocess")
