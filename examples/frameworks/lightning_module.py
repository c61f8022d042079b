"""Lightning: the loss is a part of the module; two processes on the CPU."""

import warnings

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metricgrad import SurrogateLoss, get_metric

CROSS_ENTROPY_EPOCHS = 4


class Eights(lightning.LightningModule):
    """Finds the eights among pictures of digits, by average precision."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 1)
        )
        self.cross_entropy = nn.BCEWithLogitsLoss()
        self.loss = SurrogateLoss("average_precision", gather=True)

    def forward(self, images):
        return self.network(images)[:, 0]

    def training_step(self, batch, number):
        images, eights = batch
        scores = self(images)
        if self.current_epoch < CROSS_ENTROPY_EPOCHS:
            return self.cross_entropy(scores, eights)
        self.loss.refine(scores, eights)
        return self.loss(scores, eights)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.003)

    def on_train_end(self):
        ranks = self.all_gather(nn.utils.parameters_to_vector(self.loss.parameters()))
        self.print(f"surrogates on {len(ranks)} ranks differ by {float((ranks - ranks[0]).abs().max())}")


def main() -> None:
    warnings.filterwarnings("ignore", "The 'train_dataloader' does not have many workers")
    lightning.seed_everything(0, verbose=False)
    digits = load_digits()
    x, y = torch.tensor(digits.images).float() / 16, torch.tensor(digits.target == 8).float()
    trainer = lightning.Trainer(
        max_epochs=12,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Eights()
    trainer.fit(model, DataLoader(TensorDataset(x[:1200], y[:1200]), 100, shuffle=True))
    if trainer.is_global_zero:
        metric = get_metric("average_precision")
        with torch.no_grad():
            print(f"{metric.shown(metric(model(x[1200:]), y[1200:]))} on unseen rows")


if __name__ == "__main__":
    main()
