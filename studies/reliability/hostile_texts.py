"""Hostile texts in place of a metric: expression bombs, code, unicode, invalid numbers, names and files."""

from __future__ import annotations

from collections.abc import Iterator


def _split(text: str) -> tuple[str, ...]:
    """Split at the broken bar, which no text holds, and at line ends."""
    return tuple(one for line in text.strip().splitlines() for one in line.split(" ¦ "))


DUNDERS = _split(
    "__class__ ¦ __bases__ ¦ __subclasses__() ¦ __globals__ ¦ __init__ ¦ __dict__ ¦ __mro__ ¦ __reduce__()"
)
CALLS = _split("""
__import__('os').system('id') ¦ eval('1') ¦ exec('import os') ¦ open('/etc/passwd') ¦ compile('1','','eval')
print(tp) ¦ input() ¦ breakpoint() ¦ exit() ¦ getattr(tp,'data') ¦ globals() ¦ locals() ¦ vars() ¦ dir() ¦ type(tp)
id(tp) ¦ int(tp) ¦ float(tp) ¦ str(tp) ¦ sum([tp]) ¦ pow(tp,2) ¦ round(tp) ¦ len('tp') ¦ log(tp)
""")
"""Calls that no expression needs."""
SYNTAX = (
    *_split("""
[tp for tp in ()] ¦ (lambda: tp)() ¦ tp if fp else fn ¦ tp and fp ¦ tp or fp ¦ not tp ¦ tp < fp ¦ tp == tp ¦ tp | fp
tp & fp ¦ tp ^ fp ¦ ~tp ¦ tp << 3 ¦ tp >> 3 ¦ tp // fp ¦ tp % fp ¦ tp @ fp ¦ tp[0] ¦ tp[:] ¦ [tp] ¦ (tp,) ¦ {tp}
{tp: fp} ¦ *tp ¦ **tp ¦ f'{tp}' ¦ 'tp' + tp ¦ b'' * tp ¦ tp := 1 ¦ (tp := fp) ¦ yield tp ¦ await tp ¦ tp; fp ¦ tp = fp
import os; tp ¦ tp.real ¦ tp.T ¦ ...+tp ¦ None * tp ¦ True * tp ¦ 1j * tp ¦ nan * tp ¦ inf - tp ¦ tp ** fp ¦ tp ** 0.5
tp ** -1 ¦ tp ** 11 ¦ 2 ** 9999 * tp ¦ tp ** 10 ** 10 ¦ abs(tp, fp) ¦ abs() ¦ min(tp) ¦ max(tp, fp, fn) ¦ min(*tp)
abs(x=tp) ¦ sqrt ¦ abs.tp
"""),
    "tp\nfp",
)
"""Python syntax that expressions do not have."""
BROKEN = (
    *_split("""
tp + ¦ (tp ¦ tp) ¦ tp tp ¦ tp..fp ¦ 1tp + fp ¦ tp 1 ¦ - ¦ () ¦ tp, ¦ #tp ¦ ｔｐ（ ¦ tp − fp ¦ tp × fp ¦ tp ÷ fp ¦ √tp
tp² ¦ τp + tp ¦ tp + ٣٣x ¦ 💣 * tp ¦ éééééééééééééééééééééééééééééééééééééééééééééééééé*tp
"""),
    *(
        "",
        " ",
        "\t",
        "\n",
        "\x00",
        "tp\x00",
        "tp + \ud800",
        "tp + \u202efp",
        "tp + \x1b[31m",
        "\ufefftp +",
        "tp\u00a0fp",
    ),
    *("tp\u200bfp + tp", "tp + " + "\u0301" * 200),
)
"""Texts that are no expressions, or only look like one."""
NUMBERS = (
    *_split("""
1e999 * tp ¦ -1e999 * tp ¦ tp * 1e308 * 1e308 ¦ tp / 1e-320 * 1e308 ¦ tp * 1e400 ¦ (tp+1e200)**10 ¦ (tp+1e300)**2 - fp
1e308*tp + 1e308*tn - -1e308*tp ¦ tp - tp ¦ 0 * tp ¦ 1 ¦ tp / tp / tp * 0 ¦ tn - tn + 1 ¦ abs(tp - tp)
tp + fp + fn + tn ¦ min(tp, 0)
"""),
    "9" * 290 + "e999*tp",
    "0x" + "f" * 290 + "*tp",
    "1" * 290 + "**10*tp",
)
"""Overflowing numbers, and formulas that are constant."""
NAMES = _split("""
F1! ¦ f_1 ¦ f1_ ¦ not_a_metric ¦ f_beta(x) ¦ f_beta(-1) ¦ f_beta(nan) ¦ f_beta(inf) ¦ f_beta(0) ¦ f_beta(1e999)
f_beta(1,2) ¦ f_beta(__import__('os')) ¦ f_beta(2 ¦ f_beta 2 ¦ f_beta((2))x ¦ partial_auc(0) ¦ partial_auc(2)
partial_auc(-1) ¦ precision_at(0) ¦ precision_at(1.5) ¦ recall_at_precision(2) ¦ best_ ¦ best_not_a_metric ¦ __class__
metric ¦ None ¦ [] ¦ ../f1 ¦ /etc/passwd ¦ file:///etc/passwd ¦ $(id) ¦ `id` ¦ ; rm -rf / ¦ %s%s%n ¦ {0.__class__}
${jndi:ldap://x} ¦ <script>alert(1)</script> ¦ ' OR 1=1 -- ¦ CON ¦ nul
""")
"""Names that no metric has, some of them hostile to other programs."""
IMPORTS = (
    *_split("""
sklearn.metrics. ¦ sklearn.metrics..f1_score ¦ sklearn.metrics.os ¦ sklearn.metrics.__dict__
sklearn.metrics.get_scorer ¦ sklearn.metrics.make_scorer ¦ sklearn.metrics.pairwise ¦ sklearn.metrics._ranking.np
sklearn.metrics.f1_score() ¦ sklearn.metrics.confusion_matrix_at ¦ sklearn.metrics.pairwise_distances
sklearn.metrics.ConfusionMatrixDisplay ¦ sklearn.metrics.silhouette_score ¦ sklearn.os ¦ os.system
"""),
    "sklearn.metrics." + "x" * 10_000,
)
FILES = (
    *_split("""
nowhere.py:f ¦ /dev/null.py:f ¦ .py:f ¦ a.py: ¦ a.py:b.py:c ¦ /etc/passwd.py:root ¦ http://x/a.py:f
/proc/self/mem.py:f ¦ ../../../a.py:f ¦ a.py:__import__('os')
"""),
    "\x00.py:f",
    "x" * 5_000 + ".py:f",
)
"""Files that do not exist; none is run, even where the command allows it."""


def texts() -> list[str]:
    """Return every hostile text once."""
    return list(dict.fromkeys((*_dunders(), *_deep(), *CALLS, *SYNTAX, *BROKEN, *NUMBERS, *NAMES, *IMPORTS, *FILES)))


def _dunders() -> Iterator[str]:
    for name in DUNDERS:
        yield f"tp.{name}"
        yield f"(1).{name} + tp"
    yield "().__class__.__bases__[0].__subclasses__()[0] + tp"
    yield "__builtins__ + tp"
    yield "__name__ * tp"


def _deep() -> Iterator[str]:
    for depth in (90, 140, 1_000, 100_000):
        yield "(" * depth + "tp" + ")" * depth + "+"
        yield "abs(" * depth + "fp-fp" + ")" * depth
        yield "-" * depth + "tp*0"
        yield "tp" + "-tp+tp" * depth + "-tp"
        yield "tp" + "**2" * depth
        yield "tp*" * depth + "0"
        yield "[" * depth + "tp" + "]" * depth
        yield "not " * depth + "tp"
    for length in (301, 10_000, 1_000_000):
        yield "t" * length
        yield "tp+" * length + "tp"
        yield " " * length
        yield "9" * length + "*tp"
        yield "tp" + " " * length + "+"
