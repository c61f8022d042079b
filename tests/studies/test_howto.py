"""The pictures and numbers of the how-to pages are those of what is stored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from studies.howto import page
from studies.howto.run import RESULTS, TRAINED, USUAL
from studies.pages import DOCS


def test_pictures_are_drawn_from_what_is_stored(tmp_path: Path) -> None:
    record = json.loads(RESULTS.read_text("utf-8"))
    assert not record["made_by"]["commit"].endswith("-dirty")
    pages, pictures = tmp_path / "howto", tmp_path / "images"
    pictures.mkdir()
    shutil.copytree(DOCS / "howto", pages)
    page.main(folder=pictures, pages=pages)
    assert sorted(path.stem for path in pictures.iterdir()) == sorted(page.PICTURES)
    for name in page.TEXTS:
        assert (pages / f"{name}.md").read_text("utf-8") == (DOCS / "howto" / f"{name}.md").read_text("utf-8")
    (pages / "costs.md").write_text("before\n<!-- measured -->\nold\n<!-- /measured -->\nafter\n", "utf-8")
    page.main(folder=pictures, pages=pages)
    (profit, usual) = (record["cost"]["curves"][name]["chosen"][1] for name in (TRAINED, USUAL))
    for shown in (f"the profit is {profit:.2f} a row", f"it is {usual:.2f}"):
        assert shown in " ".join((pages / "costs.md").read_text("utf-8").split())
    texts = [text.get_text() for text in page.draw_cost(record).legends[0].get_texts()]
    assert texts == [f"{name}: {record['cost']['curves'][name]['chosen'][1]:.2f}" for name in (TRAINED, USUAL)]
