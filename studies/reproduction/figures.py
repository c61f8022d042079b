"""Draw the paper's Figures 1 to 3 and its runtime section again, all at once: python -m studies.reproduction.figures

Figure 3 is trained for, on IJCNN for AUC and F1 by the standard budget; the runtime is drawn from what
`benchmarks.speed.complexity` stored. Pictures go to docs/images, Figure 2 to play with to docs/figure2.html, and the
seconds that all took to results/figures.json.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from benchmarks.speed import complexity
from benchmarks.speed.measuring import processor_seconds, stored
from metricgrad.files import write_whole
from metricgrad.paper.player import write_player
from metricgrad.paper.reproduce import draw
from metricgrad.provenance import provenance
from studies.pages import DOCS, RESULTS, command

FIGURES = {
    "figure1": ("figure1", {}),
    "figure2": ("figure2", {}),
    "figure3": ("figure3", {"dataset": "ijcnn1", "metric": "auc"}),
    "figure3-f1": ("figure3", {"dataset": "ijcnn1", "metric": "f1"}),
}
"""Pictures by name: the figure and its settings."""
PLAYER = DOCS / "figure2.html"
STORED = RESULTS / "figures.json"


def draw_all() -> None:
    """Draw all of them."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (figure, settings) in FIGURES.items():
            picture, *_ = draw(figure, Path(folder), **settings)
            (DOCS / "images" / f"{name}.png").write_bytes(picture.read_bytes())
    complexity.draw(stored(complexity.NAME)).savefig(complexity.PICTURE, dpi=130)
    write_player(PLAYER)


def main() -> None:
    """Draw all of them and store the processor time of it."""
    record = {"seconds": processor_seconds(draw_all), "command": command(), "made_by": provenance()}
    write_whole(STORED, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
