"""What code, tests and documents cite is there, and the specification says where each rule holds."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spec import ROOT, Row, cited, prose, rows, sources

EXPECTED = {
    *(f"R-{number:03}" for number in range(1, 412)),
    *(f"G-{number:03}" for number in range(1, 163)),
    *(f"D-{number:02}" for number in range(1, 41)),
    *(f"C-{number:02}" for number in range(1, 91)),
}
STATE = re.compile(r"held(: .+)?|(differs|not carried over|untested|\*\*OPEN GAP\*\*): .+")
NAMED_PATH = re.compile(r"`((?:adapters|app|domain|docs|tests)/[\w./-]+)`")
NOWHERE = re.compile(r"(?<!RFC \d{4}, )\bsections? \d[\d.]*|\bissues? #?\d+", re.IGNORECASE)
DOCUMENT = re.compile(r"\b[\w-]+\.md\b")
DECISION = re.compile(r"\bdecisions?[ /]0*(\d+)")
LINK = re.compile(r"(?:\]\(|^\[[^\]]+\]: )(?!\w+:)([^#\s)]*)#?([^\s)]*)", re.MULTILINE)
ANCHOR = re.compile(r'^#+ (?P<heading>.+)|<a id="(?P<id>[^"]+)"', re.MULTILINE)

DOCUMENTS = [path for path in sources() if path.suffix == ".md"]
DOCUMENT_NAMES = {path.name for path in DOCUMENTS}
DECISIONS = {int(path.name[:4]) for path in DOCUMENTS if path.parent.name == "decisions"}


def test_every_rule_has_one_row() -> None:
    ids = [row.id for row in rows()]

    assert len(ids) == len(set(ids))
    assert EXPECTED - set(ids) == set()


def test_every_row_says_whether_its_rule_holds_and_where() -> None:
    rules = [row for row in rows() if not row.id.startswith("C-")]

    assert [f"{row.id}: {problem}" for row in rules for problem in problems_of(row)] == []


def problems_of(row: Row) -> Iterator[str]:
    """What is wrong with a row; `python -m tests.spec` mends what concerns tests."""
    modules = [ROOT / path for path in NAMED_PATH.findall(row.state)]
    if not STATE.fullmatch(row.state):
        yield f"not a state: {row.state}"
    if row.state.startswith(("held", "untested")) and not (row.tests or modules):
        yield "no test and no module is named"
    for path in (*modules, *row.tests):
        if not path.exists():
            yield f"{path.relative_to(ROOT)} does not exist"
        elif path in row.tests and row.id not in cited(path.read_text()):
            yield f"{path.relative_to(ROOT)} does not name it"


def test_every_citation_leads_somewhere() -> None:
    known = {row.id for row in rows()}
    paths = [path for path in sources() if path != Path(__file__)]

    nowhere = [
        f"{path.relative_to(ROOT)}: {dead}" for path in paths for dead in dead_citations(prose(path), known)
    ]

    assert nowhere == []


@pytest.mark.parametrize("dead", ["B99", "R-412", "section 24", "issue 6", "design.md", "decision 99"])
def test_a_citation_that_leads_nowhere_is_found(dead: str) -> None:
    assert dead_citations(f"As {dead} says.", set()) == [dead]


def dead_citations(text: str, known: set[str]) -> list[str]:
    """What a text refers to that is not in this repository: ids, documents, decisions, sections, issues."""
    return [
        *sorted(cited(text) - known),
        *NOWHERE.findall(text),
        *(match[0] for match in DOCUMENT.finditer(text) if match[0] not in DOCUMENT_NAMES),
        *(match[0] for match in DECISION.finditer(text) if int(match[1]) not in DECISIONS),
    ]


def test_every_link_of_a_document_leads_somewhere() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {match[0]}"
        for document in DOCUMENTS
        for match in LINK.finditer(document.read_text())
        if not leads_somewhere((document.parent / match[1]) if match[1] else document, match[2])
    ]

    assert broken == []


def leads_somewhere(target: Path, anchor: str) -> bool:
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(document: Path) -> set[str]:
    """Where in a document a link can lead to, as GitHub names it."""
    return {
        match["id"] or re.sub(r"[^\w\- ]", "", match["heading"].lower()).replace(" ", "-")
        for match in ANCHOR.finditer(document.read_text())
    }
