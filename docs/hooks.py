"""What mkdocs calls while it builds the site: generated pages, links that lead out of docs/, and llms.txt."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))  # for gallery.py

import gallery  # noqa: E402 - found only now

LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
COPIED = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}  # page → file of the repository


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of other things: the gallery, two files of the repository, one page per study."""
    for path, content in generated_pages():
        files.append(File.generated(config, path, content=content))
    for path, picture in gallery.pictures():
        files.append(File.generated(config, path, content=picture))
    return files


def generated_pages() -> Iterator[tuple[str, str]]:
    """Paths and Markdown of the pages that have no file in docs/."""
    yield "gallery.md", gallery.page()
    yield "examples.md", examples_page()
    for page, name in COPIED.items():
        yield page, (DOCS.parent / name).read_text(encoding="utf-8").replace("](docs/", "](")
    for tables in sorted(DOCS.glob("results/*/tables")):
        if not (tables.parent / "README.md").exists():
            yield f"results/{tables.parent.name}/index.md", study_page(tables.parent)


def examples_page() -> str:
    """Every script of examples/ with what it says of itself, and every notebook as its cells."""
    parts = [
        "# Examples\n\nComplete programs that run unchanged; the tests run them. They are in the folder `examples/`.\n"
    ]
    for path in sorted((DOCS.parent / "examples").glob("*.py")):
        about, _, code = path.read_text(encoding="utf-8").removeprefix('"""').partition('"""\n')
        parts.append(f"## {path.name}\n\n{about}\n\n```python\n{code.strip()}\n```\n")
    for path in sorted((DOCS.parent / "examples").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        parts.append(f"## {path.name}\n\n" + "\n\n".join(cell_text(cell) for cell in cells if cell["source"]) + "\n")
    return "\n".join(parts)


def cell_text(cell: dict[str, Any]) -> str:
    """A cell of a notebook as Markdown, its headings below those of the page."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "code":
        return f"```python\n{source}\n```"
    return re.sub(r"^(#+) ", r"##\1 ", source, flags=re.MULTILINE)


def study_page(study: Path) -> str:
    """All figures of a study, and links to its tables."""
    tables = "".join(f"- [{title_of(path)}](tables/{path.name})\n" for path in sorted(study.glob("tables/*.md")))
    figures = "\n".join(f"![{path.stem}](figures/{path.name})\n" for path in sorted(study.glob("figures/*.png")))
    return (
        f"# {study.name}\n\n[What this study is about](../README.md).\n\n## Tables\n\n{tables}\n## Figures\n\n{figures}"
    )


def title_of(page: Path) -> str:
    """The heading of a page, or the name of its file."""
    first = page.read_text(encoding="utf-8").lstrip().partition("\n")[0]
    return first.lstrip("# ") if first.startswith("#") else page.stem.replace("-", " ")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:  # noqa: ANN401
    """Make links work that work in the repository: to files outside docs/, and to folders of tables."""
    here = Path(page.file.src_path).parent

    def fixed(link: re.Match[str]) -> str:
        target = link["target"]
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        path = (DOCS / here / target).resolve()
        if path.name == "tables" and path.is_dir():
            target = f"{target.removesuffix('/').removesuffix('tables')}index.md"
        elif not path.is_relative_to(DOCS) or (page.file.src_path in COPIED and not path.exists()):
            inside = path if not path.is_relative_to(DOCS) else DOCS.parent / target
            target = f"{config.extra['repository']}/blob/main/{inside.relative_to(DOCS.parent).as_posix()}"
        return f"{link['text']}({target}{link['anchor'] or ''})"

    if page.file.src_path.startswith("results/") and page.file.src_path.count("/") > 1:
        page.meta["search"] = {"exclude": "/tables/" in page.file.src_path}
    return LINK.sub(fixed, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt, a map of the pages for programs that read text, and all pages as one file."""
    site = Path(config.site_dir)
    texts = {path: page_text(path) for _, path in entries(config.nav or [])}
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Pages", ""]
    for title, path in entries(config.nav or []):
        url = f"{config.site_url}{path.removesuffix('.md').removesuffix('README').removesuffix('index')}"
        lines.append(f"- [{title}]({url.rstrip('/')}/): {summary(texts[path])}")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n\n---\n\n".join(texts.values()), encoding="utf-8")


def entries(nav: list[Any], title: str = "") -> Iterator[tuple[str, str]]:
    """Title and path of every page of the navigation, in order."""
    for entry in nav:
        for name, below in entry.items() if isinstance(entry, dict) else [(title, entry)]:
            if isinstance(below, str):
                yield name, below
            else:
                yield from entries(below, name)


def page_text(path: str) -> str:
    """The Markdown of a page, generated or not."""
    if (DOCS / path).exists():
        return (DOCS / path).read_text(encoding="utf-8")
    return dict(generated_pages())[path]


def summary(markdown: str) -> str:
    """The first sentence of text."""
    without_html = re.sub(r"<[^>]+>|^---\n.*?\n---\n|\{[^}]*\}", "", markdown, flags=re.DOTALL)
    blocks = [block.strip() for block in without_html.split("\n\n")]
    paragraphs = [
        block for block in blocks if block and not block.startswith(("#", "!", "|", "```", ":::", "- ", "    "))
    ]
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraphs[0].split())) if paragraphs else ""
    return re.split(r"(?<=[.!?]) ", plain.replace("**", ""))[0]
