"""Write the guided tour: run its commands, and keep what they print and the pages they write as text and pictures.

`make tour` runs this. The table is generated here, so that the tour needs no file and is the same everywhere.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from playwright.sync_api import Page, sync_playwright
from sklearn.datasets import load_wine

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
SHOTS = {
    "tour-verdict": "header",
    "tour-metric": "#metric",
    "tour-curves": "#curves",
    "tour-threshold": "#threshold",
    "tour-confusion": "#confusion",
    "tour-convergence": "#training",
    "tour-calibration": "#calibration",
    "tour-fidelity": "#fidelity",
}
"""Names of pictures, and the section of the page that each shows."""

TOUR = """\
# A guided tour

Written by `make tour` (`docs/make_tour.py`), which runs every command below and keeps its output and pictures. Do not
edit by hand.

You have a table of customers, `churn.csv`, and the model will be judged by F1. Two commands lead from the file to a
model you can trust.

```
{head}
```

## First ask whether it is worth it

```sh
{compare}
```

```text
{compare_said}
```

The last line but one is the answer. It comes from {splits} splits of the table into training, validation and test
rows. Columns are encoded on training rows, checkpoints and thresholds are chosen on validation rows, and test rows are
used once. The splits overlap, so the interval is that of the corrected resampled t-test (Nadeau and Bengio 2003); a
plain one would be too narrow. If the answer is *no reliable difference*, believe it and use cross-entropy.
Whatever the answer here, the tour continues with a model for F1, to show the remaining steps.

`--model linear` and the short recipe keep this tour quick. Leave both out for the network of the paper and the full
training.

## Look at the page

`{page}` is one file that works offline and can be sent by mail.

![The verdict, and what was compared](images/tour-verdict.png)

![The metric of every method on every split, and how far metricgrad is ahead of each](images/tour-metric.png)

*Dots are splits, bars are means. On the right, an interval without zero is a reliable difference.*

![ROC and precision-recall curves](images/tour-curves.png)

*Untick a method to hide it, point at a curve to read it.*

![The metric at every threshold](images/tour-threshold.png)

*The metric if more or fewer rows were called positive. The dots are the thresholds chosen on the validation rows; the
distance to the top of the curve is the cost of not knowing the best one.*

![Confusion matrices](images/tour-confusion.png)

![Convergence](images/tour-convergence.png)

*The metric on validation rows during training. Every network has the same warm-up on cross-entropy; then each is
trained on its own loss.*

![Calibration](images/tour-calibration.png)

*Scores are for ranking and thresholding. This shows how far they are from probabilities.*

![Fidelity of the surrogate](images/tour-fidelity.png)

*The surrogate against the metric it stands for, on sets of rows it was not refined on.*

## Then fit

```sh
{fit}
```

```text
{fit_said}
```

## Use it

```sh
{predict}
```

```text
{predict_said}
```

```sh
{evaluate}
```

```text
{evaluate_said}
```

## A table with money in it

`payments.csv` has an amount for every payment, and checking one costs 5. The metric is the money that checking saves;
the amount is found by its name, and is no feature unless asked for (`--column-features`).

```sh
{money}
```

```text
{money_said}
```

```sh
{money_evaluate}
```

```text
{money_evaluate_said}
```

## A table of numbers

`prices.csv` has a price, and a prediction is good within 10 % of it. The metric is one of numbers, so `fit` trains a
regressor: `predict` writes a prediction for every row.

```sh
{numbers}
```

```text
{numbers_said}
```

```sh
{numbers_predict}
```

```text
{numbers_predict_said}
```

## A table of several classes

