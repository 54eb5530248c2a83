"""Reads what `GET /metrics` says."""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

_EDGE = "le"


class Described(NamedTuple):
    """A metric as the documentation describes it; `labels` in alphabetical order."""

    name: str
    kind: str
    labels: tuple[str, ...]


def described(text: str) -> set[Described]:
    """Every metric that has a sample."""
    return {_described(family) for family in _families(text)}


def samples(text: str, *beginnings: str) -> dict[str, float]:
    """The samples whose names begin so, without buckets; a name is like `turns_total{model=a,state=b}`."""
    found = {}
    for family in _families(text):
        for sample in family.samples:
            labels = ",".join(f"{label}={value}" for label, value in sample.labels.items())
            name = sample.name.removeprefix("turnlog_") + (f"{{{labels}}}" if labels else "")
            if name.startswith(beginnings) and not sample.name.endswith("_bucket"):
                found[name] = sample.value
    return found


def label_values(text: str) -> set[str]:
    """Whatever a label says anywhere."""
    return {
        value
        for family in _families(text)
        for sample in family.samples
        for label, value in sample.labels.items()
        if label != _EDGE
    }


def _families(text: str) -> Iterator[Metric]:
    """All but the times at which the library began to count, which it tells as metrics of their own."""
    for family in text_string_to_metric_families(text):
        if not family.name.endswith("_created"):
            yield family


def _described(family: Metric) -> Described:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = {label for sample in family.samples for label in sample.labels if label != _EDGE}
    return Described(name, family.type, tuple(sorted(labels)))
