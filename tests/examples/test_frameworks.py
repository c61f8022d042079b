"""The loss in frameworks: every program of the page runs; Ray's is run beside the other tests of Ray."""

from __future__ import annotations

import pytest
from programs import FRAMEWORKS, TORCHRUN, run_framework

pytestmark = pytest.mark.slow  # starts programs, some of two processes

ALIKE = "surrogates on 2 ranks differ by 0.0\n"


def test_every_program_is_on_the_page() -> None:
    page = (FRAMEWORKS.parents[1] / "docs" / "howto" / "frameworks.md").read_text("utf-8")
    programs = sorted(path.name for path in FRAMEWORKS.glob("*.py"))
    assert programs == [
        *("accelerate_loop.py", "lightning_module.py", "plain_ddp.py", "ray_train.py"),
        *("skorch_classifier.py", "transformers_trainer.py"),
    ]
    assert all(f"examples/frameworks/{name}" in page for name in programs)


def test_two_processes_train_by_ddp() -> None:
    assert run_framework("plain_ddp", *TORCHRUN, least=0.85)


def test_two_processes_train_by_lightning_with_one_surrogate() -> None:
    pytest.importorskip("lightning")
    assert ALIKE in run_framework("lightning_module", least=0.85)


def test_two_processes_train_by_accelerate_in_bfloat16_with_one_surrogate() -> None:
    pytest.importorskip("accelerate")
    assert ALIKE in run_framework("accelerate_loop", *TORCHRUN, least=0.8)


def test_a_trainer_of_transformers_follows_a_metric() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")  # which its Trainer needs
    assert run_framework("transformers_trainer", least=0.5)


def test_a_network_of_skorch_follows_a_metric_in_a_search() -> None:
    pytest.importorskip("skorch")
    assert run_framework("skorch_classifier", least=0.85)
