"""Mutation testing: which small faults in the numeric modules do the tests let pass?

    python -m studies.mutation.run [MODULE ...] [--survivors] [--sample N]

Every mutant is tested in a fork of this process, which has the heavy packages imported but not metricgrad. Outcomes
are appended to build/mutation.jsonl, so that a second run goes on where the first one stopped; a mutant is tested
again if the function around it changed, or with `--survivors` if it survived. What survives a few examples of each
property is tested with all of them. `equivalent.json` has the mutants that change no result, each with its reason.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from studies.mutation.mutants import Mutant, mutants

ROOT = Path(__file__).parents[2]
LOG, SUMMARY = ROOT / "build" / "mutation.jsonl", ROOT / "results" / "mutation.json"
EQUIVALENT = Path(__file__).with_name("equivalent.json")
TESTS: dict[str, tuple[str, ...]] = {
    "metrics.binary": ("metrics/test_registry.py", "metrics/test_metrics_oracles.py"),
    "metrics.thresholds": ("metrics/test_thresholds.py",),
    "training.splits": ("training/test_splits.py",),
    "surrogate.loss": ("surrogate/test_loss.py", "surrogate/test_start.py"),
    "surrogate.refining": ("surrogate/test_refining.py", "surrogate/test_loss.py"),
    "surrogate.trainable": ("surrogate/test_trainable.py", "surrogate/test_loss.py", "surrogate/test_refining.py"),
    "surrogate.black_box_calls": ("surrogate/test_black_box_calls.py", "surrogate/test_loss.py"),
    "training.selection": ("training/test_selection.py", "training/test_trainer.py", "paper/test_experiments.py"),
    "training.trainer": ("training/test_trainer.py", "training/test_jobs.py"),
    "paper.protocols": ("paper/test_protocols.py",),
}
"""Modules below `metricgrad.` and their tests below `tests/`, fast ones first; a module's own examples come before."""
HEAVY = [
    "hypothesis",
    "matplotlib.pyplot",
    "numpy",
    "pandas",
    "playwright.sync_api",
    "pyarrow.parquet",
    "pytest",
    "rich.table",
    "safetensors.torch",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.linear_model",
    "sklearn.metrics",
    "sklearn.utils.estimator_checks",
    "torch",
    "torch.nn.functional",
    "torchmetrics.classification",
    "typer.testing",
]
EXAMPLES = {"few": 15, "many": 60}
"""Of each property: for every mutant, and for those that survive the first."""
COMMAND = "python -m studies.mutation.run"
SEED, SAMPLE, LINES = 0, 60, 150
"""Modules of fewer lines are tested in full; of longer ones this many mutants are drawn."""
CPU_SECONDS, WALL_SECONDS, MEMORY = 120, 1_800, 12 << 30
"""What the tests of a mutant may take; the first counts the same on a busy machine."""


class MutantFinder(MetaPathFinder):
    """Finds one module of metricgrad as the given tree."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.name, self.tree = f"metricgrad.{module}", tree

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the module, and no other."""
        if fullname != self.name:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _TreeLoader(fullname, spec.origin, self.tree)
        return spec


class _TreeLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self.tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.tree, self.path, "exec", dont_inherit=True)


def tested(module: str, tree: ast.Module, profile: str) -> dict[str, Any]:
    """Run the tests of a module in a fork, with a tree in its place; return the outcome and the test that failed."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            _run_tests(module, tree, profile, output.fileno())
        status = _wait(child, begun + WALL_SECONDS)
        output.seek(0)
        said = output.read()
    code = -signal.SIGXCPU if status is None else os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        return {"outcome": "timeout", "by": "", "seconds": round(time.perf_counter() - begun, 1)}
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    if code not in (0, 1, 2, 3, 4) and code >= 0:
        raise RuntimeError(f"the tests of {module} ended with {code}:\n{said[-2_000:]}")
    return {
        "outcome": "survived" if code == 0 else "killed",
        "by": failed.group(1) if failed else "" if code == 0 else f"exit {code}: {said[-200:]}",
        "seconds": round(time.perf_counter() - begun, 1),
    }


def _run_tests(module: str, tree: ast.Module, profile: str, output: int) -> None:
    """Run pytest in this process and leave it with pytest's exit code: never returns."""
    code = 3
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 10))
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        sys.meta_path.insert(0, MutantFinder(module, tree))
        importlib.import_module(f"metricgrad.{module}")  # now: pytest has an import hook of its own for what it runs
        import pytest

        files = [str(path_of(module)), *(f"tests/{name}" for name in TESTS[module])]
        quiet = ["-n", "0", "-x", "-q", "--tb", "no", "-p", "no:cacheprovider"]
        quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # Hypothesis is imported already
        code = int(pytest.main([*files, *quiet, f"--hypothesis-profile={profile}"]))
    except BaseException:  # whatever it is, a fork must not go on as if it were the parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, until: float) -> int | None:
    """Wait for a child and return its status, or None if it had to be stopped."""
    while time.perf_counter() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def path_of(module: str) -> Path:
    """Return where a module is."""
    return ROOT.joinpath("src", "metricgrad", *module.split(".")).with_suffix(".py")


