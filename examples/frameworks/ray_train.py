"""Ray Train: the same loop on two workers of a cluster."""

import tempfile

import ray
import ray.train.torch
import torch
from ray.train import RunConfig, ScalingConfig
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metricgrad import SurrogateLoss, get_metric


def work() -> str:
    """Train on one worker, together with the others, and return what the model reached."""
    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.images).float() / 16, torch.tensor(digits.target == 8).float()
    network = nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 1))
    model = ray.train.torch.prepare_model(network)
    loader = ray.train.torch.prepare_data_loader(DataLoader(TensorDataset(x[:1200], y[:1200]), 100, shuffle=True))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    cross_entropy = nn.BCEWithLogitsLoss()
    loss = SurrogateLoss("average_precision", gather=True)
    for epoch in range(12):
        for images, eights in loader:
            scores = model(images)[:, 0]
            optimizer.zero_grad()
            if epoch < 4:
                cross_entropy(scores, eights).backward()
            else:
                loss.refine(scores, eights)
                loss(scores, eights).backward()
            optimizer.step()
    metric = get_metric("average_precision")
    with torch.no_grad():
        return metric.shown(metric(network(x[1200:])[:, 0], y[1200:]))


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    trainer = ray.train.torch.TorchTrainer(
        work,
        scaling_config=ScalingConfig(num_workers=2),
        torch_config=ray.train.torch.TorchConfig(backend="gloo"),
        run_config=RunConfig(storage_path=tempfile.mkdtemp()),
    )
    print(f"{trainer.fit().return_value} on unseen rows")
    ray.shutdown()


if __name__ == "__main__":
    main()
