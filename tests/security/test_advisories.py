"""What happened to other servers, tried on this one; `docs/security.md` has the whole list.

Those that have a file of their own: connections, compressed bodies, batches, hostile output, source, floors.
"""

import ast
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.http.test_turns import refused
from tests.security.test_source import trees
from tests.tiny_model import make_tiny_model
from tests.waiting import SOON_S
from turnlog.adapters.mlx.engine import MlxEngine
from turnlog.adapters.openai.request import decode_request
from turnlog.domain.errors import EngineError, InvalidRequestError
from turnlog.domain.messages import Message
from turnlog.domain.ports import CallConstraint, JsonConstraint
from turnlog.domain.tools import Json, Tool

LEAST: Json = {"model": "scripted", "input": "hi"}


def post(http: httpx.Client, **fields: Any) -> httpx.Response:
    """A request with these fields."""
    return http.post("/v1/responses", json=LEAST | fields)


# ── what a request may say ────────────────────────────────────────────────────────────────────────

ELSEWHERE: Json = {
    # CVE-2026-115918, CVE-2025-62426, CVE-2025-61620: templates and their arguments
    "chat_template": "{{ 7 * 7 }}",
    "chat_template_kwargs": {"tokenize": False, "chat_template": "{{ 7 * 7 }}"},
    "add_generation_prompt": False,
    "mm_processor_kwargs": {"trust_remote_code": True},
    # CVE-2026-34756, CVE-2024-8939: how often
    "best_of": 10**9,
    "prompt_logprobs": 10**9,
    # CVE-2026-114051, CVE-2026-116181, CVE-2026-116173, CVE-2026-93989, CVE-2026-21869: for native code
    "min_tokens": -1,
    "allowed_token_ids": [-1, 10**9],
    "stop_token_ids": [-1],
    "bad_words": ["a"] * 1_000,
    "n_discard": -5,
    # CVE-2025-48942: grammars of other kinds
    "guided_regex": "(a+)+$",
    "guided_grammar": "start: start",
    "structured_outputs": {"regex": "(((("},
    # CVE-2026-114053: which code
    "revision": "refs/pr/1",
    "code_revision": "main",
    "adapter_path": "../../../etc",
    "draft_model": "/etc/passwd",
}


@pytest.mark.parametrize("field", ELSEWHERE)
def test_what_other_servers_let_a_request_say_changes_nothing(field: str) -> None:
    plain = decode_request(json.dumps(LEAST).encode(), {})

    assert decode_request(json.dumps(LEAST | {field: ELSEWHERE[field]}).encode(), {}) == plain


URLS = [
    "http://169.254.169.254/latest/meta-data",
    "https://example.com/a.png",
    "file:///etc/passwd",
    "data:text/plain;base64,aGk=",
    "data:image/png;base64,http://example.com",
    "//example.com/a.png",
    "data:image/png,http://example.com",
]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    "part",
    [
        lambda url: {"type": "input_image", "image_url": url},
        lambda url: {"type": "input_file", "file_url": url},
        lambda url: {"type": "input_image", "image_url": {"url": url}},
    ],
    ids=["image", "file", "image of Chat Completions"],
)
def test_no_url_is_fetched(http: httpx.Client, part: Any, url: str) -> None:
    """CVE-2025-6242, CVE-2026-24779, vllm-mlx #488."""
    error = refused(post(http, input=[{"role": "user", "content": [part(url)]}]), 400)

    assert error["param"] == "input"


@pytest.mark.parametrize("given", ["", " ", [], [{"role": "user", "content": ""}], [1, 2, 3], [[1, 2, 3]]])
def test_an_empty_prompt_or_one_of_token_ids_is_refused(http: httpx.Client, given: Any) -> None:
    """CVE-2024-8768, CVE-2026-116181; D-11."""
    assert refused(post(http, input=given), 400)["param"] == "input"


MODELS = [
    *("../../etc/passwd", "/etc/passwd", "sha256:../../x", "sha256-" + "0" * 64),
    *("mlx-community/any", "SCRIPTED", "\0"),
]


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_a_name_in_a_table_and_nothing_else(http: httpx.Client, model: str) -> None:
    """CVE-2024-37032, CVE-2026-103663, CVE-2026-114053, mlx-lm #1892."""
    assert refused(post(http, model=model), 404)["code"] == "model_not_found"


@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "%2e%2e", "a%00b", "x" * 5_000, "resp_%0a%0d"])
@pytest.mark.parametrize("route", ["/v1/models/{}", "/v1/responses/{}", "/v1/responses/{}/events"])
def test_a_name_in_a_path_is_looked_up_and_no_more(http: httpx.Client, route: str, name: str) -> None:
    """CVE-2024-37032; vllm-mlx #68: paths."""
    assert http.get(route.format(name)).status_code == 404


def test_what_is_wrong_inside_is_not_told_outside(http: httpx.Client) -> None:
    """vllm-mlx #488: error texts told internal addresses. A refusal tells no path of this machine."""
    for answer in (post(http, model="x"), http.get("/v1/nothing"), post(http, input=[{"role": "x"}])):
        assert str(Path.home()) not in answer.text
        assert "Traceback" not in answer.text


