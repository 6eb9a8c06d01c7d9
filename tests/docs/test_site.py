"""The documentation site: every page is in the navigation, links and anchors resolve, docstrings are read correctly."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import tailwise
from tailwise.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


class Loader(yaml.SafeLoader):
    """YAML in which a Python object, here the function that makes anchors, is only a value."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda _loader, suffix, _node: suffix)
SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
GENERATED = {"gallery.md", "changelog.md", "contributing.md", "examples.md"} | {
    f"results/{tables.parent.name}/index.md"
    for tables in DOCS.glob("results/*/tables")
    if not (tables.parent / "README.md").exists()
}  # by docs/hooks.py
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def entries(nav: list[Any]) -> Iterator[str]:
    """The paths of the navigation, in order."""
    for entry in nav:
        for below in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [below] if isinstance(below, str) else entries(below)


def without_code(markdown: str) -> str:
    return re.sub(r"^( *)```.*?^\1```$", "", markdown, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What can follow # in a link to the page: its headings, as GitHub and the site write them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Target and anchor of each relative link and image."""
    text = without_code(page.read_text(encoding="utf-8"))
    yield from re.findall(r"\]\((?!https?://|mailto:)([^)#\s]*)#?([^)\s]*)\)", text)
    yield from ((source, "") for source in re.findall(r'<img src="([^"]+)"', text))


def test_every_entry_of_the_navigation_exists_once() -> None:
    listed = list(entries(SITE["nav"]))
    assert len(listed) == len(set(listed))
    assert [path for path in listed if path not in GENERATED and not (DOCS / path).is_file()] == []


def test_every_page_is_in_the_navigation() -> None:
    listed = set(entries(SITE["nav"]))
    left_out = SITE["not_in_nav"].split()
    missing = [page for page in PAGES if page not in listed and not any(fnmatch(f"/{page}", one) for one in left_out)]
    assert missing == []
    assert listed >= GENERATED


@pytest.mark.parametrize("page", ["../CONTRIBUTING.md", "../SECURITY.md", *PAGES])
def test_links_between_pages_resolve(page: str) -> None:
    path = (DOCS / page).resolve()
    for target, anchor in links(path):
        there = (path.parent / target).resolve() if target else path
        if there.suffix in {".png", ".gz"} and not (ROOT / ".git").exists():
            continue  # the source archive leaves them out
        assert there.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(there), f"{page}: {target}#{anchor}"


def test_links_to_the_site_lead_to_its_pages() -> None:
    pages = [path.removesuffix(".md") for path in entries(SITE["nav"])]
    for page in [ROOT / "README.md", *(DOCS / name for name in PAGES)]:
        for target in re.findall(rf"{SITE['site_url']}([\w/-]*)", page.read_text(encoding="utf-8")):
            assert target.removesuffix("/") in ["", *pages], f"{page.name}: {target}"


def test_a_wrong_link_and_a_wrong_anchor_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c, d?\n[x](no.md) ![y](no.png#z) [w](#a-b-c-d)\n```\n[code](no.md)\n```\n", encoding="utf-8"
    )
    assert list(links(page)) == [("no.md", ""), ("no.png", "z"), ("", "a-b-c-d")]
    assert anchors(page) == {"a-b-c-d"}


def test_the_site_loads_nothing_from_elsewhere() -> None:
    assert SITE["theme"]["font"] is False
    assert "repo_url" not in SITE  # with it, browsers ask GitHub for the number of stars
    local = [*SITE["extra_css"], *SITE.get("extra_javascript", [])]
    assert all((DOCS / path).is_file() for path in local)
    assert "http" not in (DOCS / "site.css").read_text(encoding="utf-8")


def test_the_site_has_light_and_dark_colours_search_and_strict_links() -> None:
    assert {one.get("scheme") for one in SITE["theme"]["palette"]} == {None, "default", "slate"}
    assert "search" in SITE["plugins"]
    assert set(SITE["validation"].values()) == {"warn"}
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_site_is_built_into_a_folder_that_is_ignored_and_is_where_the_project_says() -> None:
    assert SITE["site_dir"].startswith("build/")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert SITE["site_url"] == project["urls"]["Documentation"]
    assert SITE["extra"]["repository"] == project["urls"]["Source"]


# The API reference


def test_every_public_name_is_in_the_reference() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8") + (DOCS / "api-modules.md").read_text(encoding="utf-8")
    for name in tailwise.__all__:
        assert re.search(rf"^::: tailwise\.{name}\b", page, re.MULTILINE) or name == "__version__", name


@pytest.mark.parametrize("page", ["api.md", "api-modules.md"])
def test_every_name_of_the_reference_exists(page: str) -> None:
    for name in re.findall(r"^::: (\S+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE):
        module, _, last = name.rpartition(".")
        found = importlib.import_module(module)
        assert hasattr(found, last) or importlib.util.find_spec(name), name


def script(name: str) -> ModuleType:
    """A script of docs/."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OURS = """\
Choose.

Parameters
----------
proba: (N, C) probabilities,
    or a path.
a, b: two at once.

Examples
--------
>>> 1 + 1
2
"""


def test_docstrings_are_rewritten_for_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    griffe = ModuleType("griffe")  # of the site's own environment; only the base class is needed here
    griffe.Extension = object  # type: ignore[attr-defined]
    griffe.Object = object  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "griffe", griffe)
    rewritten = script("docstrings").rewritten
    sections = rewritten(OURS)
    assert (
        "Parameters:\n    proba: (N, C) probabilities,\n        or a path.\n    a: two at once.\n    b: two at once."
        in sections
    )
    assert "Examples:\n    >>> 1 + 1\n    2" in sections
    assert "---" not in sections
    assert rewritten("One.\n\n>>> f(1)\n2\n\nMore.") == "One.\n\n\nExamples:\n    >>> f(1)\n    2\n\nMore."
    assert rewritten("One.\n\nTwo: three.") == "One.\n\nTwo: three."


# The gallery


def test_the_gallery_shows_every_strategy() -> None:
    gallery = script("gallery")
    page = gallery.page()
    assert [name for name in STRATEGIES if f"(gallery/{name}-0-dark.webp#only-dark)" not in page] == []
    assert gallery.in_order()[:2] == ["boundary", "base"]


def test_a_picture_of_the_gallery_is_drawn_and_balance_finds_the_rare_class() -> None:
    gallery = script("gallery")
    pool = gallery.toy()
    rare = len(gallery.SIZES) - 1
    classical, balanced = (
        (pool.labels[gallery.picks(pool, "entropy", balance)] == rare).sum()
        for _, balance in gallery.balances("entropy")
    )
    assert balanced > classical
    picture = gallery.draw(pool, "one", gallery.picks(pool, "galaxy", 0.0), dark=True)
    assert picture[:4] == b"RIFF"
    assert len(picture) < 100_000
