"""The tables of docs/performance.md, each from the record of one benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.speed.measuring import bar_of
from studies.pages import markdown


def quartiles(one: Mapping[str, float], digits: int = 3) -> str:
    """Write a ratio with its quartiles."""
    if one["quartile_low"] == one["quartile_high"]:
        return f"{one['ratio']:.{digits}g}"
    return f"{one['ratio']:.{digits}g} ({one['quartile_low']:.{digits}g} to {one['quartile_high']:.{digits}g})"


def claim_table(claims: Iterable[Mapping[str, Any]]) -> str:
    """Write every claim, what was measured, the bar, and whether it is met."""
    rows = [[one["says"], quartiles(one), bar_of(one), "yes" if one["met"] else "**no**"] for one in claims]
    return markdown(["claim", "measured (quartiles)", "bar", "met"], rows)


def overhead_table(record: Mapping[str, Any]) -> str:
    """Write the time of training for a metric over that of cross-entropy, by width, also for lighter recipes."""
    rows = []
    for one in record["by_width"]:
        widths = "-".join(map(str, one["widths"]))
        ratios = one["ratio"], one["wall"], one["as_many_steps"], *one["lighter"].values()
        cells = [quartiles(each) for each in ratios]
        rows.append([widths, f"{one['steps']:,}", f"{one['seconds']['cross-entropy']:.1f} s", *cells])
    against = ["for F1", "by the clock", "over as many steps", *record["by_width"][0]["lighter"]]
    return markdown(["units", "steps", "cross-entropy", *against], rows)


def round_table(record: Mapping[str, Any]) -> str:
    """Write the time of a round and of a check on validation rows, by rows."""
    rounds = record["rounds"]
    rows = [
        [
            f"{int(n):,}",
            f"{1e3 * took:.1f} ms",
            quartiles(rounds["ratio"][n]),
            f"{1e3 * rounds['look_seconds'][n]:.0f} ms",
        ]
        for n, took in rounds["seconds"].items()
    ]
    return markdown(["rows", "a round", "over the smallest", "a check on validation rows"], rows, left=0)


def memory_table(record: Mapping[str, Any]) -> str:
    """Write the peak memory of fit."""
    rows = [
        [
            f"{one['rows']:,} x {one['features']}",
            f"{one['table_bytes'] / 1e6:.0f} MB",
            f"{one['before_bytes'] / 1e6:.0f} MB",
            f"{one['peak_bytes'] / 1e6:.0f} MB",
            f"{one['copies']:.2f}",
        ]
        for one in record["memory"]
    ]
    return markdown(["table", "its size", "before fit", "peak", "copies over 600 MB"], rows)


def growth_table(record: Mapping[str, Any]) -> str:
    """Write the time of metrics on long sets."""
    lengths = list(record["metrics"][0]["seconds"])
    rows = [
        [
            one["metric"],
            *(f"{1e3 * one['seconds'][n]:.0f} ms" for n in lengths),
            f"{one['system_seconds'][lengths[-1]] / one['seconds'][lengths[-1]]:.0%}",
            quartiles(one["growth"]),
        ]
        for one in record["metrics"]
    ]
    head = ["metric", *(f"{int(n):,} rows" for n in lengths), "of which system", "last step over n log n"]
    return markdown(head, rows)


def metric_table(record: Mapping[str, Any]) -> str:
    """Write the speed-up of every metric."""
    others = ("sklearn", "torchmetrics", "sklearn, one set")
    rows = [
        [one["metric"], *(quartiles(one[other]) if other in one else "-" for other in others)]
        for one in record["metrics"]
    ]
    return markdown(["metric", "scikit-learn", "torchmetrics", "scikit-learn, one set"], rows)


def thread_table(record: Mapping[str, Any]) -> str:
    """Write the effect of more threads, by width."""
    rows = [
        [
            "-".join(map(str, one["widths"])),
            f"{one['work'] / 1e6:.0f} M",
            quartiles(one["wall"]),
            quartiles(one["processor"]),
            str(one["chosen"]) if one["chosen"] == 1 else "as torch is set",
        ]
        for one in record["by_width"]
    ]
    threads = record["by_width"][0]["threads"]
    head = ["units", "work of a step", f"{threads} threads over 1, by the clock", "processor time", "chosen by `fit`"]
    return markdown(head, rows)


def paper_table(record: Mapping[str, Any]) -> str:
    """Write rounds of the paper's recipe over the direct way."""
    rows = []
    for one in record["by_size"]:
        times = [f"{name}: {quartiles(found)}" for name, found in one["to_direct"].items()]
        rates = [f"{name}: {100 * found['ratio']:.2g} %" for name, found in one["share_of_rate"].items()]
        direct = f"{1e3 * one['seconds_a_round']['direct']:.1f} ms"
        rows.append([f"{one['size']:,}", direct, "<br>".join(times), "<br>".join(rates)])
    return markdown(["N", "direct", "times as fast as direct", "share of the rate of a large product"], rows, left=4)


def trainer_table(record: Mapping[str, Any]) -> str:
    """Write milliseconds of a round of the paper's recipe, and hours of all of them."""
    labels = {"round, after": "now", "round, before": "0.1, plain", "round, before, compiled": "0.1, compiled"}
    rows = [
        [label, f"{1e3 * record['seconds'][name]:.1f}", f"{record['hours_of_all_rounds'][name]:.1f}"]
        for name, label in labels.items()
    ]
    return markdown(["code", "milliseconds a round", "hours for 300,000 rounds"], rows)


def step_table(record: Mapping[str, Any]) -> str:
    """Write the time of a step, ours and that of others."""
    names = [name for name in record["steps"][0]["seconds"] if name != "ours"]
    rows = []
    for one in record["steps"]:
        cells = [
            f"{1e3 * one['seconds'][n]:.1f} ms ({one['over_ours'][n]['ratio']:.2g})"
            if n in one["seconds"]
            else "too long"
            for n in names
        ]
        rows.append([f"{one['batch']:,}", f"{1e3 * one['seconds']['ours']:.1f} ms", *cells])
    return markdown(["batch", "ours", *(f"{name} (times ours)" for name in names)], rows, left=0)


def goal_table(record: Mapping[str, Any]) -> str:
    """Write the time of every contestant to a goal."""
    rows = []
    for one in record["goals"]:
        for name, end in one["found"].items():
            said = f"{end['seconds']:.1f} s" if end["reached"] else f"not in {end['seconds']:.0f} s"
            rows.append([f"{one['metric']} {one['goal']:.4f}", name, said, f"{end['value']:.4f}"])
    return markdown(["goal on test rows", "by", "processor time", "reached"], rows, left=2)


def made_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Write command, date, commit and machine of every record."""
    rows = []
    for record in found.values():
        made, host = record["made_by"], record["machine"]
        load = ", ".join(map(str, host.get("load", ["not stored"])))
        note = f" ({record['note']})" if "note" in record else ""
        rows.append([f"`{record['command']}`{note}", made["date"], made["commit"], f"torch {made['torch']}", load])
    host = max((record["machine"] for record in found.values()), key=len)
    table = markdown(["command", "date", "commit", "with", "load at the end"], rows, left=5)
    return f"{host.get('processor', '')} {host['machine']}, {host['cpus']} cores.\n\n{table}".lstrip()
