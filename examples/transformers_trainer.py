"""Step-E in transformers: another Trainer, the same arguments.

The model is tiny and starts from random weights, and the texts are made up, so that nothing has to be downloaded.

    pip install "stepe[transformers]"
    python examples/transformers_trainer.py
"""

import random
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, set_seed

from stepe.integrations.transformers import StepETrainer

WORDS = {
    "sports": ["goal", "team", "match", "coach", "league"],
    "cooking": ["salt", "oven", "dough", "simmer", "spice"],
    "travel": ["flight", "hotel", "map", "border", "luggage"],
}
FILLERS = ["the", "a", "on", "we", "then", "very", "it", "was", "some", "of"]
VOCABULARY = {word: i for i, word in enumerate([*FILLERS, *(w for words in WORDS.values() for w in words)], 1)}
NAMES = list(WORDS)


class Texts(Dataset):
    """Ten words a text, three of them telling; some labels are wrong."""

    def __init__(self, n: int, rate: float, seed: int):
        draw = random.Random(seed)
        self.clean = [draw.randrange(3) for _ in range(n)]
        texts = [[*draw.choices(WORDS[NAMES[c]], k=3), *draw.choices(FILLERS, k=7)] for c in self.clean]
        self.ids = [torch.tensor([VOCABULARY[word] for word in draw.sample(text, 10)]) for text in texts]
        self.labels = [(c + draw.choice([1, 2])) % 3 if draw.random() < rate else c for c in self.clean]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict:
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


def accuracy(prediction) -> dict:
    return {"accuracy": float((np.argmax(prediction.predictions, 1) == prediction.label_ids).mean())}


def main() -> None:
    set_seed(0)
    train, test = Texts(600, rate=0.3, seed=1), Texts(300, rate=0.0, seed=2)
    config = BertConfig(
        vocab_size=len(VOCABULARY) + 1,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=3,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=12, per_device_train_batch_size=32, learning_rate=3e-3, save_strategy="no",
            eval_strategy="epoch", report_to=[], use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = StepETrainer(
            model=BertForSequenceClassification(config),
            args=arguments,
            train_dataset=train,
            eval_dataset=test,
            compute_metrics=accuracy,
            rho_max=0.35,
            stepe={"class_names": NAMES},
        )
        trainer.train()
        found = trainer.evaluate()["eval_accuracy"]

    issues = trainer.issues
    right = np.mean([train.labels[row] != train.clean[row] for row in issues["row"]])
    print(f"test accuracy {found:.1%}")
    print(f"{len(issues)} labels look wrong, and {right:.1%} of them are")
    print(issues[["row", "given_label", "suggested_label", "suspicion"]].head(3).to_string(index=False))


if __name__ == "__main__":
    main()
