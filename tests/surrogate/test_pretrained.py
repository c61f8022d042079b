from __future__ import annotations

import ast
import json
import math
import pickle
import re
import shutil
import socket
import subprocess
import sys
import warnings
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from metricgrad import MetricClassifier, Recipe, SurrogateLoss
from metricgrad.metrics.callable import black_box
from metricgrad.metrics.registry import PAPER, Metric, builtin_metrics, get_metric
from metricgrad.metrics.tasks import MULTICLASS, MULTILABEL, RANKING
from metricgrad.surrogate import cache as cached
from metricgrad.surrogate import pretrained as bundle
from metricgrad.surrogate import pretraining as universal
from metricgrad.surrogate.bundling import fit_bundled
from metricgrad.surrogate.cache import fingerprint, universal_for
from metricgrad.surrogate.config import CONFIGS, SurrogateConfig, config_for
from metricgrad.surrogate.fidelity import measure_fidelity
from metricgrad.surrogate.network import Surrogate, new_surrogate
from metricgrad.surrogate.pretrained import (
    WEIGHTS_FOLDER,
    bundled_index,
    bundled_names,
    faithfulness,
    is_builtin,
    load_universal,
    open_surrogate,
    save_surrogate,
    tensors_digest,
)
from metricgrad.surrogate.pretraining import Fitting
from metricgrad.surrogate.synthetic import GROUP_SIZE, BroadSets, Sets

TINY = Fitting(groups=16, steps=20, sizes=(50,))
SETS = BroadSets()(4, GROUP_SIZE, 60, torch.Generator().manual_seed(5))
HELD_OUT = BroadSets()(60, GROUP_SIZE, 400, torch.Generator().manual_seed(20_201))


# ---- what is bundled -------------------------------------------------------------------------------------------------


def test_every_form_of_a_built_in_metric_that_is_trained_is_bundled() -> None:
    forms = {form for metric in builtin_metrics() for form in (metric.name, metric.best.name)}
    trained = {metric.name for task in (MULTICLASS, MULTILABEL, RANKING) for metric in builtin_metrics(task)}
    left_out = {"best_recall", "top_k_error(5)", "mrr"}
    assert set(bundled_names()) == (forms | trained | {"fnr_at_fpr(0.01)"}) - left_out
    assert set(bundled_index()) == set(bundled_names())


def test_the_bundle_is_one_file_for_each_metric() -> None:
    held = {path.name for path in WEIGHTS_FOLDER.iterdir() if path.is_file() and path.suffix != ".part"}
    assert held == {entry["file"] for entry in bundled_index().values()}


def test_the_bundle_is_small() -> None:
    assert sum(path.stat().st_size for path in WEIGHTS_FOLDER.rglob("*.safetensors")) < 4_500_000


@pytest.mark.parametrize("name", bundled_index())
def test_a_bundled_surrogate_is_built_as_suits_its_metric_and_says_how_it_was_fitted(name: str) -> None:
    entry, surrogate = bundled_index()[name], load_universal(name)
    assert surrogate.config == config_for(get_metric(name)) == SurrogateConfig.from_dict(entry["config"])
    assert not surrogate.training
    assert all(bool(tensor.isfinite().all()) for tensor in surrogate.state_dict().values())
    fitting = Fitting(**{**entry["fitting"], "sizes": tuple(entry["fitting"]["sizes"])})
    assert fitting.seed >= 0
    assert fitting.groups > 0
    assert re.fullmatch("[0-9a-f]{64}", entry["sha256"])
    assert 0 < entry["held_out_sets_of_400"]["gap"] < 0.06
    assert 0.9 < faithfulness(entry) <= 1
    assert entry["command"] == f"metricgrad universal fit '{name}' --seed {fitting.seed}"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", entry["version"])
    assert date.fromisoformat(entry["date"])


@pytest.mark.parametrize("name", PAPER)
def test_the_seven_of_the_paper_are_faithful_on_sets_nobody_has_seen(name: str) -> None:
    metric = get_metric(name).best
    entry = bundled_index()[metric.name]
    measured = measure_fidelity(load_universal(metric.name), metric, HELD_OUT)
    assert measured["spearman"] >= 0.97
    assert measured["spearman"] == pytest.approx(entry["held_out_sets_of_400"]["spearman"], abs=0.02)
    assert measured["gap"] == pytest.approx(entry["held_out_sets_of_400"]["gap"], rel=0.5)


