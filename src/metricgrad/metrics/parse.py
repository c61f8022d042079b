"""Metrics written as text: arithmetic over `tp fp fn tn`, a function of scikit-learn, or an object in a user's file.

An expression is parsed against a whitelist and never executed. Only `object_in_file` runs code, and only `get_metric`
with `allow_files=True` calls it: a model folder from elsewhere must never import a file.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from metricgrad.metrics.confusion import Confusion, at_zero
from metricgrad.metrics.metric import Metric

MAX_EXPRESSION_LENGTH = 300
MAX_POWER = 10
COUNT_NAMES = Confusion._fields


def sklearn_function(name: str) -> Callable[..., Any]:
    """Return a function of `sklearn.metrics` by its name, `"cohen_kappa_score"`."""
    function: Any = None
    if name.isidentifier():
        from sklearn import metrics  # only here: it takes longer to import than all of this package

        function = getattr(metrics, name, None) if name in metrics.__all__ else None
    arguments = list(inspect.signature(function).parameters)[:2] if inspect.isfunction(function) else []
    if len(arguments) < 2 or arguments[0] not in ("y_true", "y1"):
        raise ValueError(
            f"metric: expected a function (y_true, ...) of sklearn.metrics, got {'sklearn.metrics.' + name!r}"
        )
    return function  # type: ignore[no-any-return]


def object_in_file(spec: str) -> Any:
    """Run a file of Python, `"path/to/file.py:name"`, and return the metric or callable of that name in it."""
    path, _, name = spec.rpartition(":")
    if not Path(path).is_file():
        raise ValueError(f"metric: expected a Python file, got {path!r}, which does not exist")
    module_spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"metric: expected a Python file, got {path!r}")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"metric: {path} cannot be run: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        known = [other for other, value in vars(module).items() if _is_metric_of(module, value)]
        raise ValueError(f"metric: expected a function in {path}, got {name!r}; there are {', '.join(known) or 'none'}")
    return found


def _is_metric_of(module: ModuleType, value: Any) -> bool:
    own = inspect.isfunction(value) and value.__module__ == module.__name__
    return own or isinstance(value, Metric)


# ---- expressions ---------------------------------------------------------------------------------------------------


def _divided(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole != 0, part / torch.where(whole != 0, whole, 1.0), 0.0)


OPERATORS: dict[type[ast.AST], Callable[..., Tensor]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divided,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
FUNCTIONS: dict[str, tuple[int, Callable[..., Tensor]]] = {
    "abs": (1, torch.abs),
    "sqrt": (1, lambda value: value.clamp(min=0).sqrt()),
    "min": (2, torch.minimum),
    "max": (2, torch.maximum),
}
"""Functions that may be called: the number of arguments, and the implementation."""


def is_expression(text: str) -> bool:
    """Whether a text contains one of the four counts."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return any(word in COUNT_NAMES for word in text.replace("(", " ").replace(")", " ").split())
    return any(isinstance(node, ast.Name) and node.id in COUNT_NAMES for node in ast.walk(tree))


def expression_metric(text: str) -> Metric:
    """Make a metric of an expression; weights, a best-threshold form and an exact threshold come at no extra cost.

    The four counts are shares of all rows by weight, so they add up to one and sets of any size are comparable:
    `5*tp - fp` is the profit per row. Division by 0 gives 0. Which way is better is decided by comparing sets
    predicted correctly with sets predicted incorrectly.

    Parameters
    ----------
    text : str
        Numbers, `tp fp fn tn`, `+ - * / **`, `abs sqrt min max` and brackets.

    Returns
    -------
    Metric

    Examples
    --------
    >>> metric = expression_metric("2*tp / (2*tp + fp + fn)")
    >>> metric.higher_is_better
    True
    >>> metric.shown(metric([0.3, -0.2, 1.5, -1.0], [1, 1, 0, 0]))
    '2*tp / (2*tp + fp + fn) 0.5000'
    """
    from metricgrad.metrics.adapters import compare_values

    text = " ".join(text.split())
    higher = compare_values(text, *_trial_of(text))
    counts = Expression(text, -1.0 if higher else 1.0)
    return Metric(
        text,
        partial(at_zero, counts=counts),
        text,
        f"{text}, of shares of all rows.",
        (0.0, -1.0) if higher else (0.0, 1.0),
        thresholded=True,
        counts=counts,
        bounded=False,
    )


@dataclass(frozen=True)
class Expression:
    """The loss of confusion counts that an expression defines, times a sign."""

    text: str
    sign: float

    def __call__(self, counts: Confusion) -> Tensor:
        """Return the loss of every set."""
        return self.sign * evaluate_expression(self.text, counts)


