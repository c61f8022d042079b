"""The package as a stranger meets it: its names, its README, its records."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import grimp
import numpy as np
import pytest
import typer
from packaging.version import Version
from sklearn.metrics import average_precision_score, f1_score
from typer.testing import CliRunner

import metricgrad
from metricgrad.cli.app import app

ROOT = Path(__file__).parent.parent
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))


def run(code: str) -> str:
    """Run some code in a fresh interpreter and return what it prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


# ---- names ---------------------------------------------------------------------------------------------------------


def test_the_version_is_the_one_installed_and_cited() -> None:
    assert metricgrad.__version__ == importlib.metadata.version("metricgrad")
    assert f"\nversion: {metricgrad.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("name", metricgrad.__all__)
def test_every_public_name_resolves_and_is_documented(name: str) -> None:
    found = getattr(metricgrad, name)
    assert name in dir(metricgrad)
    if name != "__version__":
        assert inspect.getdoc(found)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(inspect.getsource(metricgrad))
    named = {alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert named - {None} == set(metricgrad.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'metricgrad' has no attribute 'no_such_name'"):
        _ = metricgrad.no_such_name


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'sklearn', 'pandas', 'typer', 'rich'}"
    assert run(f"import sys, metricgrad; print({heavy} & set(sys.modules))") == "set()"


def test_a_loss_for_a_bundled_metric_imports_torch_and_little_else() -> None:
    heavy = "{'pandas', 'sklearn', 'scipy', 'matplotlib', 'pyarrow', 'rich', 'typer', 'jinja2', 'torch._dynamo'}"
    code = 'import sys, metricgrad; metricgrad.SurrogateLoss("f1")'
    assert run(f"{code}; print({heavy} & set(sys.modules))") == "set()"


def test_importing_the_package_has_no_effects() -> None:
    state = "(dict(os.environ), list(warnings.filters), logging.root.handlers[:], threading.active_count())"
    code = f"import os, sys, logging, threading, warnings; before = {state}; import metricgrad; "
    own = "sorted(name for name in sys.modules if name.startswith('metricgrad'))"
    printed = run(f"{code} print(before == {state}, *{own})")
    assert printed == "True metricgrad metricgrad._version"


NAMES = ["load", "save", "SurrogateLoss", "MetricClassifier", "TableClassifier"]
"""Public names that import torch; the first is looked at most closely."""


@pytest.fixture(scope="module")
def imports() -> dict[str, list[str]]:
    """What each of the names imports: the package's modules, without packages, and for the first others worth noting.

    One interpreter imports the package again for each, and torch once.
    """
    code = f"""
import sys
for wanted in {NAMES}:
    for known in [name for name in sys.modules if name.partition(".")[0] == "metricgrad"]:
        del sys.modules[known]
    import metricgrad
    getattr(metricgrad, wanted)
    own = [name for name in sys.modules if name[:11] == "metricgrad." and not hasattr(sys.modules[name], "__path__")]
    print(*own, *{{"matplotlib", "pooch", "requests"}} & set(sys.modules))
"""
    return {name: line.split() for name, line in zip(NAMES, run(code).splitlines(), strict=True)}


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_imports_nothing_of_the_paper_or_the_commands(name: str, imports: dict[str, list[str]]) -> None:
    assert "metricgrad.metrics.metric" in imports[name]
    assert not [module for module in imports[name] if module.startswith(("metricgrad.paper", "metricgrad.cli"))]


def test_loading_a_model_imports_no_plots_no_downloads_and_eight_modules_of_tables(
    imports: dict[str, list[str]],
) -> None:
    assert all(name.startswith("metricgrad.") for name in imports["load"])
    assert 0 < sum(name.startswith("metricgrad.tabular.") for name in imports["load"]) <= 8


def test_loading_a_model_imports_at_most_35_modules(imports: dict[str, list[str]]) -> None:
    assert len(imports["load"]) <= 35


def test_a_public_name_is_not_covered_by_the_module_of_that_name() -> None:
    first = ["import metricgrad.metrics.callable", "from metricgrad.metrics.callable import black_box"]
    code = f"""
import sys
for first in {[*first, "metricgrad.MetricClassifier"]}:
    for known in [name for name in sys.modules if name.partition(".")[0] == "metricgrad"]:
        del sys.modules[known]
    import metricgrad
    exec(first)
    print(metricgrad.black_box.__name__)
"""
    assert run(code).split() == ["black_box"] * 3


def test_metrics_are_there_without_importing_them() -> None:
    assert run("import metricgrad; print(metricgrad.metrics.f1.name)") == "f1"


def test_old_names_work_for_one_release_with_a_warning() -> None:
    found = {}
    for name, (home, new, use) in metricgrad._DEPRECATED.items():
        with pytest.warns(DeprecationWarning, match=re.escape(f"metricgrad.{name} is deprecated: use {use}")):
            found[name] = getattr(metricgrad, name)
        assert found[name] is getattr(importlib.import_module(f"metricgrad.{home}"), new)
        assert name not in metricgrad.__all__
    assert found["Contest"] is metricgrad.ComparisonResult
    assert found["as_metric"] is metricgrad.get_metric
    assert len(found["datasets"].names()) == 11


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("metricgrad", exclude_type_checking_imports=True, cache_dir=None)
    left = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    while left:
        free = {module for module, needed in left.items() if not needed & left.keys()}
        assert free, f"a cycle among {sorted(left)}"
        left = {module: needed for module, needed in left.items() if module not in free}


def test_no_module_uses_a_private_name_of_torch() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            named = ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Import, ast.ImportFrom)) else ""
            assert not re.search(r"\btorch(\.\w+)*\._[a-z]", named), f"{path}: {named}"


