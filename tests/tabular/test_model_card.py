"""The card says what a model is, and text of the user's is nothing but text in it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from metricgrad import Recipe, TableClassifier, get_metric
from metricgrad.tabular.model_card import SHOWN, write_card

QUICK = Recipe(warmup=9, rounds=0)


def test_a_card_says_metric_threshold_data_columns_versions_and_how_to_load() -> None:
    frame = pd.DataFrame({"age": np.arange(60) % 7, "all": 1, "left": ["yes", "no", "no"] * 20})
    model = TableClassifier("f1", model="linear", recipe=QUICK).fit(frame, "left")
    card = write_card(model, get_metric("f1"), {"metricgrad": "1.2.3", "commit": ""})
    for part in (
        "# A model of left, trained for F1",
        f"**F1 {1 - model.model_.validation_loss_:.4f}** on validation rows",
        "Positive is yes, negative no",
        f"Threshold on the raw scores of the network: {model.model_.threshold_:.6g}",
        "Trained on 60 rows, 20 of them positive, 1 features.",
        "![The metric on validation rows while training](validation.png)",
        'model = metricgrad.load("this-folder")',
        "| age | number |",
        "| all | not used: one value only |",
        "- metricgrad 1.2.3",
    ):
        assert part in card
    assert "commit" not in card


def test_names_of_any_kind_are_nothing_but_text() -> None:
    strange = "<img src=x onerror=alert(1)>|a\nb [c](javascript:1) `d` *e*"
    frame = pd.DataFrame({strange: np.arange(60) % 7, **{f"n{i}": np.arange(60) % 5 for i in range(SHOWN)}})
    model = TableClassifier("f1", model="linear", recipe=QUICK).fit(frame, np.tile(["<b>", "no", "no"], 20))
    card = write_card(model, get_metric("f1"), {})
    row = r"| &lt;img src=x onerror=alert(1)&gt;\|a b \[c\](javascript:1) \`d\` \*e\* | number |"
    assert row in card.splitlines()
    assert "<img" not in card
    assert "Positive is &lt;b&gt;" in card
    assert "| 1 more | |" in card
