"""Constrained decoding with llguidance: a grammar says which tokens may come next.

llguidance reads a schema's `pattern` by derivatives, in time linear in what it matches, so a client's regular
expression is safe to follow; look-around, which would not be, it refuses. Its own module for MLX needs a
Metal kernel; the mask is applied here with plain MLX operations, on any device.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from turnlog.adapters.engine_process.messages import Grammar, Shape
from turnlog.adapters.mlx.chat_format import DEFAULT_CALL, ChatFormat
from turnlog.adapters.mlx.proof import problem
from turnlog.adapters.mlx.runtime import mx
from turnlog.domain.errors import InvalidRequestError
from turnlog.domain.markers import MarkerScanner, MarkerSet
from turnlog.domain.ports import CallConstraint, Constraint, JsonConstraint
from turnlog.domain.schemas import checked, subschemas
from turnlog.domain.tools import Json, Tool

MOST_CALLS = 32
"""How many calls an answer may have that must be calls: a weak model would go on to the end of its budget."""

_FOLLOWED_TOKENS = 32
_FOLLOWED_TOKENS_OF_A_PATTERN = 384
_LONGEST_SHOWN = 100

# White space is where models write it; left free, a weak model writes nothing else.
_STYLE: Json = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# What a tool takes is for the tool to check in the end, so unknown keywords are passed over there.
_LENIENT: Json = {"lenient": True, "coerce_one_of": True}
_STRICT: Json = {"lenient": False, "coerce_one_of": False}
_COMBINATIONS = ("anyOf", "oneOf", "allOf")
_LIMITS = LLParserLimits(verbose_errors=False)


@dataclass(frozen=True)
class MlxConstraint:
    """A compiled constraint, made of `constraint`. Each turn goes with its own copy of the `matcher`."""

    matcher: LLMatcher
    constraint: Grammar

    @property
    def shape(self) -> Shape:
        """What an answer is held to."""
        return self.constraint.shape


class ConstraintCompiler:
    """Makes constraints for one tokenizer, a `TokenizerWrapper` of `mlx_lm`. Any thread."""

    def __init__(self, tokenizer: Any, chat_format: ChatFormat) -> None:
        # Taken now: the tokenizer must not be used by two threads at once.
        self._definition: str = tokenizer.backend_tokenizer.to_str()
        self._ends = sorted(chat_format.ends)
        ids = chat_format.default_call_ids
        # By number: written as a text, a token of the vocabulary would be no token in a grammar.
        self._markers = tuple(f"<[{marker}]>" for marker in ids) if len(ids) == 2 else None
        vocabulary = tokenizer.get_vocab().items()
        self._closing = chat_format.ends.union(id_ for word, id_ in vocabulary if '"' in word)
        self._made: LLTokenizer | None = None
        self._door = Lock()

    def compile(self, constraint: Constraint) -> MlxConstraint:
        """Make a constraint ready; see `InferenceEngine.compile`.

        Raises:
            InvalidRequestError: a schema breaks a limit, is invalid, or is not supported.
        """
        checked(constraint)
        try:
            made = self.build(self._grammar(constraint))
            self._prove(constraint, made)
        except InvalidRequestError:
            raise
        except Exception as error:
            # A schema may have anything anywhere, such as a number for its properties.
            raise InvalidRequestError(f"Unsupported schema: {type(error).__name__}.") from error
        return made

    def build(self, constraint: Grammar) -> MlxConstraint:
        """Make a constraint ready that another process has compiled for the same tokenizer.

        Raises:
            InvalidRequestError: its grammar is not supported.
        """
        matcher = LLMatcher(self._tokenizer(), constraint.grammar, limits=_LIMITS, log_level=0)
        if matcher.is_error():
            raise InvalidRequestError(f"Unsupported schema: {_first_line(matcher.get_error())}")
        return MlxConstraint(matcher, constraint)

    def _grammar(self, constraint: Constraint) -> Grammar:
        if isinstance(constraint, CallConstraint):
            return Grammar(self._calls(constraint), "calls")
        if constraint.tools:
            return Grammar(self._json_or_calls(constraint), "json or calls")
        return Grammar(self._json(_schema(constraint)), "json")

    def _json(self, schema: Json) -> str:
        grammar = LLMatcher.grammar_from_json_schema(schema, overrides=_STYLE | _STRICT)  # type: ignore[arg-type]
        self._validate(grammar, "The JSON schema is not supported")
        return grammar

    def _calls(self, constraint: CallConstraint) -> str:
        self._validate_tools(constraint.tools)
        return self._lark(["start: calls", *_call_grammar(constraint, self._markers)])

    def _json_or_calls(self, constraint: JsonConstraint) -> str:
        self._json(_schema(constraint))
        self._validate_tools(constraint.tools)
        answer = json.dumps({**_schema(constraint), "x-guidance": _STYLE | _STRICT})
        markers = self._markers or tuple(json.dumps(marker) for marker in DEFAULT_CALL)
        calls = _call_grammar(CallConstraint(constraint.tools, constraint.many), markers)
        return self._lark(["start: answer | calls", f"answer: %json {answer}", *calls])

    def _validate_tools(self, tools: Sequence[Tool]) -> None:
        for tool in tools:
            alone = LLMatcher.grammar_from_json_schema(_arguments(tool))
            self._validate(alone, f"The parameters schema of the tool '{tool.name}' is not supported")

    def _lark(self, rules: Sequence[str]) -> str:
        grammar = LLMatcher.grammar_from_lark("\n".join(rules))
        self._validate(grammar, "The tool schemas are not supported")
        return grammar

    def _validate(self, grammar: str, complaint: str) -> None:
        is_error, found = LLMatcher.validate_grammar_with_warnings(grammar, self._tokenizer(), limits=_LIMITS)
        if is_error:
            raise InvalidRequestError(f"{complaint}: {_first_line(found[0])}")

    def _prove(self, constraint: Constraint, made: MlxConstraint) -> None:
        """Follow the grammar for a few tokens, and before that each pattern that counts repetitions.

        Raises:
            InvalidRequestError: it, or one of them, cannot be followed.
        """
        for what, schema in _schemas(constraint):
            patterns = (each.get("pattern") for _, each in subschemas(schema))
            for pattern in {each for each in patterns if isinstance(each, str) and "{" in each}:
                grammar = LLMatcher.grammar_from_json_schema({"type": "string", "pattern": pattern})
                matcher = LLMatcher(self._tokenizer(), grammar, limits=_LIMITS, log_level=0)
                if said := problem(matcher, self._closing, _FOLLOWED_TOKENS_OF_A_PATTERN):
                    raise InvalidRequestError(
                        f"{what} has a pattern that cannot be followed, '{pattern[:_LONGEST_SHOWN]}': "
                        f"{_first_line(said)} Count fewer repetitions, or none within another."
                    )
        if said := problem(made.matcher, self._closing, _FOLLOWED_TOKENS):
            raise InvalidRequestError(f"The schema cannot be followed: {_first_line(said)}")

    def _tokenizer(self) -> LLTokenizer:
        # A third of a second for a big vocabulary, and most turns have no constraint.
        with self._door:
            if self._made is None:
                self._made = LLTokenizer(_without_spellings(self._definition), eos_token=self._ends)
            return self._made


def _without_spellings(definition: str) -> str:
    """The same tokenizer with names for its control tokens that no text has.

    Where a grammar leaves one text only, llguidance encodes it; a name or a constant of a schema that is
    written like a control token would become that token, which the grammar does not allow.
    """
    tokenizer: Json = json.loads(definition)
    nonce = secrets.token_hex(8)
    names = {token["content"]: f"<{nonce}:{token['id']}>" for token in tokenizer["added_tokens"]}
    tokenizer["added_tokens"] = [
        {**token, "content": names[token["content"]], "special": True} for token in tokenizer["added_tokens"]
    ]
    model = tokenizer["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(word, word): id_ for word, id_ in model["vocab"].items()}
    else:
        model["vocab"] = [[names.get(word, word), score] for word, score in model["vocab"]]
    if "unk_token" in model:
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    return json.dumps(tokenizer | {"post_processor": None, "truncation": None, "padding": None})


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0].rstrip(".:") + "."


def _schemas(constraint: Constraint) -> Iterator[tuple[str, Json]]:
    """Each schema of the constraint, and what it is called."""
    if isinstance(constraint, JsonConstraint):
        yield "The JSON schema", _schema(constraint)
    for tool in constraint.tools:
        yield f"The parameters schema of the tool '{tool.name}'", _arguments(tool)


def _schema(constraint: JsonConstraint) -> Json:
    return {"type": "object"} if constraint.schema is None else constraint.schema


def _arguments(tool: Tool) -> Json:
    """The schema of what a tool takes: an object, with no properties but those it names if it names any."""
    schema = tool.parameters or {}
    if not {"type", "$ref", *_COMBINATIONS} & schema.keys():
        schema = {"type": "object", **schema}
    named = schema.get("properties", {})
    if (
        "properties" in schema
        and not {"patternProperties", *_COMBINATIONS} & schema.keys()
        and set(schema.get("required", ())) <= set(named)
    ):
        schema = {"additionalProperties": False, **schema}
    return {**schema, "x-guidance": _STYLE | _LENIENT}


def _call_grammar(constraint: CallConstraint, markers: Sequence[str] | None) -> Iterator[str]:
    """The rules of `calls` in a Lark grammar. A schema has its own rule, so that its `$ref`s stay its own."""
    more = f"{{0,{MOST_CALLS - 1}}}"
    if markers is not None:
        yield "calls: one" + (f' ("\\n" one){more}' if constraint.many else "")
        yield f'one: {markers[0]} "\\n" call "\\n" {markers[1]}'
    else:
        yield "calls: " + (f'"[" call (", " call){more} "]"' if constraint.many else "call")
    yield "call: " + " | ".join(f"call_{number}" for number, _ in enumerate(constraint.tools))
    for number, tool in enumerate(constraint.tools):
        opening = f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "arguments": '
        yield f'call_{number}: {json.dumps(opening, ensure_ascii=False)} arguments_{number} "}}"'
        yield f"arguments_{number}: %json {json.dumps(_arguments(tool))}"


class ConstraintLostError(Exception):
    """A constraint cannot be followed any further, for a reason that lies in its schema."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The answer could not be held to its schema: {_first_line(reason)} Simplify it.")