def test_the_lowest_versions_that_are_allowed_are_those_that_are_tested() -> None:
    project, floor = ((ROOT / name).read_text() for name in ("pyproject.toml", "constraints-floor.txt"))
    needed = project.split("\ndependencies = [")[1].split("]")[0] + project.split("\ntrees = [")[1].split("]")[0]
    allowed = {name: Version(lowest) for name, lowest in re.findall(r'"([a-z0-9-]+)>=([0-9.]+)', needed)}
    assert len(allowed) == needed.count('"') // 2
    assert {name: Version(lowest) for name, lowest in re.findall(r"(?m)^([a-z0-9-]+)==(.+)$", floor)} == allowed


# ---- README --------------------------------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def unseen(names: dict[str, Any]) -> str:
    score = f1_score(names["y_test"], names["model"].predict(names["X_test"]))
    return f"F1 on unseen rows: {score:.3f}\n{names['model'].verdict_}\n"


def letters(names: dict[str, Any]) -> str:
    metric = names["model"].metric
    assert metric.value(metric([1.0, 1.0, -1.0], [1, 0, 1])) == names["profit"](np.array([1, 0]), np.ones(2)) == 8
    return ""


def followed(names: dict[str, Any]) -> str:
    known = average_precision_score(names["targets"], names["scores"].detach())
    assert known > 2 * float(names["targets"].mean())  # twice what chance would give
    return f"AP {known:.4f} and the surrogate is off by {round(names['loss'].gap, 3)}\n"


def of_a_table(names: dict[str, Any]) -> str:
    frame, model = names["frame"], names["model"]
    return "\n".join((*model.notes_, f"F1 {f1_score(frame['target'], model.predict(frame)):.3f}")) + "\n"


PRINTED = {"make_classification": unseen, "profit": letters, "manual_seed": followed, "load_breast_cancer": of_a_table}
"""What a block of the README prints by the first call in it, as scikit-learn would say it."""


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: re.search(r"\w+\(", code)[0].rstrip("("))
def test_the_code_of_the_readme_runs_and_prints_what_scikit_learn_would(
    code: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    assert capsys.readouterr().out == PRINTED[request.node.callspec.id](names)


@pytest.mark.parametrize("line", [line for block in blocks("sh") for line in block.splitlines()])
def test_the_commands_of_the_readme_exist(line: str) -> None:
    program, *arguments = line.partition("#")[0].split()
    if program == "metricgrad":
        assert CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0
    elif program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    else:
        assert line == "pip install ."


def test_the_readme_has_every_command_and_no_block_that_is_not_run() -> None:
    named = {line.split()[1] for block in blocks("sh") for line in block.splitlines() if line.startswith("metricgrad")}
    assert named == set(typer.main.get_command(app).commands)
    found = re.findall(r"^```(\w+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert set(found) == {"python", "sh", "bibtex"}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_our_own_files_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (ROOT / link).exists(), link


# ---- records -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_short_and_complete(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 30
    assert text.startswith(f"# {path.stem[:4]}: ")
    for part in ("Context", "Choice", "Consequence", "Status"):
        assert f"**{part}.**" in text
    assert re.search(r"\*\*Status\.\*\* (Accepted|Replaced by \d{4})", text)


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(path.stem[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_paper_is_the_preferred_citation() -> None:
    _, _, preferred = (ROOT / "CITATION.cff").read_text().partition("preferred-citation:")
    assert "Learning Surrogate Losses" in preferred
    assert "1905.10108" in preferred