def test_the_best_precision_is_imitated_although_most_sets_lose_nothing() -> None:
    metric = get_metric("best_precision")
    true = metric(*HELD_OUT)
    assert float((true == 0).float().mean()) > 0.5
    measured = measure_fidelity(load_universal("best_precision"), metric, HELD_OUT)
    assert measured["gap"] < 0.02
    assert measured["spearman"] > 0.95 * measured["ceiling"]
    some = true > 0
    lost = measure_fidelity(load_universal("best_precision"), metric, Sets(*(column[some] for column in HELD_OUT)))
    assert lost["spearman"] > 0.95


def test_following_the_bundled_best_precision_raises_the_true_one() -> None:
    metric, loss = get_metric("best_precision"), SurrogateLoss("precision", frozen=True)
    some = (metric(*HELD_OUT) > 0.2).nonzero()[:32, 0]
    scores, targets, weights = (column[some] for column in HELD_OUT)
    moved = scores.clone().requires_grad_()
    optimizer = torch.optim.Adam([moved], 0.02)
    for _ in range(30):
        optimizer.zero_grad()
        loss(moved, targets, weights).backward()
        optimizer.step()
    before, after = metric(scores, targets, weights), metric(moved, targets, weights)
    assert float(after.mean()) < 0.85 * float(before.mean())
    assert float((after < before + 1e-6).float().mean()) > 0.9