`wine.csv` (scikit-learn's) has three kinds of wine. A metric of several classes takes them all.

```sh
{classes}
```

```text
{classes_said}
```

```sh
{classes_evaluate}
```

```text
{classes_evaluate_said}
```

## The same in a notebook

```python
import pandas as pd

import metricgrad

table = pd.read_csv("churn.csv")
found = metricgrad.compare(table, "churn", "f1", verbose=True)  # polars frames and arrays work too
found  # the verdict and the table
found.plot_threshold()  # also plot_metric, plot_roc, plot_precision_recall, plot_calibration
found.write_page("page.html")  # the page above
```

A fitted `MetricClassifier` shows its metric, threshold and training as well, `verbose=True` shows progress bars, and
`callback=` sends every round to a logger: see the [gallery](gallery/index).
"""


def customers(rows: int, seed: int) -> pd.DataFrame:
    """Generate customers: columns of every kind, missing values, and a rare target that is not linear."""
    rng = np.random.default_rng(seed)
    tenure, spend, calls = rng.gamma(2, 14, rows), rng.gamma(3, 18, rows), rng.poisson(1.4, rows)
    plan, age = rng.choice(["basic", "plus", "family"], rows, p=[0.5, 0.3, 0.2]), rng.normal(44, 14, rows).clip(18, 90)
    joined = pd.Timestamp("2024-06-01") - pd.to_timedelta((30 * tenure).astype(int), unit="D")
    angry = 1.1 * (calls >= 4) + 0.9 * ((spend > 70) & (plan == "basic")) + 0.9 * ((tenure < 6) & (age < 30))
    odds = -3.4 + 2.2 * angry + 0.012 * (spend - 54) - 0.015 * (tenure - 28) + 0.3 * rng.normal(size=rows)
    table = pd.DataFrame(
        {
            "customer_id": [f"C{i:06d}" for i in rng.permutation(10 * rows)[:rows]],
            "joined": joined.strftime("%Y-%m-%d"),
            "age": age.round(),
            "plan": plan,
            "monthly_spend": spend.round(2),
            "calls_to_support": calls,
            "paperless": np.where(rng.random(rows) < 0.6, "yes", "no"),
            "churn": np.where(rng.random(rows) < 1 / (1 + np.exp(-odds)), "yes", "no"),
        }
    )
    table.loc[rng.random(rows) < 0.05, "age"] = np.nan
    return table


def payments(rows: int, seed: int) -> pd.DataFrame:
    """Generate payments, few of them frauds, with amounts of a long tail."""
    rng = np.random.default_rng(seed)
    amount, hour, country = rng.lognormal(3, 1.2, rows), rng.integers(0, 24, rows), rng.choice(["AT", "DE", "FR"], rows)
    age = rng.gamma(2, 200, rows)
    odds = -3.2 + 1.2 * (hour < 6) + 0.8 * (country == "FR") - 0.002 * age + 0.3 * np.log(amount)
    return pd.DataFrame(
        {
            "amount": amount.round(2),
            "hour": hour,
            "country": country,
            "days_as_customer": age.round(),
            "fraud": np.where(rng.random(rows) < 1 / (1 + np.exp(-odds)), "yes", "no"),
        }
    )


def prices(rows: int, seed: int) -> pd.DataFrame:
    """Generate flats and their prices, with text and missing cells."""
    rng = np.random.default_rng(seed)
    size, floor = rng.gamma(6, 12, rows) + 15, rng.integers(0, 9, rows)
    quarter = rng.choice(["north", "old town"], rows)
    said = "quiet bright sunny garden balcony park lift cellar garage parquet noisy old small dark"
    text = [" ".join(rng.choice(said.split(), 6, replace=False)) for _ in range(rows)]
    bright, dark = (np.array([word in each for each in text]) for word in ("bright", "dark"))
    dear = 0.25 * (quarter == "old town") + 0.15 * bright - 0.15 * dark + 0.01 * floor
    value = np.exp(8.3 + 0.9 * np.log(size) + dear + 0.1 * rng.normal(size=rows))
    table = pd.DataFrame({"size": size.round(), "floor": floor, "quarter": quarter, "advert": text})
    table.loc[rng.random(rows) < 0.05, "floor"] = np.nan
    return table.assign(price=[f"€{each:,.0f}" for each in value])


def wine() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return scikit-learn's table of wines in two parts."""
    found = load_wine(as_frame=True).frame
    found["kind"] = found.pop("target").map({0: "barolo", 1: "grignolino", 2: "barbera"})
    later = found.sample(frac=0.3, random_state=0)
    return found.drop(index=later.index), later


def said(command: str, folder: Path) -> str:
    """Run a command in a folder and return what it printed."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    program, *words = shlex.split(command)
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def photograph(page: Page, address: str) -> None:
    """Save pictures of the sections of a page."""
    page.goto(address)
    page.wait_for_selector("#fidelity svg circle, #fidelity svg path")
    page.add_style_tag(content="nav { position: static !important; } h2 { margin-top: 1rem !important; }")
    for name, part in SHOTS.items():
        page.locator(part).screenshot(path=IMAGES / f"{name}.png")


def main() -> None:
    """Run the tour in a temporary folder and write its page."""
    how = "--model linear --recipe warmup=600,rounds=200,learning_rate=0.003"
    commands = {
        "compare": f"metricgrad compare churn.csv --target churn --metric f1 --splits 5 {how}",
        "fit": f"metricgrad fit churn.csv --target churn --metric f1 --out churn-model {how}",
        "predict": "metricgrad predict churn-model new.csv --id customer_id",
        "evaluate": "metricgrad evaluate churn-model later.csv",
        "money": "metricgrad fit payments.csv --target fraud --metric 'sum(amount * tp) - 5*tp - 5*fp' "
        "--out fraud-model --model additive --folds 3",
        "money_evaluate": "metricgrad evaluate fraud-model later-payments.csv",
        "numbers": "metricgrad fit prices.csv --target price --metric 'within(0.1)' --out price-model --model linear",
        "numbers_predict": "metricgrad predict price-model new-prices.csv",
        "classes": "metricgrad fit wine.csv --target kind --metric macro_f1 --out wine-model --model linear --folds 3",
        "classes_evaluate": "metricgrad evaluate wine-model later-wine.csv",
    }
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        folder = Path(place)
        customers(6_000, seed=0).to_csv(folder / "churn.csv", index=False)
        customers(2_000, seed=1).to_csv(folder / "later.csv", index=False)
        customers(5, seed=2).drop(columns="churn").to_csv(folder / "new.csv", index=False)
        payments(3_000, seed=0).to_csv(folder / "payments.csv", index=False)
        payments(2_000, seed=1).to_csv(folder / "later-payments.csv", index=False)
        prices(2_000, seed=0).to_csv(folder / "prices.csv", index=False)
        prices(5, seed=2).drop(columns="price").to_csv(folder / "new-prices.csv", index=False)
        for frame, name in zip(wine(), ("wine.csv", "later-wine.csv"), strict=True):
            frame.to_csv(folder / name, index=False)
        texts = {f"{name}_said": said(command, folder) for name, command in commands.items()}
        head = "\n".join((folder / "churn.csv").read_text(encoding="utf-8").splitlines()[:5])
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        photograph(page, (folder / "metricgrad-compare" / "index.html").as_uri())
        browser.close()
    text = TOUR.format(**commands, **texts, head=head, splits=5, page="metricgrad-compare/index.html")
    (DOCS / "tour.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
