"""The paper's printed tables as data, their known problems, and whether a loss differs from them by more than noise."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from metricgrad.paper.sources import SOURCES, PaperRow

LOSSES = ("auc", "eer", "average_precision", "error_rate", "f1", "mcc", "jaccard")
"""The columns of Table 2, by the names of our metrics."""
MODES = ("sl-u", "sl-r", "sl-s")
"""The rows of Table 2 for each dataset."""
TABLE3_METHODS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "error_rate": ("cross-entropy", "sl-r"),
        "auc": ("pairwise", "global-objectives", "sl-r"),
        "jaccard": ("lovasz-softmax", "sl-r"),
        "f1": ("cost-sensitive", "sl-r"),
    }
)
"""The columns of Table 3: the methods compared under each loss."""

_TABLE2 = """
a9a       sl-u 0.0968 0.1897 0.2629 0.2165 0.4557 0.2164 0.1819
a9a       sl-r 0.0983 0.1807 0.2584 0.1502 0.3134 0.2085 0.1512
a9a       sl-s 0.0969 0.1782 0.2585 0.1508 0.3115 0.2069 0.1529
ccfraud   sl-u 0.0245 0.1512 0.2530 0.0093 0.7774 0.3975 0.0099
ccfraud   sl-r 0.0284 0.0914 0.1650 0.0088 0.7693 0.3293 0.0088
ccfraud   sl-s 0.0209 0.0814 0.1902 0.0088 0.9970 0.3293 0.0089
codrna    sl-u 0.0107 0.0513 0.0293 0.0510 0.1430 0.0514 0.1272
codrna    sl-r 0.0110 0.0422 0.0273 0.0430 0.0632 0.0476 0.0426
codrna    sl-s 0.0101 0.0428 0.0275 0.0418 0.0619 0.0474 0.0422
covtype   sl-u 0.1450 0.3019 0.1730 0.3466 0.2699 0.2349 0.2886
covtype   sl-r 0.1463 0.2220 0.1663 0.2198 0.2102 0.2165 0.2192
covtype   sl-s 0.1468 0.2233 0.1635 0.2207 0.2109 0.2203 0.2219
ijcnn1    sl-u 0.0048 0.0378 0.0537 0.1045 0.5486 0.1923 0.0609
ijcnn1    sl-r 0.0030 0.0268 0.0224 0.0161 0.0806 0.0422 0.0152
ijcnn1    sl-s 0.0028 0.0260 0.0219 0.0153 0.0777 0.0427 0.0161
porto     sl-u 0.3745 0.4348 0.9376 0.0461 0.8990 0.4901 0.0459
porto     sl-r 0.3737 0.4110 0.9361 0.0449 0.8867 0.4606 0.0448
porto     sl-s 0.3744 0.4127 0.9367 0.0446 0.8939 0.4614 0.0446
santander sl-u 0.1453 0.2349 0.5027 0.1082 0.5800 0.3012 0.0951
santander sl-r 0.1465 0.2300 0.4996 0.0864 0.5166 0.2863 0.0863
santander sl-s 0.1470 0.2314 0.4945 0.0871 0.5083 0.2857 0.0861
skin      sl-u 0.0001 0.0648 0.0001 0.0075 0.0036 0.0836 0.0889
skin      sl-r 0.0006 0.0044 0.0003 0.0073 0.0085 0.0031 0.0115
skin      sl-s 0.0009 0.0143 0.0001 0.0047 0.0017 0.0035 0.0031
susy      sl-u 0.1316 0.2269 0.1312 0.4596 0.2507 0.2133 0.2461
susy      sl-r 0.1334 0.2156 0.1288 0.2046 0.2289 0.2050 0.2031
susy      sl-s 0.1324 0.2140 0.1291 0.2043 0.2294 0.2062 0.2050
"""
_RANKS = """
sl-u 1.78 2.89 2.67 2.78 2.67 2.89 2.78
sl-r 2.22 1.67 1.67 1.78 1.78 1.44 1.56
sl-s 1.89 1.44 1.67 1.22 1.67 1.67 1.67
"""
_TABLE3 = """
a9a       0.1520 0.1502 0.1019 0.1028 0.0983 0.1539 0.1512 0.3177 0.3134
ccfraud   0.0088 0.0088 0.0437 0.0369 0.0284 0.0088 0.0088 0.7652 0.7693
codrna    0.0462 0.0430 0.0122 0.0129 0.0110 0.0438 0.0426 0.0652 0.0632
covtype   0.2149 0.2198 0.1786 0.1504 0.1463 0.2594 0.2192 0.2305 0.2102
ijcnn1    0.0364 0.0161 0.0168 0.0258 0.0030 0.0322 0.0152 0.1959 0.0806
porto     0.0446 0.0449 0.3814 0.3815 0.3737 0.0445 0.0448 0.8851 0.8867
santander 0.0842 0.0864 0.1406 0.1427 0.1465 0.0850 0.0863 0.4990 0.5166
skin      0.0482 0.0073 0.0364 0.0473 0.0006 0.0432 0.0115 0.0278 0.0085
susy      0.2146 0.2046 0.1524 0.1508 0.1334 0.2022 0.2031 0.2420 0.2289
"""
_WINS = "3.5 5.5 1.0 0.0 8.0 3.5 5.5 3.0 6.0"

Cells = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Losses by dataset, then by metric, then by method."""