@pytest.mark.parametrize(("spearman", "ceiling", "warned"), [(0.5, 1.0, True), (0.9, 1.0, False), (0.5, 0.55, False)])
@pytest.mark.parametrize("use", ["loss", "estimator"])
def test_a_bundled_surrogate_of_low_fidelity_is_warned_of(
    spearman: float, ceiling: float, warned: bool, use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(WEIGHTS_FOLDER, tmp_path / "weights")
    record = {"held_out_sets_of_400": {"gap": 0.1, "spearman": spearman, "ceiling": ceiling}}
    save_surrogate(load_universal("auc"), tmp_path / "weights" / "auc.safetensors", record)
    monkeypatch.setattr(bundle, "WEIGHTS_FOLDER", tmp_path / "weights")
    x = np.random.default_rng(0).normal(size=(60, 2))
    short = Recipe(warmup=3, rounds=1, trust=-1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if use == "loss":
            SurrogateLoss("auc")
        else:
            MetricClassifier("auc", "sl-r", "linear", recipe=short).fit(x, x[:, 0] > 0)
    said = [str(warning.message) for warning in caught if "bundled surrogate" in str(warning.message)]
    assert len(said) == warned
    if warned:
        assert "surrogate of AUC hardly follows it: Spearman correlation 0.50 on random sets, below 0.8" in said[0]


def test_what_is_bundled_holds_tensors_and_nothing_to_execute() -> None:
    for entry in bundled_index().values():
        content = (WEIGHTS_FOLDER / entry["file"]).read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        assert SurrogateConfig.from_dict(json.loads(header.pop("__metadata__")["config"]))
        assert {tensor["dtype"] for tensor in header.values()} <= {"F16", "F32"}
        assert 8 + length + max(tensor["data_offsets"][1] for tensor in header.values()) == len(content)


def test_loading_needs_no_network_and_leaves_the_global_generator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    before = torch.get_rng_state()
    assert bool(load_universal("auc")(*SETS).isfinite().all())
    assert torch.equal(before, torch.get_rng_state())


def test_a_bundled_file_that_was_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(WEIGHTS_FOLDER, tmp_path / "weights")
    path = tmp_path / "weights" / "auc.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    monkeypatch.setattr(bundle, "WEIGHTS_FOLDER", tmp_path / "weights")
    with pytest.raises(ValueError, match=r"auc\.safetensors: expected SHA-256 \w{64}, got \w{64}; reinstall"):
        load_universal("auc")


def test_a_name_that_is_not_bundled_gives_those_that_are() -> None:
    with pytest.raises(
        ValueError, match=r"metric: no bundled surrogate for 'gini'; there is one for auc, average_prec"
    ):
        load_universal("gini")


def test_a_built_in_metric_gets_its_bundled_surrogate() -> None:
    for name in ("auc", "average_precision", "best_f1"):
        assert torch.equal(universal_for(get_metric(name))(*SETS), load_universal(name)(*SETS))
        assert torch.equal(universal_for(get_metric(name), "default")(*SETS), load_universal(name)(*SETS))


def test_a_black_box_with_the_name_of_a_built_in_metric_is_none() -> None:
    assert is_builtin(get_metric("auc"))
    assert is_builtin(get_metric("best_f1"))
    assert not is_builtin(black_box(lambda y, s: 0.0, higher_is_better=False, name="auc"))
    assert not is_builtin(black_box(lambda y, s: 0.0, higher_is_better=False, name="f1", labels=True).best)


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [*CONFIGS.values(), SurrogateConfig(standardise="scale", link="linear")])
def test_what_is_saved_is_what_is_opened_to_half_precision(config: SurrogateConfig, tmp_path: Path) -> None:
    surrogate = new_surrogate(config, 3).eval()
    surrogate.low.fill_(-12_345.678)
    surrogate.high.fill_(98_765.43)
    save_surrogate(surrogate, tmp_path / "new" / "it.safetensors")
    opened = open_surrogate(tmp_path / "new" / "it.safetensors")
    assert opened.config == config
    assert not opened.training
    assert float(opened.low) == float(surrogate.low)
    assert float(opened.high) == float(surrogate.high)
    torch.testing.assert_close(opened(*SETS), surrogate(*SETS), rtol=0, atol=0.002 * 120_000)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["it.safetensors"]
    save_surrogate(opened, tmp_path / "again.safetensors")
    one, other = ((tmp_path / path).read_bytes() for path in ("again.safetensors", "new/it.safetensors"))
    assert tensors_digest(one) == tensors_digest(other)


def test_numbers_too_large_for_half_precision_are_saved_in_full(tmp_path: Path) -> None:
    surrogate = new_surrogate("paper", 3)
    surrogate.g.norm.running_var.fill_(1e9)
    save_surrogate(surrogate, tmp_path / "it.safetensors")
    assert torch.equal(open_surrogate(tmp_path / "it.safetensors").g.norm.running_var, torch.full((30,), 1e9))


def test_others_may_read_a_file_as_they_may_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    save_surrogate(Surrogate(), tmp_path / "it.safetensors")
    assert (tmp_path / "it.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return pytest.fail, ("a file was executed",)


def test_a_file_of_another_kind_is_refused_and_never_executed(tmp_path: Path) -> None:
    path = tmp_path / "odd.safetensors"
    state = new_surrogate("default", 0).state_dict()
    kinds = {
        "empty": lambda: path.write_bytes(b""),
        "text": lambda: path.write_text("scores,targets\n1,0\n" * 100),
        "pickle": lambda: path.write_bytes(pickle.dumps(Trap())),
        "torch": lambda: torch.save(state, path),
        "no config": lambda: save_file(state, path),
        "no json": lambda: save_file(state, path, {"config": "wide"}),
        "no mapping": lambda: save_file(state, path, {"config": "[1]"}),
        "no such field": lambda: save_file(state, path, {"config": '{"wide": 1}'}),
        "no such activation": lambda: save_file(state, path, {"config": '{"activation": "relu"}'}),
        "other widths": lambda: save_file(state, path, {"config": '{"h": [7]}'}),
        "other tensors": lambda: save_file({"x": torch.ones(2)}, path, {"config": "{}"}),
    }
    for write in kinds.values():
        write()
        with pytest.raises(ValueError, match=r"odd\.safetensors: expected a surrogate saved by metricgrad, got "):
            open_surrogate(path)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.safetensors: expected a surrogate file, got nothing at"):
        open_surrogate(tmp_path / "gone.safetensors")


# ---- fitted on demand ------------------------------------------------------------------------------------------------


class Counted:
    """Share of positives among the best-scored rows, negated if asked; counts its calls."""

    __name__ = "share_on_top"

    def __init__(self, sign: int = 1) -> None:
        self.sign, self.calls = sign, 0

    def __call__(self, y_true: np.ndarray, y_score: np.ndarray) -> float:
        self.calls += 1
        return self.sign * float(y_true[np.argsort(y_score)[-5:]].mean())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(universal, "ON_DEMAND", TINY)
    monkeypatch.setattr(cached, "PAPER_FITTING", Fitting(steps=20, relational=0.0, sizes=(50,)))
    return tmp_path / "universal"


def test_a_black_box_is_fitted_once_and_then_taken_from_the_cache(cache: Path) -> None:
    fn, reported = Counted(), []
    first = universal_for(
        black_box(fn, higher_is_better=False), progress=lambda what, done, total: reported.append((what, done, total))
    )
    fingerprint = 2 * GROUP_SIZE
    assert fn.calls == fingerprint + TINY.groups * GROUP_SIZE
    assert reported == [("computing losses of random sets", 16, 16), ("fitting the surrogate", 20, 20)]
    assert len(list(cache.iterdir())) == 1
    again = Counted()
    second = universal_for(black_box(again, higher_is_better=False))
    assert again.calls == fingerprint
    assert torch.equal(first(*SETS), second(*SETS))


def test_black_boxes_of_one_name_that_do_different_things_do_not_share(cache: Path) -> None:
    one, other = (universal_for(black_box(Counted(sign), higher_is_better=False)) for sign in (1, -1))
    assert len(list(cache.iterdir())) == 2
    assert not torch.equal(one(*SETS), other(*SETS))


def test_what_does_the_same_shares_whatever_its_name(cache: Path) -> None:
    universal_for(black_box(Counted(), higher_is_better=False, name="one"))
    fn = Counted()
    universal_for(black_box(fn, higher_is_better=False, name="other"))
    assert fn.calls == 2 * GROUP_SIZE
    universal_for(black_box(fn, higher_is_better=False, value_range=(0, 1)))  # another link, so another surrogate
    assert len(list(cache.iterdir())) == 2


def test_another_construction_or_fitting_has_a_file_of_its_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = black_box(Counted(), higher_is_better=False)
    assert universal_for(metric).config == config_for(metric)
    assert universal_for(metric, "paper").config == CONFIGS["paper"]
    assert universal_for(metric, SurrogateConfig(h=(9,))).config == SurrogateConfig(h=(9,))
    monkeypatch.setattr(universal, "ON_DEMAND", Fitting(groups=16, steps=21, sizes=(50,)))
    universal_for(metric)
    assert len(list(cache.iterdir())) == 4


def test_a_built_in_metric_is_fitted_where_none_suits(cache: Path) -> None:
    assert universal_for(get_metric("auc"), "paper").config == CONFIGS["paper"]
    assert universal_for(get_metric("precision_at(0.31)")).config == SurrogateConfig()
    assert len(list(cache.iterdir())) == 2


def test_a_damaged_file_in_the_cache_is_fitted_again(cache: Path) -> None:
    metric = black_box(Counted(), higher_is_better=False)
    first = universal_for(metric)
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert torch.equal(universal_for(metric)(*SETS), first(*SETS))
    assert path.stat().st_size > 100


def test_a_cache_that_cannot_be_written_is_warned_of_once_and_what_was_fitted_is_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metric = black_box(Counted(), higher_is_better=False)
    kept = universal_for(metric)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="the cache .*file.universal cannot be written .*METRICGRAD_CACHE") as warned:
        found = [universal_for(metric) for _ in range(2)]
    assert len(warned) == 1
    for surrogate in found:
        assert torch.equal(surrogate(*SETS), kept(*SETS))


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (get_metric("best_recall"), "metric: 'best_recall' is constant"),
        (
            black_box(lambda y, s: 41, higher_is_better=False, name="always"),
            r"metric: 'always' is constant \(41 on every random set\)",
        ),
        (
            black_box(lambda y, s: math.nan, higher_is_better=False, name="blank"),
            "metric 'blank': expected one finite number, got nan",
        ),
        (
            black_box(lambda y, s: 1 / 0, higher_is_better=False, name="broken"),
            "metric 'broken' failed on .* ZeroDivisionError",
        ),
    ],
)
def test_a_metric_that_cannot_be_learned_leaves_nothing_in_the_cache(metric, message: str, cache: Path) -> None:
    with pytest.raises(ValueError, match=message):
        universal_for(metric)
    assert not cache.exists()


