"""Swift steps: those of a round of a fleet, from scores to Adam, compiled into one call where a compiler is at hand.

The mathematics is that of `ensemble.py`, written without side effects in `pure_steps.py`, so that `torch.func` can take
its gradient inside one graph; the memory is the same. It pays where there are very many small steps, as in the recipe
of the paper, for compiling takes a while. Without a compiler everything goes its usual way.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan_op
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from metricgrad.metrics.tasks import two_classes
from metricgrad.surrogate.network import meta_loss
from metricgrad.training.ensemble import Models, Surrogates
from metricgrad.training.pure_steps import Adam, PureModels, PureSurrogates

PAYS = 35_000
"""Steps of models and surrogates together from which on compiling is worth its time."""
Tensors = Sequence[Tensor]
Function = Callable[[Tensors, Tensors, Tensors], tuple[Tensors, Tensors]]
"""What moves, what does not, and what is given -> what has moved, and what came out."""
_log = logging.getLogger(__name__)


def packed(
    tensors: Sequence[Tensor], members: Sequence[Sequence[Tensor]], optimizer: torch.optim.Optimizer | None
) -> Adam:
    """Move tensors, `(members, ...)` each, into one, `(members, all)`, with what an optimizer keeps of them.

    They, each member's own, and the state of the optimizer become views of it.
    """
    learned = torch.cat([tensor.detach().flatten(1) for tensor in tensors], 1)
    whole = {"exp_avg": torch.zeros_like(learned), "exp_avg_sq": torch.zeros_like(learned)}
    step, place = torch.zeros(()), 0
    for number, tensor in enumerate(tensors):
        here = slice(place, place := place + tensor[0].numel())
        tensor.data = learned[:, here].view_as(tensor)
        for own, part in zip(members, tensor.detach(), strict=True):
            own[number].data = part
        if optimizer:
            state = optimizer.state[tensor]
            for key, moments in whole.items():
                state[key] = moments[:, here].view_as(tensor).copy_(state[key])
            step.copy_(state["step"])
            state["step"] = step  # one count for all
    return Adam(learned, whole["exp_avg"], whole["exp_avg_sq"], step)


class Swift:
    """The steps of a fleet of surrogates, all those of a round one compiled call.

    Parameters
    ----------
    models : Models
        Side by side, each following a surrogate of the one group.
    group : Surrogates
        One for each model, of a learned g; frozen, or with an optimizer that has its moments, as the models' has.
    optimizer : Optimizer
        Of the models.
    anchor, clip : float
        As the recipe says.
    """

    def __init__(
        self, models: Models, group: Surrogates, optimizer: torch.optim.Optimizer, anchor: float, clip: float | None
    ) -> None:
        self.models, self.surrogates, self.masks = PureModels(models), PureSurrogates(group), models.masks
        self.anchor, self.clip, self.relational = anchor, clip, group.losses[0].relational
        self.of_models = packed(models.learnable, [list(model.parameters()) for model in models.models], optimizer)
        self.of_surrogates = packed(
            [group.common[name] for name in group.moved],
            [list(loss.surrogate.parameters()) for loss in group.losses],
            group.optimizer,
        )
        self.optimizer = group.optimizer
        known = [self.of_surrogates.learned, *self.surrogates.running, *self.surrogates.stretch]
        self._follow = Graph(partial(scanned, self._follow_one), [*self.of_models, *self.models.running], known)
        self._refine = Graph(
            partial(scanned, self._refine_one),
            [*self.of_surrogates, *self.surrogates.running],
            self.surrogates.stretch,
        )
        self._probe = Graph(self._probe_all, self.models.running, [self.of_models.learned])

    @torch.no_grad()
    def follow(self, x: Tensor, y: Tensor, w: Tensor, rates: Sequence[float]) -> Tensor:
        """Take a step of all models on each set, `(steps, n, features)`, and return the losses: `(steps, members)`."""
        steps, n = y.shape
        torch._foreach_add_(self.models.counts, steps)
        masks = [mask.transpose(0, 1) for mask in self.masks(steps, n, x.dtype)]
        return self._follow(torch.tensor(rates, dtype=torch.float64), x, y, w, *masks)[0]

    def _follow_one(self, moving: Tensors, fixed: Tensors, given: Tensors) -> tuple[Tensors, Tensors]:
        """Take one step on one set."""
        state, running = Adam(*moving[:4]), moving[4:]
        learned, *known, low, high = fixed
        rate, x, y, w, *masks = given
        y, w = y.unsqueeze(0), w.unsqueeze(0)

        def objective(followed: Tensor) -> tuple[Tensor, tuple[Tensor, list[Tensor]]]:
            scores, stats = self.models(followed, x, masks)
            own = scores.unsqueeze(1)
            losses, _ = self.surrogates(learned, own, y, w, (low, high), known)
            told = two_classes(y, w).to(scores.dtype)
            losses = (losses * told).sum(-1) / told.sum().clamp(min=1)
            if self.anchor:
                rows = F.binary_cross_entropy_with_logits(own, y.expand_as(own), reduction="none") * w
                losses = losses + self.anchor * rows.sum((-1, -2)) / w.sum()
            return losses.sum(), (losses.detach(), stats)

        gradient, (losses, stats) = torch.func.grad(objective, has_aux=True)(state.learned)
        return [*state.moved(gradient, rate, self.clip), *remembered(running, stats, self.models.momenta)], [losses]

    @torch.no_grad()
    def probe(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Score sets in both modes, as `Models.probe` does."""
        torch._foreach_add_(self.models.counts, len(x))
        still, live = self._probe(x, *self.masks(len(x), x.shape[1], x.dtype))
        return still, live

    def _probe_all(self, moving: Tensors, fixed: Tensors, given: Tensors) -> tuple[Tensors, Tensors]:
        x, *masks = given
        still, live, after = self.models.probe(fixed[0], moving, x, masks)
        return after, [still, live]

    @torch.no_grad()
    def refine(self, scores: Tensor, y: Tensor, w: Tensor, true: Tensor, steps: int) -> list[Tensor]:
        """Share sets, `(members, sets, n)`, out over steps of all surrogates, and return the gaps met in each."""
        size = -(-len(y) // steps)
        if len(y) == size * steps:
            return list(self._refined(scores, y, w, true, steps))
        # Some sets were left out. That is rare, and not worth a graph for every number of steps.
        parts = zip(scores.split(size, 1), y.split(size), w.split(size), true.split(size, 1), strict=True)
        return [self._refined(*part, steps=1)[0] for part in parts]

    def _refined(self, scores: Tensor, y: Tensor, w: Tensor, true: Tensor, steps: int) -> Tensor:
        """Return the gaps, `(steps, members, sets a step)`."""
        assert self.optimizer is not None
        torch._foreach_add_(self.surrogates.counts, steps)
        rates = torch.full((steps,), self.optimizer.param_groups[0]["lr"], dtype=torch.float64)
        scores, true = (each.unflatten(1, (steps, -1)).transpose(0, 1) for each in (scores, true))
        y, w = (each.unflatten(0, (steps, -1)) for each in (y, w))
        return self._refine(rates, scores, y, w, true)[0]

    def _refine_one(self, moving: Tensors, fixed: Tensors, given: Tensors) -> tuple[Tensors, Tensors]:
        """Take one step on some sets."""
        state, running = Adam(*moving[:4]), moving[4:]
        rate, scores, y, w, true = given
        span = (fixed[1] - fixed[0]).unsqueeze(-1)

        def objective(learned: Tensor) -> tuple[Tensor, tuple[Tensor, list[Tensor]]]:
            smooth, stats = self.surrogates(learned, scores, y, w, fixed)
            distance = len(true) * meta_loss(smooth / span, true / span, self.relational)
            return distance, ((smooth - true).abs().detach(), stats)

        gradient, (gaps, stats) = torch.func.grad(objective, has_aux=True)(state.learned)
        return [*state.moved(gradient, rate, self.clip), *remembered(running, stats, self.surrogates.momenta)], [gaps]


def remembered(running: Tensors, seen: Tensors, momenta: Sequence[float]) -> list[Tensor]:
    """Return the running statistics of batch norms after a batch."""
    return [old.lerp(new, momentum) for old, new, momentum in zip(running, seen, momenta, strict=True)]


# ---- compiling -----------------------------------------------------------------------------------------------------


def scanned(one: Function, moving: Tensors, fixed: Tensors, given: Tensors) -> tuple[Tensors, Tensors]:
    """Take a step for each of what is given, `(steps, ...)`, as a loop that is compiled once; outs `(steps, ...)`."""
    count, steps = len(moving), len(moving) + len(given)

    def step(*flat: Tensor) -> list[Tensor]:
        after, outs = one(flat[:count], flat[steps:], flat[count:steps])
        return [*after, *outs]

    found = scan_op(step, list(moving), list(given), tuple(fixed))
    return found[:count], found[count:]


class Graph:
    """A function compiled once for each shape of what it is given.

    The call goes straight to the compiled code: nothing is checked, for what moves and what does not are the same every
    time. What moves is changed in place.
    """

    def __init__(self, function: Function, moving: Tensors, fixed: Tensors) -> None:
        self.function, self.count, self.state = function, len(moving), [*moving, *fixed]
        self.known: dict[tuple[torch.Size, ...], Callable[[list[Tensor]], Tensors]] = {}

    def __call__(self, *given: Tensor) -> Tensors:
        """Move what moves, and return what comes out."""
        form = tuple(tensor.shape for tensor in given)
        whole = [*self.state, *(tensor.contiguous() for tensor in given)]
        if form not in self.known:
            self.known[form] = compiled(self._flat, whole)
        return self.known[form](whole)

    def _flat(self, *flat: Tensor) -> Tensors:
        end = len(self.state)
        after, outs = self.function(flat[: self.count], flat[self.count : end], flat[end:])
        for old, new in zip(flat, after, strict=False):
            old.copy_(new)
        return tuple(outs)


def compiled(function: Callable[..., Tensors], inputs: Tensors) -> Callable[[list[Tensor]], Tensors]:
    """Return a function of tensors, which it may change, as compiled code for tensors just like these.

    `torch.compile` would do the same, but looks at every tensor again at every call, which takes as long as a step.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says of itself while it is imported
        from torch._guards import TracingContext, detect_fake_mode, tracing
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.decomposition import select_decomp_table
    pure = torch.func.functionalize(function)  # formulas of gradients work in place, which the compiler must not see
    graph = make_fx(pure, select_decomp_table(), tracing_mode="fake")(*inputs)
    like = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    with tracing(TracingContext(detect_fake_mode(like))), config.patch(compile_threads=1, cpp_wrapper=True):
        return compile_fx_inner(graph, like)


def can_compile() -> bool:
    """Say, quietly, whether this machine can compile: by a function that is hardly one."""
    try:
        compiled(lambda one: (one.neg(),), [torch.ones(2)])([torch.ones(2)])
    except Exception as error:  # whatever a compiler that is missing or broken raises
        _log.info("steps are not compiled here: %s", (str(error) or type(error).__name__).splitlines()[0])
        return False
    return True