def evaluate_expression(text: str, counts: Confusion) -> Tensor:
    """Return the value of an expression for every set: four times `(...)` -> `(...)`."""
    total = counts.tp + counts.fp + counts.fn + counts.tn
    shares = dict(zip(COUNT_NAMES, (_divided(count, total) for count in counts), strict=True))
    value = arithmetic(expression_tree(text), counts.tp, partial(named, shares)).expand_as(counts.tp)
    if not bool(value.isfinite().all()):
        raise ValueError(f"metric: expected finite numbers of {text!r}, got {value[~value.isfinite()][0]:g}")
    return value


@lru_cache
def expression_tree(text: str) -> ast.expr:
    """Return the syntax tree of an expression, or raise an error that names what is not allowed."""
    try:
        tree = parsed(text)
        _check_counts(tree, text)
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"metric: expected an expression, got {text!r}") from error
    return tree


def parsed(text: str) -> ast.expr:
    """Return the syntax tree of a text of limited length, of which nothing has been checked."""
    if len(text) > MAX_EXPRESSION_LENGTH:
        raise ValueError(
            f"metric: expected an expression of at most {MAX_EXPRESSION_LENGTH} characters, got {len(text)}"
        )
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(
            f"metric: expected an expression over {' '.join(COUNT_NAMES)}, got {text!r}: {error.msg}"
        ) from error
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise ValueError(f"metric: expected an expression, got {text!r}") from error


def _check_counts(node: ast.expr, text: str) -> None:
    """Refuse everything but arithmetic over the four counts."""
    known = f"numbers, {' '.join(COUNT_NAMES)}, + - * / **, {' '.join(FUNCTIONS)}"
    check_arithmetic(node, text, known, lambda leaf: isinstance(leaf, ast.Name) and leaf.id in COUNT_NAMES)


def check_arithmetic(node: ast.expr, text: str, known: str, is_leaf: Callable[[ast.expr], bool]) -> None:
    """Refuse everything but arithmetic over numbers and what is a leaf; `known` says in words what is allowed."""
    parts: list[ast.expr] = []
    if is_leaf(node):
        return
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        parts = [node.left, node.right]
        if isinstance(node.op, ast.Pow) and not _is_power(node.right):
            raise ValueError(
                f"metric: expected integer powers from 0 to {MAX_POWER}, got {ast.unparse(node.right)} in {text!r}"
            )
    elif isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        parts = [node.operand]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        parts = list(node.args)
        count = FUNCTIONS[node.func.id][0]
        if len(parts) != count or node.keywords or any(isinstance(part, ast.Starred) for part in parts):
            raise ValueError(f"metric: expected {count} arguments of {node.func.id}, got {ast.unparse(node)!r}")
    elif not _is_constant(node):
        raise ValueError(f"metric: expected {known}, got {ast.unparse(node)!r} in {text!r}")
    for part in parts:
        check_arithmetic(part, text, known, is_leaf)


def _is_constant(node: ast.expr) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_power(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= MAX_POWER


def arithmetic(node: ast.expr, like: Tensor, leaf: Callable[[ast.expr], Tensor | None]) -> Tensor:
    """Return the value of checked arithmetic; `leaf` returns that of a leaf, and None of anything else."""
    value = leaf(node)
    if value is not None:
        return value
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return like.new_tensor(float(node.value))
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](arithmetic(node.left, like, leaf), arithmetic(node.right, like, leaf))
    if isinstance(node, ast.UnaryOp):
        return OPERATORS[type(node.op)](arithmetic(node.operand, like, leaf))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return FUNCTIONS[node.func.id][1](*(arithmetic(part, like, leaf) for part in node.args))
    raise TypeError(f"node: expected a checked one, got {ast.dump(node)}")


def named(values: Mapping[str, Tensor], node: ast.expr) -> Tensor | None:
    """Return the value of a name; None of any other node."""
    return values.get(node.id) if isinstance(node, ast.Name) else None


def _trial_of(text: str) -> tuple[list[float], list[float]]:
    """Return the values of sets predicted correctly and incorrectly, at several shares of positives."""
    share = torch.tensor([0.01, 0.1, 0.3, 0.5, 0.7, 0.9], dtype=torch.float64)
    zero = torch.zeros_like(share)
    correct = evaluate_expression(text, Confusion(share, zero, zero, 1 - share))
    incorrect = evaluate_expression(text, Confusion(zero, 1 - share, share, zero))
    return correct.tolist(), incorrect.tolist()
