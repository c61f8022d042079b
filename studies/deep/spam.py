"""Spam among short messages: an embedding bag of hashed words and groups of three letters, and a hidden layer."""

from __future__ import annotations

import os
import re
import zlib
from functools import lru_cache
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from metricgrad import get_metric
from metricgrad.metrics.thresholds import best_threshold
from studies.deep.losses import RIVALS, Batch, learned
from studies.deep.problem import Plan, Stratified, Values

METRICS = ("recall_at_precision(0.99)", "average_precision")
BUCKETS = 2**13
TRAIN, VALIDATION = 0.5, 0.2
SET_SIZE, POSITIVES = 300, 75


def tokens(text: str) -> list[int]:
    """Return hashed words and groups of three letters of a message, 1 and above; 0 is padding."""
    words = re.findall(r"[a-z]+|[0-9]+|[^a-z0-9\s]", text.lower())
    letters = f" {' '.join(words)} "
    groups = [letters[place : place + 3] for place in range(len(letters) - 2)]
    return [1 + zlib.crc32(token.encode()) % (BUCKETS - 1) for token in (*(f"w {word}" for word in words), *groups)]


@lru_cache(maxsize=1)
def messages() -> tuple[Tensor, Tensor]:
    """Return tokens `(rows, longest)` and whether each message is spam; a repeated text is kept once."""
    frame = pd.read_parquet(Path(os.environ["METRICGRAD_DATA"]) / "extra" / "sms_spam.parquet")
    frame = frame.drop_duplicates("text")
    lists = [torch.tensor(tokens(text)) for text in frame["text"]]
    return nn.utils.rnn.pad_sequence(lists, batch_first=True), torch.tensor(frame["target"].to_numpy()).float()


class Bag(nn.Module):
    """Mean of the embeddings of the tokens of a message: `(k, longest)` -> `(k, width)`; 0 is padding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(BUCKETS, width, mode="mean")

    def forward(self, rows: Tensor) -> Tensor:
        """Return the means; without the padding, a step takes a third of the time."""
        present = rows > 0
        ends = present.sum(1).cumsum(0)
        means: Tensor = self.bag(rows[present], torch.cat((ends.new_zeros(1), ends[:-1])))
        return means


class Spam:
    """One split: half of either class for training, a fifth for validation, the others are test rows."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        x, y = messages()
        generator = torch.Generator().manual_seed(seed)
        parts: list[list[Tensor]] = [[], [], []]
        for label in (1, 0):
            rows = torch.nonzero(y == label)[:, 0]
            rows = rows[torch.randperm(len(rows), generator=generator)]
            first, second = int(TRAIN * len(rows)), int((TRAIN + VALIDATION) * len(rows))
            for part, some in zip(parts, rows.tensor_split((first, second)), strict=True):
                part.append(some)
        (self.x, self.y), self.validation, self.test = ((x[rows], y[rows]) for rows in map(torch.cat, parts))
        self.sets = Stratified(self.y, SET_SIZE, POSITIVES)

    def network(self) -> nn.Module:
        """Return the mean of the embeddings of a message, and a hidden layer."""
        torch.manual_seed(self.seed)
        return nn.Sequential(Bag(16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))

    def batch(self, generator: torch.Generator) -> Batch:
        """Draw one stratified set."""
        rows, targets, weights = self.sets.draw(generator)
        return Batch(self.x[rows], targets[None], weights[None], rows)

    def scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the scores of the set, `(1, n)`."""
        scores: Tensor = model(batch.inputs)[None]
        return scores

    @torch.no_grad()
    def validated(self, model: nn.Module) -> Values:
        """Return every metric on the validation rows."""
        return values(model(self.validation[0]), self.validation[1])

    @torch.no_grad()
    def tested(self, model: nn.Module) -> Values:
        """Return every metric on the test rows, and precision and recall there at the threshold of validation rows."""
        held_out, scores = model(self.validation[0]).double(), model(self.test[0]).double()
        cut = best_threshold(METRICS[0], held_out, self.validation[1])
        called, y = scores >= cut, self.test[1] == 1
        found = float((called & y).sum())
        at_cut = {"recall": found / float(y.sum()), "precision": found / max(float(called.sum()), 1.0)}
        return {**values(scores, self.test[1]), **{f"{METRICS[0]}:{name}": value for name, value in at_cut.items()}}

    @torch.no_grad()
    def held_out(self, model: nn.Module) -> tuple[Tensor, Batch]:
        """Return 64 stratified sets of validation rows."""
        x, y = self.validation
        generator = torch.Generator().manual_seed(self.seed)
        drawn = [Stratified(y, SET_SIZE, POSITIVES).draw(generator) for _ in range(64)]
        rows, targets, weights = (torch.stack(each) for each in zip(*drawn, strict=True))
        return model(x)[rows], Batch(x[:1], targets, weights)

    def reach(self, model: nn.Module, objective: object) -> Values:
        """Return nothing: rows have no places."""
        return {}


def values(scores: Tensor, targets: Tensor) -> Values:
    """Return every metric of some rows, in the form people know."""
    metrics = map(get_metric, METRICS)
    return {metric.name: float(metric.value(metric(scores.double(), targets))) for metric in metrics}


PLAN = Plan(
    Spam,
    {
        **RIVALS,
        "surrogate-recall": lambda problem, seed: learned("recall_at_precision(0.99)", seed),
        "surrogate-ap": lambda problem, seed: learned("average_precision", seed),
    },
    early=200,
    late=800,
    steps=150,
    warmup_rate=3e-3,
    rates=(1e-3, 3e-3, 1e-2),
)
