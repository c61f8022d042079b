"""Expressions: a metric written as arithmetic over `tp fp fn tn`, parsed by a whitelist and never run as code.

The four are shares of all rows by weight, so they add up to one and a set of any size is judged alike: `5*tp - fp` is
the profit a row. Division by nothing is 0, as in every metric here.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from metricgrad.metrics import binary_formulas as formulas
from metricgrad.metrics.confusion import Confusion
from metricgrad.metrics.registry import Metric

LONGEST = 300
POWER = 10
NAMES = Confusion._fields


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
"""What may be called, and with how many arguments."""


def is_expression(text: str) -> bool:
    """Whether a text speaks of the four counts."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return any(word in NAMES for word in text.replace("(", " ").replace(")", " ").split())
    return any(isinstance(node, ast.Name) and node.id in NAMES for node in ast.walk(tree))


def expression_metric(text: str) -> Metric:
    """Make a metric of an expression; it has weights, a best-threshold form and an exact threshold for nothing.

    Which way is better is told by comparing sets in which all is right with sets in which all is wrong.

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
    text = " ".join(text.split())
    higher = _higher_is_better(text)
    counts = Expression(text, -1.0 if higher else 1.0)
    return Metric(
        text,
        partial(formulas.at_zero, counts=counts),
        text,
        f"{text}, of shares of all rows.",
        (0.0, -1.0) if higher else (0.0, 1.0),
        thresholded=True,
        counts=counts,
        bounded=False,
    )


@dataclass(frozen=True)
class Expression:
    """The loss of confusion counts an expression gives, times a sign."""

    text: str
    sign: float

    def __call__(self, counts: Confusion) -> Tensor:
        """Return the loss of every set."""
        return self.sign * evaluate(self.text, counts)


def evaluate(text: str, counts: Confusion) -> Tensor:
    """Return the value of an expression for every set: four times `(...)` -> `(...)`."""
    total = counts.tp + counts.fp + counts.fn + counts.tn
    shares = dict(zip(NAMES, (_divided(count, total) for count in counts), strict=True))
    value = _value(parse(text), shares).expand_as(counts.tp)
    if not bool(value.isfinite().all()):
        raise ValueError(f"metric: expected finite numbers of {text!r}, got {value[~value.isfinite()][0]:g}")
    return value


@lru_cache
def parse(text: str) -> ast.expr:
    """Return the tree of an expression, or name what has no place in one."""
    if len(text) > LONGEST:
        raise ValueError(f"metric: expected an expression of at most {LONGEST} characters, got {len(text)}")
    try:
        tree = ast.parse(text, mode="eval").body
        _check(tree, text)
    except SyntaxError as error:
        raise ValueError(f"metric: expected an expression over {' '.join(NAMES)}, got {text!r}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        said = str(error) if str(error).startswith("metric: ") else f"metric: expected an expression, got {text!r}"
        raise ValueError(said) from error
    return tree


def _check(node: ast.expr, text: str) -> None:
    """Refuse whatever is not arithmetic."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        parts = [node.left, node.right]
        if isinstance(node.op, ast.Pow) and not _is_whole(node.right):
            raise ValueError(
                f"metric: expected whole powers from 0 to {POWER}, got {ast.unparse(node.right)} in {text!r}"
            )
    elif isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        parts = [node.operand]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        parts = list(node.args)
        count = FUNCTIONS[node.func.id][0]
        if len(parts) != count or node.keywords or any(isinstance(part, ast.Starred) for part in parts):
            raise ValueError(f"metric: expected {count} arguments of {node.func.id}, got {ast.unparse(node)!r}")
    elif not (_is_number(node) or (isinstance(node, ast.Name) and node.id in NAMES)):
        known = f"numbers, {' '.join(NAMES)}, + - * / **, {' '.join(FUNCTIONS)}"
        raise ValueError(f"metric: expected {known}, got {ast.unparse(node)!r} in {text!r}")
    for part in parts:
        _check(part, text)


def _is_number(node: ast.expr) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= POWER


def _value(node: ast.expr, shares: dict[str, Tensor]) -> Tensor:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return shares["tp"].new_tensor(float(node.value))
    if isinstance(node, ast.Name):
        return shares[node.id]
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_value(node.left, shares), _value(node.right, shares))
    if isinstance(node, ast.UnaryOp):
        return OPERATORS[type(node.op)](_value(node.operand, shares))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return FUNCTIONS[node.func.id][1](*(_value(part, shares) for part in node.args))
    raise TypeError(f"node: expected one that was checked, got {ast.dump(node)}")


def _higher_is_better(text: str) -> bool:
    """Compare sets in which all is right with sets in which all is wrong, at several shares of positives."""
    share = torch.tensor([0.01, 0.1, 0.3, 0.5, 0.7, 0.9], dtype=torch.float64)
    nothing = torch.zeros_like(share)
    right = evaluate(text, Confusion(share, nothing, nothing, 1 - share))
    wrong = evaluate(text, Confusion(nothing, 1 - share, share, nothing))
    if bool((right > wrong).all()):
        return True
    if bool((right < wrong).all()):
        return False
    raise ValueError(
        f"metric: expected {text!r} to tell sets in which all is right from sets in which all is wrong, "
        f"got {float(right[0]):g} and {float(wrong[0]):g}"
    )
