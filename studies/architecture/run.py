"""Measure the shape of the package: modules, lines, import chain, modules that each use runs, repeated names.

python -m studies.architecture.run
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "metricgrad"
TABLE = """
import numpy as np
generator = np.random.default_rng(0)
X = generator.standard_normal((400, 5))
y = (X[:, 0] + X[:, 1] * X[:, 2] + generator.standard_normal(400) > 1).astype(int)
"""
USES = {
    "fit": TABLE
    + """
from metricgrad import MetricClassifier, Recipe
MetricClassifier("f1", model="linear", recipe=Recipe(warmup=30, rounds=10, trust_cap=50)).fit(X, y).predict(X)
""",
    "own loop": TABLE
    + """
import torch
from metricgrad import SurrogateLoss
model, loss = torch.nn.Linear(5, 1), SurrogateLoss("f1")
scores, targets = model(torch.from_numpy(X).float())[:, 0], torch.from_numpy(y).float()
loss.refine(scores, targets)
loss(scores, targets).backward()
""",
    "compare": TABLE
    + """
from metricgrad import Recipe, compare
compare(X, y, model="linear", recipe=Recipe(warmup=30, rounds=10, trust_cap=50), splits=2, n_jobs=1)._repr_html_()
""",
    "reproduce": """
import sys, tempfile
options = "--datasets digits8 --metrics f1 --rounds 10 --seeds 1 --jobs 1 --results"
sys.argv = ["metricgrad", "reproduce", "table2", *options.split(), tempfile.mkdtemp()]
from metricgrad.cli.app import app
try:
    app()
except SystemExit:
    pass
""",
}
"""Small programs, one for each way people use the package."""
TRACE = """
import sys, json
ran = set()
def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_name != "<module>" and "/metricgrad/" in code.co_filename:
        ran.add(code.co_filename)
sys.setprofile(note)
{program}
sys.setprofile(None)
print("\\nRAN", json.dumps([len(ran), len([m for m in sys.modules if m.startswith("metricgrad.")])]))
"""
LOADED = {"load": "import metricgrad; metricgrad.load", "SurrogateLoss": "import metricgrad; metricgrad.SurrogateLoss"}


def main() -> None:
    """Print what is measured as JSON."""
    files = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    scripts = list(PACKAGE.rglob("*.js"))
    names = Counter(name for path in files for name in set(_defined(path)))
    measured = {
        "modules": len(files),
        "lines": sum(map(_lines, PACKAGE.rglob("*.py"))),
        "lines of JavaScript": sum(map(_lines, scripts)),
        "longest import chain": longest_chain(),
        "names defined in more than one module": sum(count > 1 for count in names.values()),
        "modules run": {use: _traced(program)[0] for use, program in USES.items()},
        "modules imported": {name: _imported(program) for name, program in LOADED.items()},
    }
    print(json.dumps(measured, indent=1))


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _defined(path: Path) -> list[str]:
    """Return the functions, classes and constants that a module defines at its top."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.append(node.name)
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
    return found


def longest_chain() -> int:
    """Return the number of modules on the longest path of imports, those for type checking left out."""
    graph = grimp.build_graph("metricgrad", exclude_type_checking_imports=True, cache_dir=None)

    @cache
    def depth(module: str) -> int:
        return 1 + max(map(depth, graph.find_modules_directly_imported_by(module)), default=0)

    return max(map(depth, graph.modules))


def _traced(program: str) -> list[int]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "use.py"
        script.write_text(TRACE.format(program=program))
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=folder)
    line = next(line for line in done.stdout.splitlines() if line.startswith("RAN "))
    counts: list[int] = json.loads(line.removeprefix("RAN "))
    return counts


def _imported(program: str) -> int:
    """Return the modules of the package that a program imports, without the packages they are in."""
    own = "[m for n, m in sys.modules.items() if n.startswith('metricgrad.') and not hasattr(m, '__path__')]"
    count = f"{program}\nimport sys\nprint(len({own}))"
    return int(subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
