"""Write docs/auto.md from results/auto: python -m studies.auto.page"""

from __future__ import annotations

from studies.pages import DOCS
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "auto.jsonl", DOCS / "auto.md"
METRICS = ("f1", "average_precision", "mcc")
PAPER = ("a9a", "ccfraud", "codrna", "covtype", "ijcnn1", "porto", "skin", "susy")


def main() -> None:
    pass
