"""Are bundled surrogates faithful on sets larger than those they were fitted to? python -m studies.fidelity.sizes

Random sets of the broad distribution, of 400 to 16,000 rows: linear models follow a surrogate on all rows at once.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from metricgrad import SurrogateLoss
from metricgrad.provenance import provenance
from metricgrad.reporting.progress import work_bar
from metricgrad.surrogate.fidelity import measure_fidelity
from metricgrad.surrogate.synthetic import BroadSets
from studies.fidelity import page
from studies.pages import command

METRICS = ("auc", "average_precision", "f1", "mcc", "jaccard", "partial_auc(0.05)", "precision_at(0.02)", "ks")
SIZES = (400, 1_200, 4_000, 16_000)
SETS, GROUP, SEED = 400, 8, 11


def measured(metric: str, rows: int) -> dict[str, Any]:
    """Return gap and correlation of the surrogate of a metric on sets of so many rows."""
    loss = SurrogateLoss(metric, frozen=True)
    sets = BroadSets()(SETS // GROUP, GROUP, rows, torch.Generator().manual_seed(SEED))
    found = measure_fidelity(loss.surrogate, loss.metric, tuple(sets))
    return {"metric": metric, "rows": rows, **found}


def main() -> None:
    asked, cells = [(metric, rows) for metric in METRICS for rows in SIZES], []
    with work_bar() as report:
        for number, (metric, rows) in enumerate(asked, 1):
            cells.append(measured(metric, rows))
            report("cells", number, len(asked))
    stored = {"command": command(), "made_by": provenance(), "seed": SEED, "sets": SETS, "cells": cells}
    page.SIZES.write_text(json.dumps(stored, indent=1) + "\n", "utf-8")
    page.main()


if __name__ == "__main__":
    main()
