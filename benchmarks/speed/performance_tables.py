"""The tables of docs/performance.md, each from the record of one benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.speed.measuring import bar_of
from benchmarks.speed.scale import copies_of
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


def fit_table(record: Mapping[str, Any]) -> str:
    """Write processor time over that of LightGBM, and the metric on test rows, for every contestant and table."""
    fits = record["fits"]

    def cells(one: Mapping[str, Any], name: str) -> tuple[str, str, str]:
        if name not in one["seconds"]:
            return "-", "-", "-"
        return f"{one['seconds'][name]:.2g} s", quartiles(one["over_trees"][name]), f"{one['test_metric'][name]:.4f}"

    rows = [[name, *(cell for one in fits for cell in cells(one, name))] for name in fits[0]["seconds"]]
    named = [f"{one['table']}, {one['rows']:,} x {one['features']}" for one in fits]
    return markdown(["", *(cell for name in named for cell in (name, "over LightGBM", "F1 on test rows"))], rows)


def first_fit_table(record: Mapping[str, Any]) -> str:
    """Write the time of a first and a second fit of metrics without a bundled surrogate."""
    rows = []
    for one in record["first_fits"]:
        first, second = one["first"], one["second"]
        calls = f"{first['calls']:,} ({first['call_seconds']:.1f} s)" if first["calls"] else "-"
        times = f"{first['seconds']:.1f} s", calls, f"{second['seconds']:.1f} s", f"{one['bundled_seconds']:.1f} s"
        rows.append([one["metric"], *times, f"{first['test_metric']:.4f}"])
    head = ["metric", "first fit", "calls of it", "second fit", "a fit for F1", "on test rows"]
    return markdown(head, rows)


def command_table(record: Mapping[str, Any]) -> str:
    """Write the time of `metricgrad fit` and of `compare` on a larger table."""
    rows = [
        [one["model"], f"{one['seconds']:.0f} s", f"{record['compare_' + one['model']]['seconds']:.0f} s"]
        for one in record["commands"]
    ]
    return markdown(["model", "`metricgrad fit` of a CSV file", "`compare`, five methods, six splits"], rows)


def auto_table(record: Mapping[str, Any]) -> str:
    """Write the time of fits on five folds, and what those of the default are compared with."""
    rows = []
    for name, taken in record["seconds"].items():
        over = record["over"].get(name)
        rows.append([name, f"{taken:.1f} s", quartiles(over) if over else ""])
    return markdown(["fit on five folds", "processor time", "over LightGBM, or over cross-entropy of a network"], rows)


def start_table(record: Mapping[str, Any]) -> str:
    """Write the processor time of processes that only start."""
    return markdown(["", "processor time"], [[f"`{name}`", f"{own:.2f} s"] for name, own in record["seconds"].items()])


def own_loop_table(record: Mapping[str, Any]) -> str:
    """Write the time of a step over that of cross-entropy, by loss and size of the set."""
    by_rows = record["by_rows"]
    names = dict.fromkeys(name for one in by_rows for name in one["seconds"])
    rows = [
        [
            name,
            *(
                cell
                for one in by_rows
                for cell in (f"{1e3 * one['seconds'][name]:.1f} ms", quartiles(one["over_cross_entropy"][name]))
            ),
        ]
        for name in names
    ]
    head = [cell for one in by_rows for cell in (f"{one['rows']:,} rows", "over cross-entropy")]
    return markdown(["loss", *head], rows)


def large_table(record: Mapping[str, Any]) -> str:
    """Write time and memory of the runs on the large file."""
    large = record["large"]
    ways = {"array": "`MetricClassifier`, read into an array", "fit": "`metricgrad fit`"}
    rows = []
    for name, label in ways.items():
        one = large[name]
        times = f"{one['read_seconds']:.1f} s", f"{one['seconds']:.1f} s", f"{one['seconds'] / one['read_seconds']:.1f}"
        rows.append([label, *times, f"{one['peak_bytes'] / 1e6:,.0f} MB", f"{copies_of(one):.2f}"])
    one = large["predict"]
    rate = f"{one['rows'] / one['seconds']:,.0f} rows a second"
    rows.append(["`metricgrad predict`", "", f"{one['seconds']:.1f} s", rate, f"{one['peak_bytes'] / 1e6:,.0f} MB", ""])
    head = ["", "reading", "the rest", "times reading", "peak memory", "tables above 600 MB"]
    return markdown(head, rows)


def slope_table(record: Mapping[str, Any]) -> str:
    """Write the exponents of growth."""
    rows = [
        [one["model"], one["varied"], f"{one['slope']:.2f}", f"{one['last_slope']:.2f}"] for one in record["slopes"]
    ]
    return markdown(["model", "growing", "exponent", "at the end"], rows, left=2)


def compiled_table(record: Mapping[str, Any]) -> str:
    """Write the time of a step with a compiled loss."""
    rows = [
        [
            one["surrogate"],
            f"{one['rows']:,}",
            f"{1e3 * one['seconds']['plain']:.2f} ms",
            quartiles(one["over_plain"]),
            f"{one['compiling_seconds']:.0f} s",
        ]
        for one in record["cases"]
    ]
    return markdown(["surrogate", "rows", "a step", "compiled, over plain", "compiling"], rows)


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
            one["units"],
            f"{one['work'] / 1e6:.0f} M" if one["work"] else "",
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


def origins(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the parts of a record by where they come from, version, commit and date; all of them at first."""
    found: dict[str, list[str]] = {}
    for part, origin in (record.get("parts") or {"": record}).items():
        made = origin["made_by"]
        found.setdefault(f"{made['date']}, version {made['metricgrad']}, commit {made['commit']}", []).append(part)
    return found


def measured(record: Mapping[str, Any]) -> str:
    """Write when, and with which version, the parts of a record were measured."""
    found = origins(record)
    if len(found) == 1:
        return f"*Measured {next(iter(found))}.*"
    named = [f"{', '.join(part.replace('_', ' ') for part in parts)}: {origin}" for origin, parts in found.items()]
    return f"*Measured: {'; '.join(named)}.*"


def made_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Write command, date, commit and machine of every record, and of every part that was measured by itself."""
    rows = []
    for record in found.values():
        note = f" ({record['note']})" if "note" in record else ""
        unique = {origin["command"]: origin for origin in (record.get("parts") or {"": record}).values()}
        for command, origin in unique.items():
            made, load = origin["made_by"], ", ".join(map(str, origin["machine"].get("load", ["not stored"])))
            rows.append([f"`{command}`{note}", made["date"], made["commit"], f"torch {made['torch']}", load])
    host = max((record["machine"] for record in found.values()), key=len)
    table = markdown(["command", "date", "commit", "with", "load at the end"], rows, left=5)
    return f"{host.get('processor', '')} {host['machine']}, {host['cpus']} cores.\n\n{table}".lstrip()
