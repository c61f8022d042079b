"""Write docs/money.md from results/money: python -m studies.money.page"""

from __future__ import annotations

from studies.pages import DOCS
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "money.jsonl", DOCS / "money.md"
CELLS = {
    "fraud-2": ("fraud", "value_at_capacity(0.02, amount)"),
    "churn": ("churn", "savings(c_fp, c_fn, c_tp, c_tn)"),
    "fair": ("income", "f1 - equal_opportunity_gap(sex)"),
    "fraud-0.5": ("fraud", "value_at_capacity(0.005, amount)"),
    "worst": ("income", "group_min(f1, sex)"),
    "loans": ("loans", "sum(amount * tp) - 0.2 * sum(amount * fp)"),
}


def main() -> None:
    pass
