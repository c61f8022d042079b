"""The average of models that were trained on different folds, and a mixture of models of any kind, as one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import cast

import torch
from torch import Tensor, nn

from metricgrad.training.networks import MIXTURE, Average, Scorer
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


def mixed(models: Sequence[Scorer], factors: Sequence[float]) -> Scorer:
    """Return the sum of the scores of models of any kind, each times a factor above 0, as one model.

    Models of one kind become one of that kind, of networks the average of all of them; a mixture holds one of every
    kind.
    """
    first, pairs = models[0], list(zip(models, factors, strict=True))
    names = dict.fromkeys(model.name for model in models)
    parts = [_summed_kind([pair for pair in pairs if pair[0].name == name]) for name in names]
    if len(parts) == 1:
        return parts[0]
    scale = torch.full((len(parts), first.outputs or 1), 1 / len(parts), dtype=torch.float64)  # of a mean, the sum
    named = MIXTURE if all(part.name for part in parts) else None
    return Scorer(Average(parts, torch.zeros_like(scale), scale), named, first.features, first.outputs)


def _summed_kind(pairs: Sequence[tuple[Scorer, float]]) -> Scorer:
    """Return the sum of the scores of models of one kind, each times a factor; averages count by what they are of."""
    members: list[Scorer] = []
    centres, scales = [], []
    for model, factor in pairs:
        own, centre, scale = _members(model)
        members += own
        centres.append(centre)
        scales.append(scale * len(own) / factor)
    return averaged(members, torch.cat(centres), torch.cat(scales) / len(members))


def _members(model: Scorer) -> tuple[list[Scorer], Tensor, Tensor]:
    """Return the models that a model is the average of, perhaps itself alone, with their centres and scales."""
    if model.folds > 1 and isinstance(model.body, Average):
        return list(cast("Sequence[Scorer]", model.body.models)), model.body.centre, model.body.scale
    shape = (1, model.outputs or 1)
    return [model], torch.zeros(shape, dtype=torch.float64), torch.ones(shape, dtype=torch.float64)


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
