from studies.pages import RESULTS as FOLDER

RESULTS = FOLDER / "readable.jsonl"
METRICS = ("f1", "average_precision", "recall_at_precision(0.9)", "ks", "partial_auc(0.05)")
FIRST_SEED = 800


def main():
    pass
