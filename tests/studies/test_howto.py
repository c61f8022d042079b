"""The pictures of the how-to pages are those of what is stored."""

from __future__ import annotations

import json
from pathlib import Path

from studies.howto import page
from studies.howto.run import RESULTS, TRAINED, USUAL


def test_pictures_are_drawn_from_what_is_stored(tmp_path: Path) -> None:
    record = json.loads(RESULTS.read_text("utf-8"))
    assert not record["made_by"]["commit"].endswith("-dirty")
    page.main(folder=tmp_path)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(page.PICTURES)
    texts = [text.get_text() for text in page.draw_cost(record).legends[0].get_texts()]
    assert texts == [f"{name}: {record['cost']['curves'][name]['chosen'][1]:.2f}" for name in (TRAINED, USUAL)]
