"""Mutants of a module: copies of its source with one small fault each, in an order that depends on the source alone.

Messages, annotations, decorators and assertions are left alone: a fault there changes no result.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
PAIRS = [
    ("min", "max"),
    ("amin", "amax"),
    ("argmin", "argmax"),
    ("minimum", "maximum"),
    ("any", "all"),
    ("sum", "mean"),
]
SWAPPED_NAMES = {**dict(PAIRS), **{right: left for left, right in PAIRS}}
UNCHANGED_SHAPE = frozenset(
    [
        "abs",
        "astype",
        "clamp",
        "clip",
        "clone",
        "cpu",
        "detach",
        "double",
        "eval",
        "expand",
        "expand_as",
        "log",
        "long",
        "masked_fill",
        "mul_",
        "requires_grad_",
        "round",
        "sqrt",
        "to",
        "train",
        "unique",
    ]
)
"""Methods that may be left out of an expression without making it an obvious error."""
FIELDS_LEFT_ALONE = frozenset({"annotation", "returns", "decorator_list", "type_params"})


@dataclass(frozen=True)
class Mutant:
    """One fault: where it is, what it changes, its key in the log, and the tree to compile."""

    module: str
    function: str
    line: int
    operator: str
    change: str
    key: str
    tree: ast.Module


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module; its key changes if the function around it does, not if the module moves."""
    seen: Counter[str] = Counter()
    for node, around in _nodes(ast.parse(source)):
        for operator, replacement in _faults(node):
            name = getattr(around, "name", "module")
            change = f"{_shown(node)} -> {_shown(replacement)}"
            seen[f"{name}: {change}"] += 1
            label = f"{name}: {change} #{seen[f'{name}: {change}']}"
            digest = hashlib.sha256(_text(around).encode()).hexdigest()[:12]
            place = (node.lineno, node.col_offset, type(node))  # type: ignore[attr-defined]
            tree: Any = _Replaced(place, _text(node), replacement).visit(ast.parse(source))
            yield Mutant(module, name, place[0], operator, label, f"{digest}/{label}", tree)


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield every expression and statement that may be faulty, with the function, method or statement around it."""
    for statement in tree.body:
        for part in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            yield from ((node, part) for node in _inside(part))


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below it, in the order of the source."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert, ast.JoinedStr)) or _is_docstring(node):
        return
    yield node
    if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _text(node.func) == "warnings.warn"):
        return
    for name, value in ast.iter_fields(node):
        if name not in FIELDS_LEFT_ALONE:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, (ast.expr, ast.stmt, ast.comprehension, ast.keyword, ast.arguments)):
                    yield from _inside(child)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _shown(node: ast.AST) -> str:
    """Return the source of a node, of an `if` or `while` statement only its head."""
    if isinstance(node, (ast.If, ast.While)):
        return f"{type(node).__name__.lower()} {_text(node.test)}"
    return _text(node)


def _faults(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the faulty forms of one node, each with the name of what was done."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                yield "comparison", _with(node, ops=[*node.ops[:place], other(), *node.ops[place + 1 :]])
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in OPERATORS:
        yield "arithmetic", _with(node, op=OPERATORS[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield "and/or", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp):
        yield "sign or negation", node.operand
    elif isinstance(node, ast.Constant):
        yield from (("constant", ast.Constant(value)) for value in _other_constants(node.value))
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
        # A comparison or a negation is turned around by its own faults.
        yield "condition", _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Call):
        yield from _call_faults(node)
    elif isinstance(node, ast.Return) and node.value is not None and _text(node.value) != "None":
        yield "return", ast.Return(ast.Constant(None))
    if _can_go(node):
        yield "deletion", ast.Pass()


def _other_constants(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [1] if value == 0 else [value + 1, value - 1]
    if isinstance(value, float):
        return [1.0] if value == 0 else [value * 2, value / 2]
    return []


def _call_faults(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    for place in range(len(node.keywords)):
        yield "argument", _with(node, keywords=node.keywords[:place] + node.keywords[place + 1 :])
    if len(node.args) > 1:
        yield "argument", _with(node, args=node.args[:-1])
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in SWAPPED_NAMES:
        yield "min/max", _with(node, func=_renamed(node.func, SWAPPED_NAMES[name]))
    if isinstance(node.func, ast.Attribute) and name in UNCHANGED_SHAPE:
        yield "call", node.func.value


def _renamed(func: ast.expr, name: str) -> ast.expr:
    return ast.Name(name, ast.Load()) if isinstance(func, ast.Name) else _with(func, attr=name)


def _can_go(node: ast.AST) -> bool:
    """Whether a statement can be deleted without making a later one an obvious error."""
    if isinstance(node, ast.Assign):
        return not any(isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets)
    return isinstance(node, (ast.Expr, ast.AugAssign, ast.Raise, ast.Break, ast.Continue))


def _with(node: Any, **fields: object) -> Any:
    changed = deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


class _Replaced(ast.NodeTransformer):
    """Puts another node in one place of a tree."""

    def __init__(self, place: tuple[int, int, type], text: str, replacement: ast.AST) -> None:
        self.place, self.text, self.replacement = place, text, replacement

    def visit(self, node: ast.AST) -> ast.AST:
        here = getattr(node, "lineno", None), getattr(node, "col_offset", None), type(node)
        if here == self.place and _text(node) == self.text:
            return ast.fix_missing_locations(ast.copy_location(deepcopy(self.replacement), node))
        return self.generic_visit(node)
