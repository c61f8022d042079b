from __future__ import annotations

import json

import pytest

from metricgrad.surrogate.config import CONFIGS, SurrogateConfig


@pytest.mark.parametrize("config", [*CONFIGS.values(), SurrogateConfig(h=(5,), view="labels")])
def test_a_config_survives_json(config: SurrogateConfig) -> None:
    assert SurrogateConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config


def test_a_config_of_the_first_version_is_read() -> None:
    assert SurrogateConfig.from_dict({"teeth": 32, "h": [8, 8]}) == SurrogateConfig(thresholds=32, h=(8, 8))
