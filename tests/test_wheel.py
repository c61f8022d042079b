"""The wheel in an empty environment: everything is in it that the package needs, and a user's first steps work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import metricgrad

pytestmark = pytest.mark.slow  # builds a wheel and starts interpreters that import torch

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "metricgrad"
PROGRAM = """
import metricgrad
from metricgrad import MetricClassifier, Recipe
from metricgrad.surrogate.pretrained import bundled_index, load_universal
from sklearn.datasets import make_classification

for name in metricgrad.__all__:
    getattr(metricgrad, name)
for name in bundled_index():
    load_universal(name)
X, y = make_classification(300, 5, random_state=0)
model = MetricClassifier("f1", "sl-u", "small", Recipe(warmup=30, rounds=2, set_size=100)).fit(X, y)
assert "metricgrad-card" in model._repr_html_inner()
assert model.score(X, y) > 0.6
print(metricgrad.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built without network, by the tools of this environment."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("wheel")
    words = ["wheel", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(out), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel in it, and with the other packages of this one.

    A package that is installed here as a link to its source is not among them.
    """
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = (path for path in folder.rglob("site-packages") if path.is_dir() and "lib64" not in path.parts)
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    python = next(programs.glob("python*"))
    words = ["--python", str(python), "install", "--no-deps", "--no-index", "--quiet", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, env=without_path())
    return programs


def without_path(**more: str) -> dict[str, str]:
    """Return the environment of this process without places where modules are searched."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more


def run(program: Path, *words: str, folder: Path, **more: str) -> str:
    done = subprocess.run(
        [str(program), *words], cwd=folder, env=without_path(**more), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_everything_in_the_source_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    own = {f"metricgrad/{path.relative_to(SOURCE).as_posix()}" for path in SOURCE.rglob("*") if path.is_file()}
    own = {name for name in own if "__pycache__" not in name}
    kept = f"metricgrad-{metricgrad.__version__}.dist-info/"
    assert {name for name in names if not name.startswith(kept)} == own
    ends = [Path(name).suffix for name in own]
    assert ends.count(".safetensors") > 40
    assert {".html", ".css", ".js", ".gz", ".typed"} <= set(ends)
    assert {f"{kept}licenses/LICENSE", f"{kept}licenses/src/metricgrad/demo/bikes.md"} <= names


def test_the_wheel_says_what_it_needs_and_what_it_can_be_asked_for(wheel: Path) -> None:
    folder = f"metricgrad-{metricgrad.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as packed:
        metadata = packed.read(f"{folder}/METADATA").decode()
        assert "metricgrad = metricgrad.cli.app:app" in packed.read(f"{folder}/entry_points.txt").decode()
    assert f"\nVersion: {metricgrad.__version__}\n" in metadata
    assert "\nRequires-Dist: torch<3,>=2.8\n" in metadata
    for extra in ("frameworks", "ray", "trees"):
        assert f"\nProvides-Extra: {extra}\n" in metadata


def test_the_command_of_the_wheel_trains_and_predicts(installed: Path, tmp_path: Path) -> None:
    command = next(installed.glob("metricgrad*"))
    assert run(command, "--version", folder=tmp_path).split() == ["metricgrad", metricgrad.__version__]
    rows = "\n".join(f"{place % 7},{place % 11},{'yes' if place % 7 > 4 else 'no'}" for place in range(200))
    (tmp_path / "data.csv").write_text(f"a,b,bought\n{rows}\n")
    words = ("data.csv", "--target", "bought", "--metric", "f1", "--model", "linear", "--out", "model")
    run(command, "fit", *words, folder=tmp_path)
    run(command, "predict", "model", "data.csv", "--out", "predicted.csv", folder=tmp_path)
    assert len((tmp_path / "predicted.csv").read_text().splitlines()) == 201


def test_names_fits_and_surrogates_work_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    python = next(installed.glob("python*"))
    *_, place = run(python, "-c", PROGRAM, folder=tmp_path, OMP_NUM_THREADS="1").splitlines()
    assert Path(place).is_relative_to(installed.parent)


def test_the_whole_demonstration_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    command = next(installed.glob("metricgrad*"))
    said = " ".join(run(command, "demo", folder=tmp_path, OMP_NUM_THREADS="1").split())
    assert re.search(r"Trained for the cost itself, the same model costs 1\d\.\d % less than by squared error", said)
    pages = {path.name: path.read_text("utf-8") for path in (tmp_path / "metricgrad-demo").iterdir()}
    assert set(pages) == {"index.html", "demo.json", "demo.svg", "predictions.csv"}
    assert pages["index.html"].rstrip().endswith("</html>")


def test_build_makes_the_same_wheel_of_the_source_distribution(wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("build")
    words = ["-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    (source,) = tmp_path.glob("*.tar.gz")
    (built,) = tmp_path.glob("*.whl")
    assert source.stem.startswith(f"metricgrad-{metricgrad.__version__}")
    assert contents(built) == contents(wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name."""
    with zipfile.ZipFile(wheel) as packed:
        return {name: packed.read(name) for name in packed.namelist()}
