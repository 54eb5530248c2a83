"""The wheel, installed beside a project with packages named like turnlog's folders (decision 0014)."""

import subprocess
import sys
import sysconfig
from pathlib import Path
from venv import EnvBuilder

import pytest

from tests.app.scripts import write_script
from tests.serving import started

ROOT = Path(__file__).parents[1]


def pip(*arguments: str | Path) -> None:
    """Run pip without a network; its output is shown if the test fails."""
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], check=True)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment into which the wheel is installed, and nothing else."""
    folder = tmp_path_factory.mktemp("distribution")
    wheels, fresh = folder / "wheels", folder / "environment"
    EnvBuilder(symlinks=True).create(fresh)
    pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, ROOT)
    pip("--python", fresh / "bin" / "python", "install", "--no-index", "--no-deps", *wheels.iterdir())
    return fresh


def site_packages(environment: Path) -> Path:
    """Where the environment keeps what is installed."""
    variables = {"base": str(environment), "platbase": str(environment)}
    return Path(sysconfig.get_path("purelib", "venv", variables))


def test_an_installed_turnlog_has_one_import_package(environment: Path) -> None:
    installed = {path.name for path in site_packages(environment).iterdir()}

    assert {name for name in installed if not name.endswith(".dist-info")} == {"turnlog"}


def test_the_wheel_serves_beside_a_project_with_packages_of_the_same_names(
    environment: Path, tmp_path: Path
) -> None:
    # The dependencies come from this environment. A path that a `.pth` file names is not searched for more
    # of them, so the editable turnlog of this environment is not on the path.
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages(environment) / "dependencies.pth").write_text("\n".join(dependencies))
    for name in ("app", "domain", "adapters"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise AssertionError(f'{__name__} is not turnlog')")

    with (
        started(
            tmp_path / "turnlog.db",
            ("--engine", "scripted", "--script", str(write_script(tmp_path))),
            {"PYTHONPATH": "."},
            program=[str(environment / "bin" / "turnlog")],
            folder=tmp_path,
        ) as server,
        server.http as http,
    ):
        answer = http.post("/v1/responses", json={"model": "scripted", "input": "hi"}).json()
        stored = http.get(f"/v1/responses/{answer['id']}/events").json()

    assert answer["output"][0]["content"][0]["text"] == "Hello"
    assert "response.committed.v1" in [event["event"] for event in stored["data"]]
