"""Write docs/ico.md from results/ico: python -m studies.ico.page"""

from __future__ import annotations

import pandas as pd

from metricgrad.evaluation.store import Store
from studies.ico.run import DATASETS, RESULTS
from studies.pages import DOCS, ROOT, markdown, versions, wrapped

PAGE = DOCS / "ico.md"
PRINTED = {
    "ijcnn1": ("21.18", "26.14", "27.28 ± 0.58"),
    "letter": ("15.13", "20.49", "23.04 ± 0.77"),
    "adult": ("39.74", "40.21", "40.34"),
}
"""Cross-entropy, TFCO and ICO in Table 5 of the paper."""
BEST = {"ijcnn1": 27.28, "letter": 23.04, "adult": 40.34}


def outcomes() -> pd.DataFrame:
    """Return every stored run."""
    return pd.DataFrame([{**record, **record["run"]} for record in Store(RESULTS)])


def cell(found: pd.DataFrame, *, part: str = "test") -> str:
    """Write mean and standard error of some runs."""
    return f"{found[part].mean():.2f} ± {found[part].sem():.2f}" if len(found) > 1 else "-"


def table(found: pd.DataFrame) -> str:
    """Write a row for each dataset: what is printed, and ours by model."""
    models = [model for model in ("linear", "additive") if (found["model"] == model).any()]
    ours = [f"{name}, {model}" for model in models for name in ("cross-entropy", "metricgrad")]
    rows = []
    for dataset in DATASETS:
        some = found[found["dataset"] == dataset]
        cells = [
            cell(some[(some["model"] == model) & (some["method"] == method)])
            for model in models
            for method in ("cross-entropy", "sl-r")
        ]
        rows.append([dataset, *PRINTED[dataset], *cells])
    return markdown(["", "CE, printed", "TFCO, printed", "ICO, printed", *ours], rows)


def limits(found: pd.DataFrame) -> str:
    """Write what the linear models reach on the rows they know, next to test rows."""
    rows = []
    for dataset in DATASETS:
        some = found[(found["dataset"] == dataset) & (found["model"] == "linear")]
        for method in ("cross-entropy", "sl-r"):
            runs = some[some["method"] == method]
            positives = f"{runs['positives'].mean():,.0f}" if len(runs) else "-"
            rows.append([dataset, method, cell(runs, part="known"), cell(runs), positives])
    return markdown(["", "", "training and validation rows", "test rows", "positives in test rows"], rows, left=2)


def page() -> str:
    """Return the page; every number on it comes from the results, or from the printed table."""
    found = outcomes()
    ours = found[(found["method"] == "sl-r") & (found["model"] == "linear")].groupby("dataset")["test"].mean()
    ahead = [name for name in DATASETS if name in ours and ours[name] > BEST[name]]
    return wrapped(
        TEXT.format(
            ahead=", ".join(ahead) or "none",
            behind=", ".join(name for name in ours.index if name not in ahead) or "none",
            seeds=found["seed"].nunique(),
            table=table(found),
            limits=limits(found),
            made=versions(list(Store(RESULTS))),
        )
    )


TEXT = """# Area under precision-recall at high recall

Table 5 of *Implicit rate-constrained optimization* (ICO, Kumar et al., ICML 2021): linear models, rows split 50/25/25,
and the area under the precision-recall curve for recalls from 0.95 to 1, in percent: `"pr_auc(0.95,1)"`. Here with
{seeds} seeds; means and standard errors over them. The printed columns are those of the paper, whose splits are not
published.

Linear models ahead of the best printed value: {ahead}. Behind it: {behind}.

{table}

Adult is `a9a` of LIBSVM, whose columns are the same data in binary form; ijcnn1 is its 49,990 training rows; the
positives of Letter are the commonest letter.

## What limits it

{limits}

Where known and test rows differ by more than their noise, the model is limited by the number of positives at the low
end of the ranking, on which this metric depends: 5 % of the positives decide it.

## How it was measured

`METRICGRAD_DATA=... python -m studies.ico.run`; this page by `python -m studies.ico.page`. Stored in
`results/ico.parquet`: {made}.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
