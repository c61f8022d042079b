"""Readings of the paper's recipe: what the paper leaves open, as data.

A reading is one way to fill in what the text does not say; the constants are what it does say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SIZE, MODEL_STEPS, SURROGATE_STEPS, CLIP, DROPOUT, SLOPE = 100, 3, 10, 1e-5, 0.2, 0.2


@dataclass(frozen=True)
class Reading:
    """What the paper's text leaves open; the defaults are the recipe `paper` of this package.

    `adam` places epsilon: beside the corrected root as in torch, beside the uncorrected one as in TensorFlow 1, or
    inside it. `clip` is the norm of all gradients of a network, of each variable, or none. `follows` is the mode of
    the surrogate's batch norm while the model follows it. `true_on` and `shown` are the scores the metric and the
    surrogate get while refining: clean (evaluation mode) or noisy (dropout). `norm` are the defaults of batch norm.
    """

    name: str
    adam: str = "torch"
    epsilon: float = 1e-8
    clip: str = "all"
    follows: str = "eval"
    norm: str = "torch"
    true_on: str = "clean"
    shown: str = "noisy"
    weights: str = "torch"
    rate: float = 1e-5


OURS = Reading("ours")
TENSORFLOW = Reading("TensorFlow's defaults", adam="tensorflow", norm="tensorflow", weights="glorot")
TRAINING_MODE = replace(OURS, name="surrogate's batch norm in training mode", follows="train")
FASTER = replace(OURS, name="rates of 1e-4", rate=1e-4)
TENSORFLOW_FASTER = replace(TENSORFLOW, name="TensorFlow's defaults, rates of 1e-4", rate=1e-4)
ALL_AT_ONCE = replace(
    TENSORFLOW, name="TensorFlow's defaults, training mode, rates of 1e-4", follows="train", clip="each", rate=1e-4
)
GRIDS = {
    "wide": (
        OURS,
        replace(OURS, name="epsilon beside the uncorrected root", adam="tensorflow"),
        replace(OURS, name="epsilon inside the root", adam="inside"),
        replace(OURS, name="epsilon 1e-7", epsilon=1e-7),
        replace(OURS, name="clipped by variable", clip="each"),
        replace(OURS, name="not clipped", clip="none"),
        TRAINING_MODE,
        replace(OURS, name="TensorFlow's batch norm", norm="tensorflow"),
        replace(OURS, name="true loss of noisy scores", true_on="noisy"),
        replace(OURS, name="surrogate sees clean scores", shown="clean"),
        replace(OURS, name="Glorot's initial weights", weights="glorot"),
        FASTER,
        TENSORFLOW,
        replace(TENSORFLOW, name="TensorFlow's defaults, clipped by variable", clip="each"),
        TENSORFLOW_FASTER,
        ALL_AT_ONCE,
    ),
    "narrow": (
        FASTER,
        replace(TRAINING_MODE, name="training mode, rates of 1e-4", rate=1e-4),
        ALL_AT_ONCE,
    ),
    "chosen": (OURS, TRAINING_MODE, TENSORFLOW_FASTER, ALL_AT_ONCE),
}
"""Every candidate alone and some together; those that this left, on another seed; those that mattered, elsewhere."""
