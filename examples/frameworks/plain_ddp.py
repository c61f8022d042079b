"""DistributedDataParallel: `torchrun --nproc-per-node 2 plain_ddp.py`."""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from metricgrad import SurrogateLoss, get_metric

dist.init_process_group("gloo")  # "nccl" on GPUs
torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.images).float() / 16, torch.tensor(digits.target == 8).float()
train, test = TensorDataset(x[:1200], y[:1200]), (x[1200:], y[1200:])

network = nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 1))
model = DistributedDataParallel(network)
optimizer = torch.optim.Adam(model.parameters(), 0.003)
cross_entropy = nn.BCEWithLogitsLoss()
loss = SurrogateLoss("average_precision", gather=True)  # a set is the batches of all ranks together

sampler = DistributedSampler(train)
for epoch in range(12):
    sampler.set_epoch(epoch)
    for images, eights in DataLoader(train, 100, sampler=sampler):
        scores = model(images)[:, 0]
        optimizer.zero_grad()
        if epoch < 4:
            cross_entropy(scores, eights).backward()
        else:
            loss.refine(scores, eights)
            loss(scores, eights).backward()
        optimizer.step()

if dist.get_rank() == 0:
    metric = get_metric("average_precision")
    with torch.no_grad():
        print(f"{metric.shown(metric(network(test[0])[:, 0], test[1]))} on unseen rows")
dist.barrier()  # a rank that leaves early may take down its threads while others still need them
dist.destroy_process_group()
