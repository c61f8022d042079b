"""Every link of the pages leads somewhere: to a file, to a heading that it has, or to a page of the gallery."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *(ROOT / "docs").rglob("*.md")]
PAGES = sorted(path for path in PAGES if "gallery" not in path.parts)
FENCED = re.compile(r"^( *)(`{3,})(?P<language>.*?)\n(?P<text>.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(<?(?P<target>[^)\s>]*)>?(?: \"[^\"]*\")?\)")
ATTRIBUTE = re.compile(r"(?:src|href)=\"(?P<target>[^\"]*)\"")
ROLE = re.compile(r"\{(?:doc|download)\}`[^`<]*<(?P<target>[^>`]*)>`")
INCLUDED = re.compile(r"\{(?:literalinclude|include|figure|image)\} (?P<target>\S+)")


def links(page: Path) -> list[str]:
    """Return the targets of all links of a page, those of included files too, without code and addresses."""
    text = page.read_text("utf-8")
    included = [match["target"] for match in INCLUDED.finditer(text)]
    text = FENCED.sub("", text)
    roles = [match["target"] for match in ROLE.finditer(text)]
    text = re.sub(r"`[^`\n]*`", "", ROLE.sub("", text))
    found = [match["target"] for pattern in (LINK, ATTRIBUTE) for match in pattern.finditer(text)]
    return [target for target in (*included, *roles, *found) if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """Return what the headings of a page can be linked by, as GitHub and MyST make it of their text."""
    heads = re.findall(r"^#+ +(.+?) *$", FENCED.sub("", page.read_text("utf-8")), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in heads]
    slugs = [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in plain]
    return {
        slug if not slugs[:place].count(slug) else f"{slug}-{slugs[:place].count(slug)}"
        for place, slug in enumerate(slugs)
    }


def problem(page: Path, target: str) -> str:
    """Return what is wrong with a link; nothing if it leads somewhere."""
    name, _, anchor = target.partition("#")
    if name.startswith(("gallery/", "../gallery/")):
        made = [f"plot_{path.stem.removeprefix('plot_')}" for path in (ROOT / "examples").glob("plot_*.py")]
        return "" if Path(name).stem in ("index", *made) else f"{target}: no such page of the gallery"
    path = (page.parent / name).resolve() if name else page
    path = path if path.exists() or path.suffix else path.with_suffix(".md")  # as {doc} names them
    if not path.exists():
        return f"{target}: no such file"
    known = anchors(path) if anchor and path.suffix == ".md" else {anchor}
    return "" if anchor in known else f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert [wrong for wrong in (problem(page, target) for target in links(page)) if wrong] == []


def test_links_are_found_and_those_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A title, it's `code`\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Head\n[a](other.md#a-title-its-code) ![b](no.png) [](#head) [c](other.md#twice-1) [d](other.md#none)\n"
        '[e](https://example.org) <img src="gone.svg"> {doc}`f <other>` {doc}`g <third>`\n'
        "`[h](in code)`\n\n```python\n[i](in a block)\n```\n\n```{literalinclude} lost.py\n```\n"
    )
    assert [wrong for wrong in (problem(page, target) for target in links(page)) if wrong] == [
        *("lost.py: no such file", "third: no such file", "no.png: no such file"),
        *("other.md#none: no such heading", "gone.svg: no such file"),
    ]


def test_every_picture_is_shown_by_some_page() -> None:
    shown = {Path(target).name for page in PAGES for target in links(page)}
    assert {path.name for path in (ROOT / "docs" / "images").iterdir()} - shown == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_programs_that_a_page_names_are_code(page: Path) -> None:
    text = re.sub(r"(`+)[^`]+\1", "", FENCED.sub("", page.read_text("utf-8")))
    assert not re.findall(r"python\s+-m\s+\S+", re.sub(r"(?m)^ {4}.*$", "", text))
