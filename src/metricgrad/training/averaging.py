"""The average of models that were trained on different folds, and a mixture of models of any kind, as one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from metricgrad.training.networks import LINEAR_MODELS, MIXTURE, TREES, Average, Scorer
from metricgrad.training.trees import Trees, summed

SUMMABLE = (*LINEAR_MODELS, TREES)
"""Names of models whose sum is a model of that kind."""


def averaged(models: Sequence[Scorer], centre: Tensor, scale: Tensor) -> Scorer:
    """Return the mean of standardised scores of models of one kind, of models known by name in double precision.

    Of linear models, of additive ones with the same knots and of trees it is one of the same kind; of networks it
    holds all of them. `centre` and `scale`, `(k, outputs)`, are as in `Average`.
    """
    first = models[0]
    centre, scale = centre.double(), scale.double()
    factor = 1 / (len(models) * scale)
    if isinstance(first.body, Trees):
        bodies = [model.body for model in models if isinstance(model.body, Trees)]
        body: nn.Module = summed(bodies, factor[:, 0].tolist(), -float((centre * factor).sum()))
        return Scorer(body, first.name, first.features, first.outputs)
    heads = [_linear_part(model) for model in models]
    if all(head is not None for head in heads):
        _check_same_columns(models)
        mean = deepcopy(first).double()
        with torch.no_grad():
            head = _linear_part(mean)
            assert head is not None
            head.weight.copy_(sum(f.unsqueeze(-1) * h.weight for f, h in zip(factor, heads, strict=True) if h))
            head.bias.copy_(sum(f * (h.bias - c) for f, c, h in zip(factor, centre, heads, strict=True) if h))
        return mean
    # A module of the user's may need the precision that it was trained in.
    copies = [deepcopy(model).double() if model.name else deepcopy(model) for model in models]
    return Scorer(Average(copies, centre, scale), first.name, first.features, first.outputs, folds=len(models))


def mixed(models: Sequence[Scorer], factors: Sequence[float]) -> Scorer:
    """Return the sum of the scores of models of any kind, each times a factor above 0, as one model.

    Linear models, additive ones and trees are added up, to one of each kind; where there is no other, that is all.
    """
    first = models[0]
    pairs = list(zip(models, factors, strict=True))
    parts = [(model, factor) for model, factor in pairs if model.name not in SUMMABLE]
    for name in SUMMABLE:
        alike = [pair for pair in pairs if pair[0].name == name]
        if alike:
            scale = _scale_for([factor for _, factor in alike], first.outputs)
            parts.append((averaged([model for model, _ in alike], torch.zeros_like(scale), scale), 1.0))
    if len(parts) == 1 and parts[0][1] == 1.0:
        return parts[0][0]
    scale = _scale_for([factor for _, factor in parts], first.outputs)
    named = MIXTURE if all(model.name for model, _ in parts) else None
    body = Average([model for model, _ in parts], torch.zeros_like(scale), scale)
    return Scorer(body, named, first.features, first.outputs)


def _scale_for(factors: Sequence[float], outputs: int | None) -> Tensor:
    """Return by what scores are divided so that their mean is their sum with some factors: `(k, outputs)`."""
    scale = 1 / (len(factors) * torch.tensor(factors, dtype=torch.float64))
    return scale.unsqueeze(1).expand(-1, outputs or 1).clone()


def _linear_part(model: Scorer) -> nn.Linear | None:
    """Return the layer in which a linear or additive model is linear; None of other models."""
    head = model.body if model.additive is None else model.additive.head
    return head if isinstance(head, nn.Linear) else None


def _check_same_columns(models: Sequence[Scorer]) -> None:
    """Raise an error unless additive models are linear in the same columns."""
    first, *others = [None if model.additive is None else model.additive.encoding.state_dict() for model in models]
    for other in others:
        if (first is None) != (other is None) or (
            first is not None and other is not None and not _same_tensors(first, other)
        ):
            raise ValueError("models: expected additive models with the same knots, got different ones")


def _same_tensors(first: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return first.keys() == other.keys() and all(torch.equal(first[name], other[name]) for name in first)
