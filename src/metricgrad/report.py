"""Results as pages: self-contained HTML, readable without a network, on a phone and in the dark."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from pathlib import Path

from metricgrad._version import __version__
from metricgrad.metrics import get_metric

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .35rem .9rem; text-align: right; border-bottom: 1px solid #8884; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 2rem 0; overflow-x: auto; }
figure img { max-width: 100%; background: white; border-radius: .4rem; }
figcaption, footer { color: #8a8a8a; font-size: .9rem; }
"""


def write_demo_page(
    path: Path, title: str, losses: Mapping[str, Mapping[str, float]], pictures: Mapping[str, Path]
) -> None:
    """Write a page with a table of metrics as people know them, one column a method, best in bold, and pictures."""
    figures = "".join(
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,'
        f'{base64.b64encode(file.read_bytes()).decode()}"><figcaption>{escape(caption)}</figcaption></figure>'
        for caption, file in pictures.items()
    )
    path.write_text(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>Test rows, looked at once. Same network, steps, split and exact threshold for every method.</p>"
        f"{_metric_table(losses)}{figures}<footer>metricgrad {escape(__version__)}</footer></body></html>\n",
        encoding="utf-8",
    )


def _metric_table(losses: Mapping[str, Mapping[str, float]]) -> str:
    names = list(next(iter(losses.values())))
    head = "".join(f"<th scope='col'>{escape(method)}</th>" for method in losses)
    return (
        f"<table><thead><tr><th scope='col'>metric</th>{head}</tr></thead><tbody>"
        f"{''.join(_metric_row(name, [by[name] for by in losses.values()]) for name in names)}</tbody></table>"
    )


def _metric_row(name: str, losses: list[float]) -> str:
    metric = get_metric(name)
    arrow = "higher is better" if metric.higher_is_better else "lower is better"
    shown = [f"{metric.value(loss):.4f}" for loss in losses]
    cells = [
        f"<td>{'<strong>' if loss == min(losses) else ''}{text}{'</strong>' if loss == min(losses) else ''}</td>"
        for text, loss in zip(shown, losses, strict=True)
    ]
    return f"<tr><th scope='row'>{escape(metric.label)} <small>({arrow})</small></th>{''.join(cells)}</tr>"