def _table2() -> Cells:
    cells: dict[str, dict[str, dict[str, float]]] = {}
    for line in _TABLE2.split("\n")[1:-1]:
        dataset, mode, *printed = line.split()
        for loss, value in zip(LOSSES, printed, strict=True):
            cells.setdefault(dataset, {}).setdefault(loss, {})[mode] = float(value)
    return MappingProxyType(cells)


def _table3() -> Cells:
    lines = (line.split() for line in _TABLE3.split("\n")[1:-1])
    return MappingProxyType({dataset: _by_method(printed) for dataset, *printed in lines})


def _by_method(printed: Iterable[str]) -> dict[str, dict[str, float]]:
    """Spread a printed row of Table 3 over its losses and methods."""
    values = map(float, printed)
    return {loss: {method: next(values) for method in methods} for loss, methods in TABLE3_METHODS.items()}


def _printed_ranks() -> dict[str, dict[str, float]]:
    by_mode = {mode: printed for mode, *printed in map(str.split, _RANKS.split("\n")[1:-1])}
    return {loss: {mode: float(by_mode[mode][i]) for mode in MODES} for i, loss in enumerate(LOSSES)}


TABLE1: Mapping[str, PaperRow] = MappingProxyType({s.name: s.paper for s in SOURCES.values() if s.paper})
"""Dataset statistics, as printed; all have two classes."""
TABLE2 = _table2()
"""Test losses of the three modes of the surrogate, as printed."""
TABLE3 = _table3()
"""Test losses of the refined surrogate and of the baselines, as printed."""
PRINTED_RANKS: Mapping[str, Mapping[str, float]] = MappingProxyType(_printed_ranks())
"""The rank rows of Table 2 by loss and mode, as printed; `mean_ranks` has what they should be."""
PRINTED_WINS: Mapping[str, Mapping[str, float]] = MappingProxyType(_by_method(_WINS.split()))
"""The last row of Table 3 by loss and method, as printed."""


def column(cells: Cells, loss: str) -> list[Mapping[str, float]]:
    """Return the rows of one loss, a row for each dataset, as `mean_ranks` and `wins` expect them."""
    return [by_loss[loss] for by_loss in cells.values()]


def in_order(datasets: Collection[str]) -> list[str]:
    """Return the datasets of Table 1 first, in its order, then the others by name."""
    return [*(d for d in TABLE1 if d in datasets), *sorted(d for d in datasets if d not in TABLE1)]


# ---- against the printed -------------------------------------------------------------------------------------------

VERDICTS = ("better", "within noise", "worse")
PRINTED_NOISE: Mapping[str, float] = MappingProxyType({"sl-u": 0.058, "sl-r": 0.0010, "sl-s": 0.0009})
"""Difference of two printed runs of one loss: the mean of |MCR - JAC| over the nine rows of Table 2, by mode.

The authors' Jaccard is accuracy, so the columns MCR and JAC are two runs of the same loss; the paper has no other
measure of its noise. It is used for all losses."""
BASELINE_NOISE = 0.0010
"""The same for the printed baselines, which were run once: that of SL-R, in the absence of another measure."""
STANDARD_ERRORS = 2
"""How many of our standard errors count as noise."""
PRINTED_DIGITS = 4


def verdict(method: str, ours: float, error: float | None, printed: float) -> str:
    """Return whether a loss is better or worse than a printed one by more than noise.

    A difference is within noise if it is at most two standard errors of ours plus the noise of the printed tables. One
    seed has no standard error, which leaves the noise of the printed tables.

    >>> verdict("sl-r", 0.1480, 0.0005, 0.1502), verdict("sl-u", 0.1480, 0.0005, 0.1502)
    ('better', 'within noise')
    """
    noise = STANDARD_ERRORS * (error or 0.0) + PRINTED_NOISE.get(method, BASELINE_NOISE)
    if abs(ours - printed) <= noise:
        return "within noise"
    return "better" if ours < printed else "worse"


