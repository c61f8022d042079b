"""What the page says about the three modes: how often they end in one model, their fidelity and their order."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from metricgrad.evaluation.records import Record
from metricgrad.evaluation.statistics import Ranking
from metricgrad.paper import printed as paper
from metricgrad.paper.layouts import method_label
from studies.pages import listed, markdown, titled
from studies.reproduction.evidence import STANDARD


def same_in_all_modes(records: Sequence[Record]) -> tuple[int, int]:
    """Count the datasets, metrics and seeds in which all three modes have equal losses, and all of them."""
    found: dict[tuple[object, ...], list[object]] = {}
    for record in records:
        if record.method in paper.MODES:
            place = record.dataset, record.metric, record.seed, record.replicate
            found.setdefault(place, []).append(record.kept["test"])
    places = [tests for tests in found.values() if len(tests) == len(paper.MODES)]
    return sum(tests.count(tests[0]) == len(tests) for tests in places), len(places)


def about_runs(own: Sequence[Record]) -> str:
    """Return by which code the models of the tables were trained, and how often the modes end in the same model."""
    made = own[0].kept["made_by"]
    same, places = same_in_all_modes(own)
    return (
        f"The tables are of {len(own):,} runs (commit {made['commit']} of {made['date']}, {STANDARD.title}), of models "
        "that followed their loss, each the best checkpoint on validation rows. What `fit` would keep is another "
        "matter: beside a surrogate a control continues on cross-entropy, and it is kept unless the surrogate's model "
        f"is better by a standard error on validation rows. In {same} of {places} combinations of dataset, metric and "
        "seed that is the control in all three modes, so one and the same model."
    )


def modes_table(records: Sequence[Record]) -> str:
    """Write for each mode how often the guard would keep it, and how faithful its surrogate is at the end."""
    rows = []
    for mode in paper.MODES:
        own = [r for r in records if r.method == mode]
        verdicts = [r.verdict for r in own if r.verdict is not None]
        ends = [end for r in own if (end := last_trust(r)) is not None]
        kept = f"{fmean(verdicts):.0%}" if verdicts else "-"
        rows.append([method_label(mode), f"{len(own)}", kept, f"{median(ends):.2f}" if ends else "-"])
    head = ("mode", "runs", "kept by the guard", "Spearman of surrogate and metric at the end, median")
    return titled("The modes", markdown(head, rows))


def last_trust(record: Record) -> float | None:
    """Return the last known correlation of surrogate and metric of a run."""
    known = [trust for trust in (record.kept.get("history") or {}).get("trust") or () if trust is not None]
    return known[-1] if known else None


def order_sentence(ranking: Ranking | None) -> str:
    """Return whether SL-R and SL-S differ significantly."""
    pair = next((p for p in ranking.pairs if {p.one, p.other} == {"sl-r", "sl-s"}), None) if ranking else None
    if pair is None or ranking is None:
        return "and SL-R and SL-S were not compared"
    apart = pair.corrected < ranking.level
    words = "differ significantly, unlike in the paper" if apart else "do not differ significantly, as in the paper"
    return f"and SL-R and SL-S {words} (Wilcoxon after Holm, p = {pair.corrected:.2g})"


def worst_sentence(ranking: Ranking | None) -> str:
    """Return which mode has the worst mean rank; empty if the modes were not compared."""
    if ranking is None:
        return ""
    worst = max(ranking.ranks, key=lambda mode: ranking.ranks[mode])
    words = "as in the paper" if worst == "sl-u" else "in the paper it is SL-U"
    return f"By our recipe {method_label(worst)} has the worst mean rank of the three modes; {words}."


def apart(ranking: Ranking | None) -> str:
    """Return whether the modes differ significantly, and their mean ranks."""
    if ranking is None or ranking.friedman is None:
        return "were not compared"
    ranks = listed([f"{method_label(mode)} {rank:.2f}" for mode, rank in ranking.ranks.items()])
    differ = "differ" if ranking.friedman[1] < ranking.level else "do not differ significantly"
    return f"{differ} (mean ranks over {ranking.cells} cells {ranks}; Friedman p = {ranking.friedman[1]:.2g})"