# ---- fitting what is bundled -----------------------------------------------------------------------------------------


@pytest.mark.slow  # fits two surrogates
def test_what_is_fitted_for_the_bundle_is_saved_with_a_record_and_reproducible(tmp_path: Path) -> None:
    reported: list[str] = []
    done = dict(fit_bundled(["f1", "precision_at(0.02)"], tmp_path, TINY, lambda what, *_: reported.append(what)))
    assert list(done) == ["f1", "precision_at(0.02)"]
    assert set(reported) == {"computing losses of random sets", "fitting the surrogate"}
    index = bundled_index(tmp_path)
    assert index == done
    assert index["precision_at(0.02)"]["file"] == "precision_at_0.02.safetensors"
    assert index["f1"]["fitting"] == {**asdict(TINY), "sizes": [50]}
    for name, entry in index.items():
        surrogate = open_surrogate(tmp_path / entry["file"])
        assert surrogate.config == config_for(get_metric(name))
    more = dict(fit_bundled(["auc", "f1"], tmp_path, TINY))
    assert more["f1"] == done["f1"]
    both = bundled_index(tmp_path)
    assert list(both) == ["auc", "f1", "precision_at(0.02)"]
    assert both["precision_at(0.02)"] == index["precision_at(0.02)"]
    assert {path.name for path in tmp_path.iterdir()} == {entry["file"] for entry in both.values()}


