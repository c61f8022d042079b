"""Write docs/fidelity.md from results/fidelity.json and the bundled index: python -m studies.fidelity.page"""

from __future__ import annotations

import json
from typing import Any

from metricgrad import get_metric
from metricgrad.surrogate.pretrained import bundled_index
from studies.pages import DOCS, markdown
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "fidelity.json", DOCS / "fidelity.md"
SIZES = FOLDER / "fidelity_sizes.json"
DIRECTION = FOLDER / "fidelity_direction.json"


def by_size(stored: dict[str, Any]) -> str:
    """Return the table of gaps and correlations by the size of the sets."""
    sizes = sorted({cell["rows"] for cell in stored["cells"]})
    cells = {(cell["metric"], cell["rows"]): cell for cell in stored["cells"]}
    rows = [
        [f"`{metric}`", *(f"{cells[metric, n]['gap']:.4f} / {cells[metric, n]['spearman']:.3f}" for n in sizes)]
        for metric in dict.fromkeys(cell["metric"] for cell in stored["cells"])
    ]
    return markdown(["metric", *(f"{n:,} rows" for n in sizes)], rows)


def page(stored: dict[str, Any], index: dict[str, Any], larger: dict[str, Any]) -> str:
    """Return the page."""
    made, cells = stored["made_by"], stored["cells"]
    held_out = {name: entry["held_out_sets_of_400"] for name, entry in index.items()}
    bundled = [
        [f"`{name}`", *(f"{own[key]:.4f}" for key in ("gap", "spearman", "ceiling"))] for name, own in held_out.items()
    ]
    real = [
        [
            *(c["data"], c["model"], get_metric(c["metric"]).label),
            *(f"{c['loss']:.4f}", f"{c['spearman']:.3f}", f"{c['gap']:.4f}", f"{c['change']:+.5f}"),
        ]
        for c in cells
    ]
    return f"""# How faithful the bundled surrogates are

Written by `python -m studies.fidelity.page` from `results/fidelity.json` and the index of the bundled weights
(metricgrad {made["metricgrad"]}, torch {made["torch"]}, {made["date"]}, seed {stored["seed"]}). Do not edit by hand.

## On random sets they were not fitted to

4,000 sets of 400 rows from the broad distribution (`BroadSets`), drawn with another seed than the fitted sets.

{markdown(["metric", "gap", "Spearman", "at most"], bundled)}

`best_*` are the forms used for training: the metric at the best threshold of the set itself. The others have their
threshold at zero. `precision_at(0.02)` and `recall_at_precision(0.9)` depend on a few rows at the top of a set and are
the hardest to imitate; so does `best_precision`, whose surrogate measures scores relative to the highest one. Three
quarters of the sets have a best precision of 1, and sets with exactly equal losses have no order: *at most* is the
highest Spearman correlation that any surrogate without ties can have.

## On real scores, before any refining

Models after 3,000 steps of cross-entropy. Spearman correlation and gap over 400 sets of 400 training rows, drawn as the
default recipe draws them, all scored by one model: the sets differ only in their rows. The last column is the change of
the metric on the *whole training set* along one step against the surrogate's gradient, with a length of
{cells[0]["step"]:.0%} (linear) or {cells[-1]["step"]:.1%} (network) of the norm of the weights.

{markdown(["data", "model", "metric", "loss", "Spearman", "gap", "change"], real, left=3)}

## On larger sets

Linear and additive models follow a surrogate on all rows at once, many more than the sets it was fitted to. Gap and
Spearman correlation over {larger["sets"]} random sets of each size (`{larger["command"]}`, {larger["made_by"]["date"]},
seed {larger["seed"]}).

{by_size(larger)}
"""


def main() -> None:
    real, larger = (json.loads(path.read_text("utf-8")) for path in (RESULTS, SIZES))
    PAGE.write_text(page(real, bundled_index(), larger), "utf-8")


if __name__ == "__main__":
    main()
