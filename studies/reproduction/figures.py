"""Draw the paper's Figures 1 to 3 and its runtime section again, all at once: python -m studies.reproduction.figures

Figure 3 is trained for, on IJCNN for AUC by the standard budget, which takes a minute; the runtime is drawn from what
`benchmarks.speed.complexity` stored. Pictures go to docs/images, Figure 2 to play with to docs/figure2.html.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.speed import complexity
from benchmarks.speed.measuring import stored
from metricgrad.paper.player import write_player
from metricgrad.paper.reproduce import draw
from studies.pages import DOCS

SETTINGS = {"dataset": "ijcnn1", "metric": "auc"}
PLAYER = DOCS / "figure2.html"


def main() -> None:
    """Draw all of them."""
    with tempfile.TemporaryDirectory() as folder:
        for figure in ("figure1", "figure2", "figure3"):
            picture, *_ = draw(figure, Path(folder), **SETTINGS)
            (DOCS / "images" / picture.name).write_bytes(picture.read_bytes())
    complexity.draw(stored(complexity.NAME)).savefig(complexity.PICTURE, dpi=130)
    write_player(PLAYER)


if __name__ == "__main__":
    main()
