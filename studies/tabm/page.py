"""Write docs/tabm.md from results/tabm: python -m studies.tabm.page"""

from __future__ import annotations

from studies.pages import RESULTS as FOLDER

RESULTS = FOLDER / "tabm.jsonl"
METRICS = ("f1", "average_precision")
MLP, TABM, TREES = "mlp", "tabm", "LightGBM"
MODELS = (MLP, TABM, TREES)
BY_METRIC = "tabm, checkpoints by the metric"
BY_MEAN = "tabm, trained by the mean score"
ONE, PLAIN = "tabm, one member", "tabm, features as they are"
ABLATIONS = (BY_METRIC, BY_MEAN, ONE, PLAIN)
ABLATED = ("satimage", "page_blocks", "jm1", "us_crime", "wine_quality", "yeast", "ijcnn1", "covtype")
FIRST_SEED = 400


def main() -> None:
    pass
