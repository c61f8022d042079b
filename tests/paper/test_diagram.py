"""The critical-difference diagram: where methods stand, what joins them, what is said of it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from metricgrad.evaluation.statistics import Ranking, rank_methods
from metricgrad.paper.diagram import LINE, critical_difference, said
from metricgrad.paper.printed import LOSSES, MODES, TABLE2


@pytest.fixture
def ranking() -> Ranking:
    found = rank_methods([TABLE2[dataset][metric] for dataset in TABLE2 for metric in LOSSES], MODES)
    assert found is not None
    return found


def test_it_has_a_title_and_a_description_and_is_well_formed(ranking: Ranking) -> None:
    svg = ET.fromstring(critical_difference(ranking, "a < b", "ranks"))
    assert svg.find("title").text == "a < b"
    assert svg.get("aria-labelledby") == svg.find("title").get("id") == "ranks-title"
    assert svg.find("desc").text == said(ranking)
    assert re.search(
        r"over 63 cells: SL-S 1\.\d\d, SL-R 1\.\d\d, SL-U 2\.\d\d\. Not told apart: SL-S, SL-R\.", said(ranking)
    )


def test_every_method_stands_at_its_rank_and_bars_join_those_not_told_apart(ranking: Ranking) -> None:
    svg = ET.fromstring(critical_difference(ranking, "t", "n"))
    axis = svg.find("line")
    left = float(axis.get("x1"))
    assert float(axis.get("x2")) - left == LINE
    down = [float(line.get("x1")) for line in svg.findall("line") if line.get("x1") == line.get("x2")]
    for rank in ranking.ranks.values():
        assert min(abs(x - (left + (rank - 1) / 2 * LINE)) for x in down) < 0.1
    [bar] = [line for line in svg.findall("line") if line.get("class") == "clique"]
    assert float(bar.get("x1")) < left + (ranking.ranks["sl-s"] - 1) / 2 * LINE
    assert float(bar.get("x2")) > left + (ranking.ranks["sl-r"] - 1) / 2 * LINE


def test_methods_all_told_apart_have_no_bar() -> None:
    ranking = Ranking({"<b>": 1.0, "other": 2.0}, 9, None, (), (), 0.05)
    drawn = critical_difference(ranking, "t", "n")
    assert "clique" not in drawn
    assert "&lt;b&gt; 1.00" in drawn
    assert said(ranking).endswith("Not told apart: none.")