def test_black_boxes_that_differ_only_on_large_sets_are_distinguished() -> None:
    def top(count: int) -> Metric:
        def found(y_true: np.ndarray, y_score: np.ndarray) -> float:
            return float(y_true[np.argsort(-y_score)[:count]].mean())

        return black_box(found, higher_is_better=True, value_range=(0, 1))

    assert fingerprint(top(100)) != fingerprint(top(400))
    assert fingerprint(top(100)) == fingerprint(top(100))


def test_a_metric_of_tiny_values_is_not_taken_for_constant() -> None:
    small = black_box(lambda y_true, y_score: 1e-7 * float((y_score > 0).mean()), higher_is_better=False)
    assert len(fingerprint(small)) == 32


def test_another_metric_by_the_name_of_ours_does_not_get_our_weights() -> None:
    ours = get_metric("jaccard")
    theirs = replace(ours, counts=lambda c: c.fp / (c.fp + c.tp + 1), function=ours.function)
    assert bundle.is_builtin(ours.best)
    assert not bundle.is_builtin(theirs.best)


def test_a_metric_with_nothing_to_learn_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'best_recall' is constant .*form='zero'"):
        next(fit_bundled(["auc", "best_recall"], tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_aliases_find_their_surrogate() -> None:
    assert load_universal("mcr").state_dict().keys() == load_universal("error_rate").state_dict().keys()


# ---- files of 0.1.0 ------------------------------------------------------------------------------------------------


def test_a_surrogate_saved_by_0_1_0_is_opened(tmp_path: Path) -> None:
    surrogate = load_universal("auc")
    old = {("teeth" if key == "thresholds" else key): value for key, value in surrogate.config.as_dict().items()}
    save_file(surrogate.state_dict(), tmp_path / "old.safetensors", {"construction": json.dumps(old)})
    opened = open_surrogate(tmp_path / "old.safetensors")
    assert opened.config == surrogate.config
    assert torch.equal(opened(*SETS), surrogate(*SETS))


# ---- what constructing a loss does -----------------------------------------------------------------------------------

OPENED = """
import sys
import torch, safetensors.torch
torch.optim.Adam([torch.zeros(1, requires_grad=True)], fused=True)  # torch imports modules of its own at the first one
import metricgrad
before = set(sys.modules)
metricgrad.SurrogateLoss
modules = sorted(name for name in set(sys.modules) - before if name.startswith("metricgrad."))
opened = []
sys.addaudithook(lambda event, values: opened.append(str(values[0])) if event == "open" else None)
metricgrad.SurrogateLoss({metric!r})
after = sorted(name for name in sys.modules if name.startswith("metricgrad."))
print([*modules, *(name for name in after if name not in modules and name not in before)])
print([path.replace("\\\\", "/").rsplit("/", 1)[-1] for path in opened])
"""


@pytest.mark.slow  # starts an interpreter that imports torch
@pytest.mark.parametrize("metric", ["average_precision", "f1", "precision_at(0.02)"])
def test_constructing_a_loss_of_a_bundled_metric_reads_one_file_and_imports_few_modules(metric: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPENED.format(metric=metric)], capture_output=True, text=True, check=True
    )
    modules, opened = (ast.literal_eval(line) for line in done.stdout.splitlines())
    assert len(opened) == 1
    assert opened[0].endswith(".safetensors")
    assert len(modules) <= 20
    packages = {name.split(".")[1] for name in modules}
    assert packages == {"metrics", "surrogate"}
    assert not {f"metricgrad.surrogate.{name}" for name in ("cache", "pretraining", "synthetic")} & set(modules)


def test_a_metric_that_is_not_bundled_is_fitted_with_progress(cache: Path) -> None:
    reported: list[str] = []
    black = black_box(Counted(), higher_is_better=False)
    SurrogateLoss(black, progress=lambda what, *_: reported.append(what))
    assert set(reported) >= {"calling the metric", "fitting the surrogate"}
    reported.clear()
    SurrogateLoss(black, progress=lambda what, *_: reported.append(what))
    assert not reported
