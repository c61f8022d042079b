"""Metrics with columns written as text, parsed against a whitelist and never executed.

| text | meaning |
|---|---|
| `sum(amount * tp) - 5 * fp` | arithmetic over sums of columns, counts and other metrics |
| `top(0.02): sum(amount * tp)` | the same, where the top 2 % of the rows are called positive |
| `min over sex of recall` | `min`, `max`, `mean` or `gap` of a metric over the groups of a column |
| `f1 subject to precision >= 0.9` | a metric with a penalty where another one misses its bound |

Inside `sum(...)` the counts are 1 for a row of that kind, else 0. Sums are per row by weight, as the counts are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from metricgrad.metrics.adapters import compare_values
from metricgrad.metrics.bounds import subject_to
from metricgrad.metrics.confusion import ratio
from metricgrad.metrics.decided import Decided, loss_of
from metricgrad.metrics.decided_metric import decided_metric
from metricgrad.metrics.groups import GROUP_SUMMARIES, over_groups
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.money import at_capacity
from metricgrad.metrics.parse import COUNT_NAMES, FUNCTIONS, arithmetic, check_arithmetic, named, parsed

Resolve = Callable[[str], Metric]
"""From the name of a metric to the metric."""
ROW_OPERATORS: dict[type[ast.AST], Callable[[Tensor, Tensor], Tensor]] = {
    ast.Eq: torch.eq,
    ast.NotEq: torch.ne,
    ast.Lt: torch.lt,
    ast.LtE: torch.le,
    ast.Gt: torch.gt,
    ast.GtE: torch.ge,
}
"""Comparisons inside a sum: 1 where they hold, else 0."""
BOUND = re.compile(r"(.+?) subject to (.+?) ?(<=|>=) ?([-+.\deE]+)(?: penalty ([.\deE]+))?")
TOP = re.compile(r"top ?\( ?([.\deE+-]+) ?\) ?: ?(.+)")
GROUPS = re.compile(rf"({'|'.join(GROUP_SUMMARIES)}) over (\w+) of (.+)")
TRIAL_ROWS, TRIAL_SHARES, TRIAL_SCALES = 240, (0.05, 0.3, 0.5, 0.8), (1e4, 100.0, 1.0)
"""Rows, shares of positives and scales of amounts of the sets that show which way is better."""


def needs_columns(text: str) -> bool:
    """Whether a text is one of the forms above, rather than a name or an expression over counts alone."""
    text = " ".join(text.split())
    if BOUND.fullmatch(text) or TOP.fullmatch(text) or GROUPS.fullmatch(text) or re.search(r"\bsum ?\(", text):
        return True
    return bool(re.search(r"[+*/]| - ", text)) and _is_arithmetic_of_names(text)


def _is_arithmetic_of_names(text: str) -> bool:
    """Whether a text is a sum or product of something that is no count, such as metrics."""
    try:
        tree = parsed(text)
    except ValueError:
        return False
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return isinstance(tree, ast.BinOp) and bool(names - {*COUNT_NAMES, *FUNCTIONS})


def column_metric(text: str, resolve: Resolve) -> Metric:
    """Make a metric of a text with columns, groups, a capacity or a bound.

    Parameters
    ----------
    text : str
        In one of the forms above.
    resolve : callable
        From the name of a metric to the metric.

    Returns
    -------
    Metric
        Its columns are the names in sums that are no counts, and those of the groups.

    Examples
    --------
    >>> from metricgrad import get_metric
    >>> metric = get_metric("sum(amount * tp) - 5 * fp")
    >>> metric.columns, metric.higher_is_better
    (('amount',), True)
    >>> metric.shown(metric([1.0, 1.0, -1.0, -1.0], [[1, 90], [0, 20], [1, 50], [0, 10]]))  # (90 - 5) / 4 rows
    'sum(amount * tp) - 5 * fp 21.2500'
    """
    text = " ".join(text.split())
    bound = BOUND.fullmatch(text)
    if bound:
        metric, other, relation, number, penalty = bound.groups()
        limit = {"at_most" if relation == "<=" else "at_least": _number(number, text)}
        more = {} if penalty is None else {"penalty": _number(penalty, text)}
        return subject_to(_body(metric, resolve), _body(other, resolve), **limit, **more, name=text)
    return _body(text, resolve)


def _body(text: str, resolve: Resolve) -> Metric:
    top, groups = TOP.fullmatch(text), GROUPS.fullmatch(text)
    if top:
        return at_capacity(_body(top[2], resolve), _number(top[1], text), text)
    if groups:
        return over_groups(groups[1], groups[2], _body(groups[3], resolve), text)
    if re.search(r"\bsum ?\(", text) or _is_arithmetic_of_names(text):
        return _expression(text, resolve)
    return resolve(text)


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"metric: expected a number, got {text!r} in {whole!r}") from None


# ---- arithmetic over sums ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnExpression:
    """The loss of decided rows that an expression defines, times a sign; `metrics` are those it names."""

    text: str
    sign: float
    metrics: tuple[tuple[str, Metric], ...] = ()

    def __call__(self, decided: Decided) -> Tensor:
        """Return the loss of every set."""
        weight = decided.weight
        shares = {name: ratio(c, weight) for name, c in zip(COUNT_NAMES, decided.confusion, strict=True)}
        value = arithmetic(expression_tree(self.text), weight, partial(self._leaf, decided, shares)).expand_as(weight)
        if not bool(value.isfinite().all()):
            raise ValueError(f"metric: expected finite numbers of {self.text!r}, got {value[~value.isfinite()][0]:g}")
        return self.sign * value

    def _leaf(self, decided: Decided, shares: dict[str, Tensor], node: ast.expr) -> Tensor | None:
        if _is_sum(node):
            assert isinstance(node, ast.Call)
            called, passed = (row_values(node.args[0], decided, called) for called in (True, False))
            return ratio(decided.total(called, passed), decided.weight)
        metric = dict(self.metrics).get(ast.unparse(node)) if isinstance(node, (ast.Name, ast.Call)) else None
        if metric is None:
            return named(shares, node)
        value: Tensor = metric.value(loss_of(metric, decided))
        return value


def row_values(node: ast.expr, decided: Decided, called: bool) -> Tensor:
    """Return what rows add to a sum where all of them are called, or none is: `(..., n)`."""
    positive, negative = decided.labels.to(decided.weights), (~decided.labels).to(decided.weights)
    zero = torch.zeros_like(positive)
    kinds = (positive, negative, zero, zero) if called else (zero, zero, positive, negative)
    values = {**decided.columns, **dict(zip(COUNT_NAMES, kinds, strict=True))}

    def leaf(node: ast.expr) -> Tensor | None:
        if not isinstance(node, ast.Compare):
            return named(values, node)
        sides = (arithmetic(side, positive, leaf) for side in (node.left, node.comparators[0]))
        return ROW_OPERATORS[type(node.ops[0])](*sides).to(positive)

    return arithmetic(node, positive, leaf).expand_as(positive)


def _expression(text: str, resolve: Resolve) -> Metric:
    tree = expression_tree(text)
    inner = {ast.unparse(node): _resolved(node, text, resolve) for node in _metric_leaves(tree)}
    counted = any(_is_sum(node) or (isinstance(node, ast.Name) and node.id in COUNT_NAMES) for node in _leaves(tree))
    columns = [*_summed_columns(tree), *(name for metric in inner.values() for name in metric.columns)]
    value, columns_once = ColumnExpression(text, 1.0, tuple(inner.items())), tuple(dict.fromkeys(columns))
    groups = tuple(dict.fromkeys(name for metric in inner.values() for name in metric.groups))
    higher = _higher_is_better(value, columns_once, groups)
    return decided_metric(
        text,
        ColumnExpression(text, -1.0 if higher else 1.0, value.metrics),
        columns_once,
        explanation=f"{text}, per row.",
        known_as=(0.0, -1.0) if higher else (0.0, 1.0),
        thresholded=counted or any(metric.thresholded for metric in inner.values()),
        groups=groups,
    )


def _resolved(node: ast.expr, text: str, resolve: Resolve) -> Metric:
    try:
        return resolve(ast.unparse(node))
    except ValueError as error:
        raise ValueError(
            f"metric: expected {' '.join(COUNT_NAMES)}, sum(...) or a metric, got {ast.unparse(node)!r} in {text!r}; "
            f"columns belong inside sum(...) ({error})"
        ) from error


@lru_cache
def expression_tree(text: str) -> ast.expr:
    """Return the syntax tree of an expression over sums, or raise an error that names what is not allowed."""
    tree = parsed(text)
    try:
        allowed = f"numbers, {' '.join(COUNT_NAMES)}, sum(...), metrics, + - * / **, {' '.join(FUNCTIONS)}"
        check_arithmetic(tree, text, allowed, _is_leaf)
        for node in _leaves(tree):
            if _is_sum(node):
                assert isinstance(node, ast.Call)
                _check_rows(node.args[0], text)
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"metric: expected an expression, got {text!r}") from error
    return tree


def _check_rows(node: ast.expr, text: str) -> None:
    """Refuse everything inside a sum but arithmetic and comparisons of columns and counts."""
    known = f"numbers, columns, {' '.join(COUNT_NAMES)}, + - * / **, comparisons, {' '.join(FUNCTIONS)}"

    def is_leaf(node: ast.expr) -> bool:
        if isinstance(node, ast.Compare):
            if len(node.ops) != 1 or type(node.ops[0]) not in ROW_OPERATORS:
                raise ValueError(f"metric: expected one of == != < <= > >=, got {ast.unparse(node)!r} in {text!r}")
            for side in (node.left, node.comparators[0]):
                check_arithmetic(side, text, known, is_leaf)
            return True
        return isinstance(node, ast.Name)

    check_arithmetic(node, text, known, is_leaf)


def _is_sum(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "sum":
        return False
    if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
        raise ValueError(f"metric: expected 1 argument of sum, got {ast.unparse(node)!r}")
    return True


def _is_leaf(node: ast.expr) -> bool:
    """Whether a node is a name, a sum, or a metric with settings."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in FUNCTIONS
    return isinstance(node, ast.Name) or called


