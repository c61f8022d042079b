"""The section on short runs of docs/when-it-helps.md, which `python -m studies.when_it_helps.page` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studies.collapse.run import NOISE, ROWS
from studies.pages import spelt
from studies.when_it_helps.tables import METRIC_LABELS, MODEL_LABELS


def short_part(short: Sequence[dict[str, Any]]) -> str:
    """Write how many short runs ended worse than they began, and describe those whose selected model did."""
    over = {
        name: [r for r in short if r[name] - r["start"] > NOISE * r[f"{name}_error"] + 1e-12]
        for name in ("kept", "last")
    }
    kept = len(over["kept"])
    return f"""{len(short)} short runs on synthetic tables, prevalence 0.002 to 0.5, sets of 50 to 2,000 rows, every
built-in metric, three models, each with its own seed. Compared with the start of the rounds, on {ROWS["test"]:,}
fresh rows, **{kept} of {len(short)}** selected models {"is" if kept == 1 else "are"} worse by more than
{spelt(int(NOISE))} standard errors, and {len(over["last"])} of the last models, which were not validated.
{" ".join(_worse_run(r) for r in over["kept"])}"""


def _worse_run(r: dict[str, Any]) -> str:
    """Describe a short run whose selected model is worse than its start."""
    run, positives = r["run"], r["run"]["prevalence"] * ROWS["validation"]
    metric, kept = METRIC_LABELS.get(run["metric"], run["metric"]), "surrogate" if r["followed"] else "cross-entropy"
    return (
        f"Seed {run['seed']}: {metric}, {MODEL_LABELS[run['model']]}, about {positives:.0f} positive validation rows;"
        f" the selected checkpoint ({kept}) has a test loss of {r['kept']:.2f}, against {r['start']:.2f} at the start"
        f" of the rounds and {r['last']:.2f} for the last model of the surrogate."
    )
