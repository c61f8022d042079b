"""The average of models that were trained on different folds, as one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from metricgrad.training.networks import Average, Scorer
from metricgrad.training.trees import Trees, summed


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
