"""A network's training served by a judge that is no network: handwritten digits, three in ten labels wrong.

Before each epoch a logistic regression in five folds says what the digits are, each by the others alone.

python examples/judge_loop.py
"""

from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from torch import nn
from torch.utils.data import TensorDataset

import stepe
from stepe.data.noise import symmetric

EPOCHS, BATCH = 20, 64


def main() -> None:
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x = (x / 16).float()
    planted = symmetric(x[300:].numpy(), y[300:].numpy(), classes=10, rate=0.3, seed=0)
    train, test = TensorDataset(x[300:], torch.tensor(planted.labels)), (x[:300], y[:300])

    def judge(weights: Any, targets: Any) -> Any:
        """What a digit is, by digits of other folds; those that were dropped weigh nothing."""
        classifier = LogisticRegression(C=0.1, max_iter=200)
        options = {"cv": 5, "method": "predict_proba", "params": {"sample_weight": weights}}
        return cross_val_predict(classifier, x[300:].numpy(), targets.argmax(1), **options)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    cleaner = stepe.StepE(train, epochs=EPOCHS, rho_max=0.35, judge=judge)
    loader = cleaner.loader(batch_size=BATCH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for _ in cleaner.epochs():
        for inputs, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()

    model.eval()
    accuracy = float((model(test[0]).argmax(1) == test[1]).float().mean())
    issues = cleaner.issues
    print(f"test accuracy {accuracy:.1%}")
    print(f"{len(issues)} labels look wrong, and {planted.noisy[issues['row']].mean():.1%} of them are")


if __name__ == "__main__":
    main()
