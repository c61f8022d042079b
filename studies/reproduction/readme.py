"""What README.md says about the tables."""

from __future__ import annotations

from metricgrad.paper import printed as paper
from metricgrad.paper.layouts import method_label, metric_label, seed_count
from metricgrad.paper.tables import PaperTable
from studies.pages import ROOT, listed, wrapped
from studies.paper_recipe.baselines_page import budget_sentence
from studies.paper_recipe.long_page import long_courses, long_sentence
from studies.reproduction.evidence import COMPARED, Evidence
from studies.reproduction.modes import apart
from studies.reproduction.published import recipe_sentence

README = ROOT / "README.md"


def readme_part(found: Evidence) -> str:
    """Return what the README says about the tables."""
    seeds, printed = seed_count(found.tables["paper"][0]), found.rankings["honest"]
    made = found.own[0].kept["made_by"]
    lines = [
        f"""Done here at the standard budget, on the eight datasets that are available (three of them in part), with
        {seeds}, {len(found.own):,} runs (metricgrad {made["metricgrad"]}, {made["date"]}):""",
        f"""- Under `paper` with the recipe `default`, models that follow a refined surrogate (SL-R) are at or below the
        printed SL-R in {found.at_or_below(0, "sl-r")} cells of {listed(COMPARED)}.""",
        f"""- So are hand-made losses, once they are trained as well: cross-entropy in
        {found.at_or_below(1, "cross-entropy")} cells. Lowest loss of Table 3 under `honest`, SL-R named first:
        {wins_against(found.tables["honest"][1])}.""",
        f"- {recipe_sentence(found)}",
        *(f"- {sentence}" for sentence in (long_sentence(long_courses()), budget_sentence()) if sentence),
        f"""- With the default recipe the three modes {apart(printed)}; in the paper SL-U came last.""",
    ]
    return "\n".join(wrapped(" ".join(line.split())).strip() + ("\n" if not i else "") for i, line in enumerate(lines))


def wins_against(table: PaperTable) -> str:
    """Return the wins of SL-R and of the hand-made losses, ours and the printed ones, loss by loss."""
    parts = []
    for metric, own in table.wins.items():
        others = [method for method in own if method != "sl-r"]
        ours = " to ".join(f"{own[name]:.1f}" for name in ("sl-r", *others))
        theirs = " to ".join(f"{paper.PRINTED_WINS[metric][name]:g}" for name in ("sl-r", *others))
        parts.append(f"{metric_label(metric)} {ours} ({listed([method_label(o) for o in others])}; printed {theirs})")
    return ", ".join(parts)
