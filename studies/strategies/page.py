"""Write docs/strategies.md from results/strategies: python -m studies.strategies.page"""

from __future__ import annotations

from studies.pages import DOCS
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "strategies.jsonl", DOCS / "strategies.md"
METRICS = ("f1", "average_precision", "mcc", "partial_auc(0.05)", "precision_at(0.02)", "recall_at_precision(0.9)")
PAPER = ("a9a", "ccfraud", "codrna", "covtype", "ijcnn1", "porto", "skin", "susy")
MARGINS = (0.0, 0.5, 1.0)


def main() -> None:
    """Nothing yet."""


if __name__ == "__main__":
    main()
