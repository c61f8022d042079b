"""Export: the network of a saved model as a program of torch, for places where metricgrad is not installed."""

from __future__ import annotations

import io
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from metricgrad.reporting.atomic import write_whole
from metricgrad.tabular.table_classifier import TableClassifier

NAMES = "features.json"
"""The file inside a program that names its features, in their order."""


class Shifted(nn.Module):
    """A network with the scale before it and the threshold after it: `(rows, features)` -> `(rows,)`."""

    centre: Tensor
    scale: Tensor

    def __init__(self, body: nn.Module, centre: Tensor, scale: Tensor, threshold: float) -> None:
        super().__init__()
        self.body, self.threshold = body, threshold
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)

    def forward(self, features: Tensor) -> Tensor:
        """Score prepared features; at least 0 is positive."""
        scaled = ((features.double() - self.centre) / self.scale).float().double()
        scores: Tensor = self.body(scaled)[:, 0] - self.threshold
        return scores


def export(model: TableClassifier, path: str | Path) -> Path:
    """Write the network as a `torch.export` program that takes the features of `model.pipeline_[0].transform(frame)`.

    Parameters
    ----------
    model : TableClassifier
        Fitted.
    path : path
        A `.pt2` file, which `torch.export.load` reads; `features.json` inside it names the features.

    Returns
    -------
    Path
        The file.
    """
    inner, target = model.model_, Path(path)
    names = [str(name) for name in model.pipeline_[0].get_feature_names_out()]
    centre, scale = torch.from_numpy(inner.centre_), torch.from_numpy(inner.scale_)
    module = Shifted(inner.network_.body, centre, scale, float(inner.threshold_)).eval()
    example = torch.zeros(2, len(names), dtype=torch.float32)
    program = torch.export.export(module, (example,), dynamic_shapes={"features": {0: torch.export.Dim("rows", min=1)}})
    written = io.BytesIO()
    torch.export.save(program, written, extra_files={NAMES: json.dumps(names)})
    write_whole(target, written.getvalue())
    return target
