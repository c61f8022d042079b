"""Accelerate: a loop of one's own for one process or many; on the CPU, `torchrun --nproc-per-node 2` starts two."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metricgrad import SurrogateLoss, get_metric


def main() -> None:
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.images).float() / 16, torch.tensor(digits.target == 8).float()

    network = nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 1))
    optimizer = torch.optim.Adam(network.parameters(), 0.003)
    loader = DataLoader(TensorDataset(x[:1200], y[:1200]), 100, shuffle=True)
    model, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    cross_entropy = nn.BCEWithLogitsLoss()
    loss = SurrogateLoss("average_precision", gather=True).to(accelerator.device)
    accelerator.register_for_checkpointing(loss)

    for epoch in range(20):
        for images, eights in loader:
            with accelerator.accumulate(model):
                scores = model(images)[:, 0]
                if epoch < 8:
                    value = cross_entropy(scores, eights)
                else:
                    loss.refine(scores, eights)
                    value = loss(scores, eights)
                accelerator.backward(value)
                optimizer.step()
                optimizer.zero_grad()

    ranks = accelerator.gather(nn.utils.parameters_to_vector(loss.parameters()).unsqueeze(0))
    accelerator.print(f"surrogates on {len(ranks)} ranks differ by {float((ranks - ranks[0]).abs().max())}")
    metric = get_metric("average_precision")
    with torch.no_grad():
        scores = model(x[1200:])[:, 0].float()
    accelerator.print(f"{metric.shown(metric(scores, y[1200:]))} on unseen rows")
    accelerator.end_training()


if __name__ == "__main__":
    main()