# ---- known problems ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Footnote:
    """A known problem of some printed cells; an empty tuple stands for all datasets, losses or methods."""

    name: str
    text: str
    tables: tuple[int, ...]
    datasets: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    def concerns(self, table: int, dataset: str, loss: str, method: str) -> bool:
        """Whether a cell has the problem."""
        places = ((self.datasets, dataset), (self.losses, loss), (self.methods, method))
        return table in self.tables and all(not some or one in some for some, one in places)


THRESHOLDED = ("error_rate", "f1", "mcc", "jaccard")
FOOTNOTES = (
    Footnote(
        "test-threshold",
        "The threshold is the best of 100 percentiles of the test scores, chosen by the test labels themselves.",
        (2, 3),
        losses=THRESHOLDED,
    ),
    Footnote(
        "floor",
        "The highest threshold tried is the 99th percentile, so at least 1 % of the rows are called positive. With "
        "fewer positives than that even a perfect ranking loses (CC-Fraud: MCR 0.0085, F1 0.739), and on Porto-Seguro "
        "calling none positive would lose less (MCR 0.0368): these cells show the floor, not the method.",
        (2, 3),
        datasets=("ccfraud", "porto"),
        losses=THRESHOLDED,
    ),
    Footnote(
        "accuracy",
        "JAC is accuracy: the function used computes it on binary labels. The column is a second run of MCR, and their "
        "mean difference is the noise of the table: 0.0010 for SL-R, 0.0009 for SL-S, 0.058 for SL-U.",
        (2, 3),
        losses=("jaccard",),
    ),
    Footnote("mcc", "The MCC loss is (1 - MCC) / 2, not 1 - MCC as the text says.", (2,), losses=("mcc",)),
    Footnote(
        "twins",
        "The 156,681 rows hold 14,990 twice, so about 15 % of the test rows have a twin in training.",
        (1, 2, 3),
        datasets=("ijcnn1",),
    ),
    Footnote(
        "one-run",
        "One run, no deviations: |SL-R - SL-S| on MCR averages 0.0008, so their order is within the noise.",
        (2,),
        methods=("sl-r", "sl-s"),
    ),
    Footnote(
        "ranks",
        "The printed rank rows do not follow from the cells (SL-U is last in all nine rows of EER, MCR, MCC and JAC, "
        "which is 3.00). Ranks shown are computed.",
        (2,),
    ),
    Footnote(
        "under-trained",
        "The baselines look under-trained: 6,000 steps of Adam at 1e-3 on the same network bring the MCR of "
        "cross-entropy on IJCNN from the printed 0.0364 to 0.009.",
        (3,),
        methods=("cross-entropy", "pairwise", "global-objectives", "lovasz-softmax", "cost-sensitive"),
    ),
    Footnote(
        "slip",
        'The text says "not a major difference ... between SL-R and SL-U"; by the table it must mean SL-R and SL-S.',
        (2,),
    ),
)
SHARED_PROBLEMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"paper": ("test-threshold", "floor", "accuracy", "mcc"), "honest": ("mcc",)}
)
"""Footnotes by protocol that concern our cells as well as the printed ones."""


def footnotes(table: int, dataset: str = "", loss: str = "", method: str = "") -> list[Footnote]:
    """Return the known problems of a cell, including those of its whole table."""
    return [note for note in FOOTNOTES if note.concerns(table, dataset, loss, method)]


@dataclass(frozen=True)
class Note:
    """A known problem of the paper that concerns a table; `ours` is whether our cells have it too."""

    name: str
    text: str
    ours: bool


Cell = tuple[str, str, str]
"""A dataset, a metric and a method."""


def notes_of(table: int, protocol: str, printed: Iterable[Cell], run: Iterable[Cell]) -> tuple[Note, ...]:
    """Return the known problems that concern a printed cell, or one of ours that is scored as the paper's were."""
    shared, printed, run = SHARED_PROBLEMS.get(protocol, ()), tuple(printed), tuple(run)
    return tuple(
        Note(note.name, note.text, note.name in shared)
        for note in FOOTNOTES
        if any(note.concerns(table, *place) for place in (*printed, *(run if note.name in shared else ())))
    )
