"""Every command that README and docs show does what they say, on what ships."""

import re
from pathlib import Path

import pytest

from tests.documents import DOCUMENTS, LANGUAGES, ROOT, blocks, rewritten

NOT_RUN = {
    "README.md": [
        "make serve    # install, prepare a small default model, serve on http://127.0.0.1:8000",
    ],
}
"""The first line of each block that is marked as not run, by document. The mark says why."""

DATA = ("json", "mermaid", "text")
PATH = re.compile(r"`((?:adapters|app|docs|domain|tests)/[\w./-]+)`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_shows_what_its_document_shows(document: Path) -> None:
    """`python -m tests.documents` writes the outputs anew."""
    text = document.read_text()

    assert rewritten(text) == text


def test_the_blocks_that_are_not_run_are_these() -> None:
    marked = {
        str(document.relative_to(ROOT)): [
            block.code.splitlines()[0] for block in blocks(document.read_text()) if block.reason
        ]
        for document in DOCUMENTS
    }

    assert {document: found for document, found in marked.items() if found} == NOT_RUN


def test_every_path_that_a_document_names_exists() -> None:
    documents = [*DOCUMENTS, ROOT / "CHANGELOG.md", *(ROOT / "docs" / "decisions").glob("*.md")]

    missing = [
        f"{document.relative_to(ROOT)}: {path}"
        for document in documents
        for path in PATH.findall(document.read_text())
        if not (ROOT / path).exists()
    ]

    assert missing == []


def test_every_fence_says_what_is_in_it() -> None:
    """A command in a fence without a language, or in an indented one, would not be run."""
    for document in DOCUMENTS:
        fences = re.findall(r"^( *)```(.*)$", document.read_text(), re.MULTILINE)
        for (indent, language), closing in zip(fences[::2], fences[1::2], strict=True):
            assert (indent, closing) == ("", ("", "")), document
            assert language in (*LANGUAGES, *DATA), document
