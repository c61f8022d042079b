"""Hugging Face transformers: a Trainer whose loss is a metric; the model is small and made here."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from metricgrad import SurrogateLoss, get_metric


class MetricTrainer(Trainer):
    """A Trainer for a classifier of two classes: cross-entropy at first, then a metric."""

    def __init__(self, *arguments, metric, cross_entropy_steps, **named):
        super().__init__(*arguments, **named)
        self.cross_entropy_steps = cross_entropy_steps
        self.metric_loss = SurrogateLoss(metric).to(self.args.device)
        self.model_accepts_loss_kwargs = False  # the loss is a mean, so accumulated steps are to be averaged

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(**inputs)
        scores = outputs.logits[:, 1] - outputs.logits[:, 0]
        value = outputs.loss
        if self.state.global_step >= self.cross_entropy_steps:
            if model.training:
                self.metric_loss.refine(scores, labels.float())
            value = self.metric_loss(scores, labels.float())
        return (value, outputs) if return_outputs else value


def sentences(rows, generator):
    """Made up: 12 words, of which the first few matter together."""
    words = torch.randint(5, 60, (rows, 12), generator=generator)
    positive = (words < 12).sum(1) + torch.randn(rows, generator=generator) > 3
    return [{"input_ids": row, "labels": int(label)} for row, label in zip(words, positive, strict=True)]


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    train, test = sentences(4000, generator), sentences(2000, generator)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, num_labels=2
    )
    model = BertForSequenceClassification(config)
    settings = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=200,  # rows of a set
        num_train_epochs=10,
        learning_rate=0.003,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = MetricTrainer(model, settings, train_dataset=train, metric="average_precision", cross_entropy_steps=100)
    trainer.train()
    logits = torch.tensor(trainer.predict(test).predictions)
    labels = torch.tensor([row["labels"] for row in test])
    metric = get_metric("average_precision")
    print(f"{metric.shown(metric(logits[:, 1] - logits[:, 0], labels.float()))} on unseen rows")


if __name__ == "__main__":
    main()
