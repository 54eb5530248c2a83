"""A script that is declared as a model: read at once, and loaded as the file says."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from turnlog.adapters.scripted.engine import ScriptedEngine
from turnlog.adapters.scripted.source import ScriptedSource
from turnlog.domain.errors import EngineError


def written(path: Path, **keys: Any) -> Path:
    """A script as a file."""
    path.write_text(json.dumps({"turns": []} | keys))
    return path


def test_two_of_the_same_file_are_one_model_whatever_way_it_is_named(tmp_path: Path) -> None:
    """R-060: links and detours lead to the same file; another file of the same text is another model."""
    path = written(tmp_path / "a.json")
    link = tmp_path / "link.json"
    link.symlink_to(path)
    same = [ScriptedSource(each) for each in (path, link, Path(os.path.relpath(path)))]

    other = ScriptedSource(written(tmp_path / "b.json"))

    assert {same[0]: "a", other: "b"} == {same[1]: "a", other: "b"} == {same[2]: "a", other: "b"}
    assert same[0] != other
    assert same[0] != path


def test_what_it_claims_is_known_before_it_is_loaded_and_told_by_the_engine(tmp_path: Path) -> None:
    source = ScriptedSource(written(tmp_path / "a.json", weight_bytes=4000, kv_bytes_per_token=8))

    engine = source.load()
    engine.close()

    assert source.weight_bytes == 4000
    assert (engine.info.weight_bytes, engine.info.kv_bytes_per_token) == (4000, 8)


def test_each_load_is_another_model_object_with_the_same_fingerprint(tmp_path: Path) -> None:
    """D-27: a model that was unloaded and loaded again is the same model."""
    source = ScriptedSource(written(tmp_path / "a.json"))

    first, second = source.load(), source.load()
    first.close()
    second.close()

    assert first is not second
    assert first.info == second.info


def test_a_load_takes_its_time_and_fails_if_the_script_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept_s: list[float] = []
    monkeypatch.setattr("turnlog.adapters.scripted.source.time.sleep", slept_s.append)
    failing = ScriptedSource(written(tmp_path / "a.json", load_ms=250, load_error="out of luck"))
    slow = ScriptedSource(written(tmp_path / "b.json", load_ms=1500))

    with pytest.raises(EngineError, match=r"^out of luck$"):
        failing.load()
    engine = slow.load()
    engine.close()

    assert isinstance(engine, ScriptedEngine)
    assert slept_s == [0.25, 1.5]


def test_a_file_that_is_no_script_is_refused_when_it_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"turns": 1}')

    with pytest.raises(EngineError, match=r"a\.json: turns: Expected `array`, got `int`"):
        ScriptedSource(path)
