"""A text classifier of transformers, trained by its Trainer, measured on the way, calibrated after.

    python examples/trainer_callback.py

A tiny BERT with random weights learns which of three words a sentence has most of; one sentence in
five has a wrong label. Nothing is downloaded.
"""

import tempfile

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from maccal.integrations.transformers import CalibrationCallback, compute_metrics

WORDS, LENGTH, CLASSES = 3, 12, 3


class Sentences(Dataset[dict[str, Tensor]]):
    """Sentences of three words, and the one that is most often in them; some mislabelled."""

    def __init__(self, rows: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(1, WORDS + 1, (rows, LENGTH), generator=generator)
        counts = torch.stack([(self.words == word).sum(1) for word in (1, 2, 3)], 1)
        noise = torch.randint(CLASSES, (rows,), generator=generator)
        wrong = torch.rand(rows, generator=generator) < 0.2
        self.labels = torch.where(wrong, noise, counts.argmax(1))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        words = self.words[row]
        return {
            "input_ids": words,
            "attention_mask": torch.ones_like(words),
            "labels": self.labels[row],
        }


if __name__ == "__main__":
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=5,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        num_labels=CLASSES,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForSequenceClassification(config)
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        num_train_epochs=60,
        per_device_train_batch_size=50,
        per_device_eval_batch_size=500,
        learning_rate=3e-3,
        eval_strategy="epoch",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=0,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=Sentences(200, 1),
        eval_dataset=Sentences(1000, 2),
        compute_metrics=compute_metrics,
    )
    held_out = trainer.get_eval_dataloader(Sentences(1000, 3))
    trainer.add_callback(CalibrationCallback(val=held_out))
    trainer.train()  # evaluates after every epoch, and calibrates after the last evaluation
    evaluations = [line for line in trainer.state.log_history if "eval_ece" in line]
    for name, numbers in (("as trained", evaluations[-1]), ("calibrated", trainer.evaluate())):
        print(f"{name}: accuracy {numbers['eval_accuracy']:.1%}, ECE {numbers['eval_ece']:.1%}")
    print(model.classifier.feedback["words"])