def source_of(module: str) -> str:
    """Return the source of a module as it is."""
    return path_of(module).read_text(encoding="utf-8")


def has_properties(module: str) -> bool:
    """Whether more examples can find more."""
    return any("hypothesis" in (ROOT / "tests" / name).read_text(encoding="utf-8") for name in TESTS[module])


def chosen(module: str, sample: int | None) -> list[Mutant]:
    """Return the mutants to test: all of a short module, some of a long one, always the same; a larger sample adds."""
    source = source_of(module)
    found = list(mutants(module, source))
    if sample is None:
        sample = len(found) if len(source.splitlines()) < LINES else SAMPLE
    # By key, not by place: a mutant of a function that did not change stays drawn.
    drawn = sorted(found, key=lambda mutant: random.Random(f"{SEED} {mutant.key}").random())[:sample]
    return sorted(drawn, key=lambda mutant: mutant.line)


def stored() -> dict[str, dict[str, Any]]:
    """Return the newest outcome of every mutant tested so far, by key."""
    lines = LOG.read_text().splitlines() if LOG.exists() else []
    return {record["key"]: record for record in map(json.loads, lines)}


def run_mutants(modules: Sequence[str], sample: int | None, again: bool) -> None:
    """Test the mutants there is no outcome of, and append theirs."""
    for name in HEAVY:
        importlib.import_module(name)
    from hypothesis import HealthCheck, settings

    for name, count in EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=count,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
    gc.collect()
    gc.freeze()  # what is imported is not looked through, nor copied, in every fork
    known = stored()
    for module in modules:
        left = [m for m in chosen(module, sample) if not _done(known.get(m.key), again)]
        if left:
            first = tested(module, ast.parse(source_of(module)), "few")
            if first["outcome"] != "survived":
                raise RuntimeError(f"{module}: expected its tests to pass without a fault, got {first}")
        for number, mutant in enumerate(left, 1):
            outcome = tested(module, mutant.tree, "few")
            if outcome["outcome"] == "survived" and has_properties(module):
                outcome = tested(module, mutant.tree, "many")
            record = {"key": mutant.key, "line": mutant.line, "operator": mutant.operator, **outcome}
            LOG.parent.mkdir(exist_ok=True)
            with LOG.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(f"{module} {number}/{len(left)} {outcome['outcome']:8} {outcome['seconds']:5.1f} s  {mutant.change}")


def _done(record: dict[str, Any] | None, again: bool) -> bool:
    return record is not None and not (again and record["outcome"] == "survived")


def summary() -> dict[str, Any]:
    """Count the outcomes by module, and name the survivors: those that change no result with the reason."""
    from metricgrad.provenance import provenance

    known = stored()
    reasons: dict[str, dict[str, str]] = json.loads(EQUIVALENT.read_text())
    counted: dict[str, Any] = {}
    for module in TESTS:
        found = list(mutants(module, source_of(module)))
        outcomes = {mutant.change: known[mutant.key]["outcome"] for mutant in found if mutant.key in known}
        alive = [change for change, outcome in outcomes.items() if outcome == "survived"]
        equivalent = reasons.get(module, {})
        counted[module] = {
            "mutants": len(found),
            "tested": len(outcomes),
            **{name: Counter(outcomes.values())[name] for name in ("killed", "timeout", "survived")},
            "equivalent": {change: equivalent[change] for change in alive if change in equivalent},
            "survivors": [change for change in alive if change not in equivalent],
        }
    return {"command": COMMAND, "seed": SEED, "modules": counted, "made_by": provenance()}


def main() -> None:
    """Test what is asked for, write the summary of all modules, and show it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", default=list(TESTS), metavar="MODULE", help=", ".join(TESTS))
    parser.add_argument("--survivors", action="store_true", help="test again what survived")
    parser.add_argument("--sample", type=int, help=f"mutants a module; else all of a short one, {SAMPLE} of a long one")
    asked = parser.parse_args()
    os.chdir(ROOT)
    run_mutants(asked.modules, asked.sample, asked.survivors)
    found = summary()
    SUMMARY.write_text(json.dumps(found, indent=1) + "\n")
    for module, counts in found["modules"].items():
        print(module, {name: counts[name] for name in ("mutants", "tested", "killed", "timeout", "survived")})
        print(*(f"  {change}" for change in counts["survivors"]), sep="\n")


if __name__ == "__main__":
    main()