# ── what a model folder may say ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "reach",
    [
        "cycler.__init__.__globals__.os.popen('touch {}').read()",
        "''.__class__.__mro__[1].__subclasses__()",
        "(messages | map(attribute='__class__.__init__.__globals__') | list)[0]",
        "'{0.__class__.__init__.__globals__}'.format(messages)",
    ],
)
def test_a_template_does_not_get_out_of_its_sandbox(tmp_path: Path, reach: str) -> None:
    """CVE-2024-34359, CVE-2026-5760, CVE-2024-56326, CVE-2025-27516."""
    trace = tmp_path / "trace"
    template = "{{ " + reach.replace("{}", str(trace)) + " }}"

    try:
        engine = MlxEngine.load(make_tiny_model(tmp_path / "model", template))
    except EngineError:
        assert not trace.exists()
        return
    with closing(engine), pytest.raises(InvalidRequestError, match="template rejected this conversation"):
        engine.render([Message("user", "hi")])
    assert not trace.exists()


def test_there_is_one_way_to_render_a_prompt() -> None:
    """CVE-2026-5760: the sandbox was there, but not on an endpoint that was used rarely."""
    rendering = {
        path
        for path, node in trees()
        if isinstance(node, ast.Attribute) and node.attr in ("apply_chat_template", "from_string", "Template")
    }

    assert rendering == {"adapters/mlx/template.py"}


@pytest.mark.parametrize("key", ["model_file", "auto_map"])
def test_a_model_that_brings_code_is_refused(tmp_path: Path, key: str) -> None:
    """CVE-2026-5843."""
    folder = make_tiny_model(tmp_path / "model")
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {key: "evil.py"}))

    with pytest.raises(EngineError, match=key):
        MlxEngine.load(folder)


# ── what a schema may say ─────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlxEngine]:
    """An engine that compiles constraints."""
    engine = MlxEngine.load(make_tiny_model(tmp_path_factory.mktemp("advisories") / "model"))
    yield engine
    engine.close()


def deep(levels: int, key: str) -> Json:
    return {key: deep(levels - 1, key)} if levels else {}


BAD_SCHEMAS: dict[str, Json] = {
    "no type": {"type": "nothing"},
    "a pattern that is none": {"type": "string", "pattern": "((("},
    "a look-around": {"type": "string", "pattern": "(?=a)(?<!b)"},
    "a reference to nowhere": {"$ref": "#/$defs/nowhere"},
    "a reference to elsewhere": {"$ref": "http://example.com/schema.json"},
    "a reference to itself": {"$ref": "#"},
    "deep": deep(200, "not"),
    "wide": {"properties": {str(number): {} for number in range(2_000)}},
    "many values": {"enum": list(range(1_000))},
    "long": {"const": "x" * 100_000},
    "impossible": {"type": "object", "required": ["a"], "additionalProperties": False, "properties": {}},
    "bounds that cross": {"type": "integer", "minimum": 5, "maximum": 1},
    "a huge repetition": {"type": "string", "pattern": "(a{1,1000}){1,1000}{1,1000}"},
    "huge lengths": {"type": "array", "items": {"type": "array", "minItems": 10**9}, "minItems": 10**9},
}


@pytest.mark.parametrize("name", BAD_SCHEMAS)
def test_a_bad_schema_is_refused_or_followed_and_never_breaks_the_engine(
    engine: MlxEngine, name: str
) -> None:
    """CVE-2025-48942, CVE-2025-48943, CVE-2025-48944, CVE-2025-57809, CVE-2025-58446, CVE-2026-25048.

    Also CVE-2026-55574 and PYSEC-2026-3933: a pattern is followed by derivatives, which do not backtrack.
    """
    schema = BAD_SCHEMAS[name]
    tool = Tool("t", "function", "t", parameters=schema)

    for constraint in (JsonConstraint(schema), CallConstraint((tool,), many=False)):
        try:
            engine.compile(constraint)
        except InvalidRequestError as error:
            assert len(error.message) < 1_000
    assert engine.ping().result(SOON_S) is None


def test_nothing_is_cached_by_what_a_request_says() -> None:
    """CVE-2026-114052, CVE-2025-29770, CVE-2025-32381: caches that grow with requests.

    Each function that remembers is named here with what it remembers by.
    """
    remembered = {
        f"{path}:{node.name}"
        for path, node in trees()
        if isinstance(node, ast.FunctionDef)
        and any("cache" in ast.unparse(decorator) for decorator in node.decorator_list)
    }

    assert remembered <= {
        "app/http/documents.py:_document",  # by the settings
        "app/http/documents.py:documented_names",  # once
        "adapters/mlx/engine.py:_renderer",  # by the engine
        "adapters/mlx/template.py:_traits",  # by the model's template
        "adapters/engine_process/source.py:defaults",  # by the model's folder
        "adapters/engine_process/source.py:weight_bytes",  # by the model's folder
        "adapters/mlx/source.py:weight_bytes",  # by the model's folder
        "adapters/openai/typed.py:fields",  # by the struct
        "adapters/openai/typed.py:bounds",  # by the struct
    }