def _leaves(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the leaves of an expression, without what is inside them."""
    if isinstance(node, ast.expr) and _is_leaf(node):
        yield node
        return
    inside = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    for child in inside:
        yield from _leaves(child)


def _metric_leaves(tree: ast.expr) -> list[ast.expr]:
    return [
        node
        for node in _leaves(tree)
        if not _is_sum(node) and not (isinstance(node, ast.Name) and node.id in COUNT_NAMES)
    ]


def _summed_columns(tree: ast.expr) -> list[str]:
    """Return the columns in sums, in the order of their first use."""
    sums = [node for node in _leaves(tree) if _is_sum(node)]
    called = {id(node.func) for each in sums for node in ast.walk(each) if isinstance(node, ast.Call)}
    named_in = [
        node for each in sums for node in ast.walk(each) if isinstance(node, ast.Name) and id(node) not in called
    ]
    named_in.sort(key=lambda node: (node.lineno, node.col_offset))
    return [node.id for node in named_in if node.id not in COUNT_NAMES]


def _higher_is_better(value: ColumnExpression, columns: tuple[str, ...], groups: tuple[str, ...]) -> bool:
    """Decide whether a high value is good, by amounts of several scales: some make even a correct call a bad one."""
    refused: list[ValueError] = []
    decided = set()
    for scale in TRIAL_SCALES:
        try:
            decided.add(compare_values(value.text, *_trial_of(value, columns, groups, scale)))
        except ValueError as error:
            refused.append(error)
    if len(decided) == 1:
        return decided.pop()
    if refused:
        raise refused[0]
    raise ValueError(
        f"metric: expected to know which way is better, got {value.text!r}, which depends on the scale of its columns"
    )


def _trial_of(
    value: ColumnExpression, columns: tuple[str, ...], groups: tuple[str, ...], scale: float
) -> tuple[list[float], list[float]]:
    """Return the values of sets predicted correctly and incorrectly, at several shares of positives."""
    place = torch.arange(TRIAL_ROWS, dtype=torch.float64)
    found: tuple[list[float], list[float]] = [], []
    for share in TRIAL_SHARES:
        labels = (place < share * TRIAL_ROWS).double()
        # Amounts from 0.5 to 4.5 in another order for every column, and two groups that both classes are in.
        amounts = [scale * (0.5 + (place * (7 + 4 * number)) % 5) for number in range(len(columns))]
        known = [place % 2 if name in groups else amount for name, amount in zip(columns, amounts, strict=True)]
        targets = torch.stack((labels, *known), -1) if columns else labels
        for values, scores in zip(found, (2 * labels - 1, 1 - 2 * labels), strict=True):
            values.append(float(value(Decided.at_zero(scores, targets, None, columns))))
    return found
