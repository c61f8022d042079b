"""The API reference names everything public, and its generated parts hold every command and every metric."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import typer

import metricgrad

DOCS = Path(__file__).parents[2] / "docs"
PUBLIC = {
    *("MetricClassifier", "MetricRanker", "MetricRegressor", "TableClassifier", "TableRanker"),
    *("TableRegressor", "Recipe", "SurrogateLoss"),
    *("fit_universal", "load_universal", "Metric", "get_metric", "black_box", "metrics", "best_threshold"),
    *("compare", "ComparisonResult", "save", "load", "additive", "Explanation", "Scorecard"),
}


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_documented_once_and_nothing_else() -> None:
    pages = "".join(page.read_text("utf-8") for page in (DOCS / "api").glob("*.md"))
    named = re.findall(r"^\.\. (?:autoclass|autofunction|py:module):: metricgrad\.(\w+)", pages, re.MULTILINE)
    assert sorted(named) == sorted(PUBLIC)
    assert all(hasattr(metricgrad, name) for name in named)


def test_every_command_is_in_the_reference(reference: ModuleType) -> None:
    text = reference.command_reference()
    commands = typer.main.get_command(reference.program()).commands
    assert {"fit", "compare", "reproduce", "universal"} <= set(commands)
    for name in commands:
        assert f"\n## `metricgrad {name}`\n" in text
    assert "--help" not in text
    assert "&quot;" not in text
    assert r'"5\*tp - fp"' in text, "a bare asterisk would begin italics"


def test_every_metric_is_in_a_table(reference: ModuleType) -> None:
    names, text = reference.metric_names(), reference.metric_tables()
    assert {"f1", "macro_f1", "sample_f1", "ndcg(10)", "within(0.1)"} <= set(names)
    for name in names:
        assert f"| `{name}` |" in text
