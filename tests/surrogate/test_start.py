from __future__ import annotations

from pathlib import Path

import pytest
import torch
from score_sets import random_sets

from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import Surrogate
from metricgrad.surrogate.pretrained import load_universal, save_surrogate


def test_a_file_of_another_kind_is_no_start(tmp_path: Path) -> None:
    (tmp_path / "odd.safetensors").write_text("no surrogate")
    with pytest.raises(ValueError, match=r"odd.safetensors: expected a surrogate saved by metricgrad"):
        SurrogateLoss("auc", tmp_path / "odd.safetensors")


def test_a_loss_starts_from_the_bundle_a_file_a_surrogate_or_nothing(tmp_path: Path) -> None:
    scores, targets = random_sets(4, 40)
    universal = SurrogateLoss("auc")
    save_surrogate(universal.surrogate, tmp_path / "it.safetensors")
    for start in (tmp_path / "it.safetensors", str(tmp_path / "it.safetensors"), load_universal("auc")):
        assert torch.equal(SurrogateLoss("auc", start)(scores, targets), universal(scores, targets))
    torch.manual_seed(0)
    scratch = SurrogateLoss("auc", "scratch")
    torch.manual_seed(0)
    assert torch.equal(SurrogateLoss("auc", "scratch")(scores, targets), scratch(scores, targets))
    assert not torch.equal(SurrogateLoss("auc", "scratch")(scores, targets), scratch(scores, targets))
    given = Surrogate()
    assert SurrogateLoss("auc", given).surrogate is given