class ConstrainedLogits:
    """A logits processor for one turn: leaves only the tokens by which its answer can go on.

    A constraint that breaks must not break the batch: then `failure` says how, and every token is left.

    Args:
        prompt_tokens: length of the prompt, which the grammar does not see.
        thinking: a fresh streaming detokenizer of `mlx_lm` if the prompt has begun the model's thinking: the
            grammar then comes in where that ends.
    """

    def __init__(
        self, constraint: MlxConstraint, chat_format: ChatFormat, *, prompt_tokens: int, thinking: Any = None
    ) -> None:
        self.failure: Exception | None = None
        self._matcher = constraint.matcher.deep_copy()
        self._ends = mx.array(sorted(chat_format.ends))
        self._read_tokens = prompt_tokens
        self._thinking = thinking
        self._think_end = chat_format.think_end or ""
        self._thoughts = MarkerScanner(MarkerSet([self._think_end]))

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        try:
            fresh: Any = tokens[self._read_tokens :].tolist()
            for token in fresh:
                self._read(token)
            self._read_tokens += len(fresh)
            allowed = self._allowed(logits.shape[-1])
        except Exception as error:
            self.failure = error
            return logits
        return mx.where(allowed, logits, mx.array(float("-inf"), dtype=logits.dtype))

    def _read(self, token: int) -> None:
        if self._thinking is not None:
            self._think(token)
        elif not self._matcher.is_stopped() and not self._matcher.consume_token(token):
            raise ConstraintLostError(self._matcher.get_error())

    def _think(self, token: int) -> None:
        # By its text, as the thinking is told from the answer elsewhere.
        self._thinking.add_token(token)
        _, marker, _ = self._thoughts.scan(self._thinking.last_segment)
        if marker == self._think_end:
            self._thinking = None

    def _allowed(self, vocabulary: int) -> mx.array:
        """Which tokens may be next, shape (vocabulary,)."""
        if self._thinking is not None:
            # To end while it thinks would be to end without an answer.
            return mx.logical_not(self._is_end(vocabulary))
        if self._matcher.is_stopped():
            # Also after the end: the batch computes one token further than it tells.
            return self._is_end(vocabulary)
        packed: Any = memoryview(self._matcher.compute_bitmask())
        if self._matcher.is_error():
            # The mask would let the answer end here.
            raise ConstraintLostError(self._matcher.get_error())
        mask = mx.array(packed)
        bits = ((mask[:, None] >> mx.arange(8, dtype=mx.uint8)) & 1).reshape(-1)[:vocabulary]
        return mx.pad(bits, (0, vocabulary - bits.size)) != 0

    def _is_end(self, vocabulary: int) -> mx.array:
        found = mx.zeros((vocabulary,), dtype=mx.bool_)
        found[self._ends] = True
        return found
