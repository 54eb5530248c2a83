"""Each field comes from the request, else from what is set for the model, else from it (R-103, R-177)."""

from msgspec.structs import replace

from turnlog.domain.defaults import ModelDefaults
from turnlog.domain.events import Sampling
from turnlog.domain.messages import Message
from turnlog.domain.request import DEFAULT_SAMPLING, TurnRequest

REQUEST = TurnRequest(model="tiny", input=(Message("user", "hi"),))
OWN = ModelDefaults(temperature=0.6, top_p=0.9, top_k=20, repetition_penalty=1.1, max_output_tokens=64)


def test_a_request_takes_the_defaults_for_what_it_leaves_open() -> None:
    filled = REQUEST.with_defaults(OWN)

    assert filled.sampling == Sampling(0.6, 0.9, 0, top_k=20, repetition_penalty=1.1)
    assert filled.max_output_tokens == 64
    assert set(filled.defaulted) == set(OWN.given())
    assert filled.with_defaults(ModelDefaults(top_k=1, min_p=0.1)).sampling == replace(
        filled.sampling, min_p=0.1
    )


def test_what_a_request_says_stays_also_if_it_says_what_turnlog_would_have() -> None:
    asked = replace(REQUEST, max_output_tokens=5, left_open=frozenset({"top_k"}))

    assert asked.with_defaults(OWN) == replace(
        asked, sampling=replace(DEFAULT_SAMPLING, top_k=20), left_open=frozenset(), defaulted=("top_k",)
    )


def test_what_is_set_goes_before_what_the_model_says() -> None:
    named = ModelDefaults(temperature=0.0, min_p=0.1)

    assert named.over(OWN) == replace(OWN, temperature=0.0, min_p=0.1)
    assert ModelDefaults().over(OWN) == OWN


def test_a_default_that_changes_nothing_is_the_value_itself() -> None:
    """The log leaves it out, as if there were none."""
    assert REQUEST.with_defaults(ModelDefaults(min_p=float("0.0"))).sampling.min_p is DEFAULT_SAMPLING.min_p
