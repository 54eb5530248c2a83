"""The specification in `docs/spec`: the ids it defines, and what in the repository cites them.

`python -m tests.spec` rewrites the column "tests" and the links at the end of each page.
"""

import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "spec").glob("*.md"))

_ID = re.compile(r"\b(?:[RG]-\d{3}|[DC]-\d{2}|T2-\d{2}|[A-G]\d{1,2})\b")
_RANGE = re.compile(r"\b([RGDC]-|T2-)(\d+) (?:…|\u2013|to) \1(\d+)\b")
_TEST_NAME = re.compile(r"\bdef (test_\w+)")
_ROW = re.compile(r'^\| <a id="(?P<anchor>[\w-]+)"></a>(?P<id>\S+) \| (?P<cells>.*) \|$', re.MULTILINE)
_LABEL = re.compile(r"\[([^\]\s]+)\](?![(:])")
_LINKS = "\n\n<!-- Links, written by python -m tests.spec -->\n"


class Row(NamedTuple):
    """A rule: where it stands, what its row says, whether it holds, and the test files that name it."""

    id: str
    target: str
    state: str
    tests: tuple[Path, ...]


def rows() -> Iterator[Row]:
    """Every rule of the specification, page by page. A system (C-…) has no state of its own."""
    for page in PAGES:
        for match in _ROW.finditer(page.read_text()):
            *_, state, labels = match["cells"].split(" | ")
            tests = tuple(ROOT / "tests" / f"{label}.py" for label in _LABEL.findall(labels) if "/" in label)
            yield Row(match["id"], f"{page.name}#{match['anchor']}", state, tests)


def sources() -> Iterator[Path]:
    """Every file that may cite the specification."""
    yield from ROOT.glob("*.md")
    for folder in ("adapters", "app", "domain", "tests", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md", ".mjs", ".sse") and "node_modules" not in path.parts:
                yield path


def prose(path: Path) -> str:
    """What a file says to people: all of a document or a test, the comments and docstrings of other code."""
    if path.suffix == ".sse":
        return path.stem.replace("_", " ")
    text = path.read_text()
    if path.suffix != ".py" or "tests" in path.relative_to(ROOT).parts:
        return text
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(
        token.string for token in tokens if token.type == tokenize.COMMENT or token.string.startswith('"""')
    )


def cited(text: str) -> set[str]:
    """The ids that a text cites; `R-034 … R-037` cites four, and `def test_d1_…` cites D1."""
    ids = set(_ID.findall(text))
    for prefix, first, last in _RANGE.findall(text):
        ids |= {f"{prefix}{number:0{len(first)}}" for number in range(int(first), int(last) + 1)}
    for name in _TEST_NAME.findall(text):
        ids |= {report.upper() for report in re.findall(r"(?<=_)[a-g]\d{1,2}(?=_)", name)}
    return ids


def main() -> None:
    """Rewrite what follows from the tests."""
    targets = {row.id: row.target for row in rows()}
    labels_by_id: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        label = path.relative_to(ROOT / "tests").with_suffix("").as_posix()
        targets[label] = f"../../tests/{label}.py"
        for each in cited(path.read_text()):
            labels_by_id[each].append(label)
    for page in PAGES:
        page.write_text(_rewritten(page.read_text(), labels_by_id, targets))


def _rewritten(text: str, labels_by_id: Mapping[str, Sequence[str]], targets: Mapping[str, str]) -> str:
    def with_tests(row: re.Match[str]) -> str:
        if row["id"].startswith("C-"):
            return row[0]
        before, _, _ = row[0].rpartition(" | ")
        return f"{before} | {', '.join(f'[{label}]' for label in labels_by_id[row['id']])} |"

    text = _ROW.sub(with_tests, text.split(_LINKS, maxsplit=1)[0].rstrip())
    labels = sorted(set(_LABEL.findall(text)) & targets.keys())
    links = [f"[{label}]: {targets[label]}" for label in labels]
    return text + (_LINKS + "\n".join(links) if links else "") + "\n"


if __name__ == "__main__":
    main()
