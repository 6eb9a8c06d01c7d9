"""Documents, and the texts and comments of the source, use plain technical English: none of the words in BANNED."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "tailwise"
# Pages below docs/results/*/ are written by commands from results: correct the commands instead.
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CODE_OF_CONDUCT.md",
    ROOT / "SECURITY.md",
    *sorted(DOCS.glob("*.md")),
    DOCS / "results" / "README.md",
]

# Pattern of what we do not write (whole words, any case; a space also matches a line break) → what we write instead.
BANNED = {
    r"told|tells?|telling": "report, show, raise, say",
    r"mend(s|ed|ing)?": "fix, repair",
    r"besides?": "next to, compared with, in addition to",
    r"whoever": "anyone who",
    r"such as cannot be": "that cannot be",
    r"(is|are|was|were) none": "is missing, is invalid",
    r"(?<!there\s)(is|are|was|were) no (?!longer\b|worse\b|better\b|larger\b|smaller\b)\w+": "is not a",
    r"what for": "why, for which",
    r"as (it|they) stands?": "unchanged, as is",
    r"rooms?": "module, space",
    r"house": "code base",
}
ALLOWED: tuple[str, ...] = ()  # exact phrases that are right although a pattern matches them
PUBLIC = {"`mend`", '"mended"'}  # names of 0.1.0 that people's programs use

GENERATED = re.compile(r"<!-- \w+: made by .*? -->.*?<!-- end -->", re.DOTALL)  # texts of the registries in src
CONSOLE = re.compile(r"^```console\n.*?^```$", re.DOTALL | re.MULTILINE)  # output of the program


@dataclass(frozen=True, slots=True)
class Finding:
    """One banned phrase in a text."""

    line: int  # from 1
    phrase: str
    instead: str


def findings(text: str) -> Iterator[Finding]:
    """Every banned phrase of a text."""
    for pattern, instead in BANNED.items():
        spaced = pattern.replace(" ", r"\s+")
        for match in re.finditer(rf"\b(?:{spaced})\b", text, re.IGNORECASE):
            if " ".join(match[0].split()).lower() not in ALLOWED:
                yield Finding(text.count("\n", 0, match.start()) + 1, match[0], instead)


def prose(page: str) -> str:
    """A page without generated tables and program output, with the same line numbers."""
    for part in (GENERATED, CONSOLE):
        page = part.sub(lambda found: "\n" * found[0].count("\n"), page)
    return page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_no_banned_words(page: Path) -> None:
    assert list(findings(prose(page.read_text(encoding="utf-8")))) == []


def texts(path: Path) -> str:
    """The strings and comments of a source file, at their lines; a file of the page as a whole."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    lines = [""] * (text.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.STRING, tokenize.COMMENT}:
            for at, line in enumerate(token.string.split("\n"), token.start[0]):
                lines[at] += f" {line}"
    found = "\n".join(lines[1:]).replace(" is None", "")  # the Python of an f-string
    for name in PUBLIC:
        found = found.replace(name, "")
    return found


@pytest.mark.parametrize("folder", sorted(path.name for path in SOURCE.iterdir() if path.name != "__pycache__"))
def test_the_source_has_no_banned_words(folder: str) -> None:
    top = SOURCE / folder
    files = sorted(top.rglob("*")) if top.is_dir() else [top]
    found = {
        path.relative_to(SOURCE).as_posix(): faults
        for path in files
        if path.suffix in {".py", ".js", ".css", ".html", ".toml"} and (faults := list(findings(texts(path))))
    }
    assert found == {}


# The check itself: it must find each kind of phrase, at its line, and leave other words alone.


@pytest.mark.parametrize(
    "sentence",
    [
        "A missing file is told with the nearest name.",
        "This tells what is wrong.",
        "It can be mended.",
        "The table lies beside it.",
        "Whoever has the link can label.",
        "The key 'x' is none.",
        "NaN is no number.",
        "A skip is\nno answer.",
        "Nobody knows what for.",
        "It is left as it stands.",
        "Rooms import each other.",
    ],
)
def test_a_banned_phrase_is_found(sentence: str) -> None:
    assert len(list(findings(sentence))) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "We recommend the amended and commended list.",
        "The class is no longer offered.",
        "There is no model yet, and there are no labels.",
        "Bathrooms and households.",
        "Errors report what is wrong and suggest a fix.",
    ],
)
def test_other_words_are_left_alone(sentence: str) -> None:
    assert list(findings(sentence)) == []


def test_a_finding_has_its_line_and_a_suggestion() -> None:
    assert list(findings("One.\nTwo is told.\n")) == [Finding(2, "told", "report, show, raise, say")]


def test_generated_tables_and_program_output_are_skipped_without_moving_lines() -> None:
    page = "<!-- scores: made by tailwise -->\n| told |\n<!-- end -->\n```console\n$ tailwise x\ntold\n```\ntold\n"
    assert [finding.line for finding in findings(prose(page))] == [8]
