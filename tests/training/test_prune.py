"""Prune by confident learning, then train anew."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import stepe
from stepe import InputError, Result
from stepe.methods import Method, Pruned
from stepe.training.prune import Train, out_of_fold, prune


@pytest.fixture
def training(blobs, make_model: Callable[[], nn.Module]) -> Callable[..., Train]:
    """Options -> what trains a new model by a method."""
    shared: dict[str, Any] = {"epochs": 8, "batch_size": 16, "learning_rate": 0.1, "device": "cpu"}

    def of(**options: Any) -> Train:
        def train(method: Method) -> Result:
            return stepe.fit(make_model(), blobs.x, blobs.given, method=method, **shared | options)

        return train

    return of


def test_nobody_judges_what_it_was_trained_on(blobs):
    trained = []

    def train(method: Method) -> SimpleNamespace:
        trained.append(method.kept)
        return SimpleNamespace(ledger={"guess": method.kept[:, None].float().expand(-1, 3)})

    guess = out_of_fold(train, blobs.given)
    assert guess.shape == (97, 3)
    assert not guess.any()  # whoever gave a row was not trained on it
    assert torch.stack(trained).sum(0).eq(4).all()


def test_judges_train_as_they_are_told_and_the_last_model_as_it_is(blobs, training):
    judged, trained = [], []
    judge, train = training(), training(test=(blobs.x, blobs.clean))
    result = prune(
        lambda method: (trained.append(method.name), train(method))[1],
        blobs.given,
        judge=lambda method: (judged.append(method.name), judge(method))[1],
        method=Pruned(folds=3),
    )
    assert (judged, trained) == (["part"] * 3, ["prune"])
    assert result.summary.test_accuracy is not None


def test_what_cleanlab_would_prune_is_left_out_and_the_rest_trains(blobs, training):
    find_label_issues = pytest.importorskip("cleanlab.filter").find_label_issues
    result = prune(training(truth=blobs.truth, test=(blobs.x, blobs.clean)), blobs.given, judge=training())
    guess = out_of_fold(training(), blobs.given)
    expected = find_label_issues(blobs.given.numpy(), guess.numpy(), n_jobs=1)
    assert result.ledger["dropped"].tolist() == expected.tolist()
    assert all(row["dropped"] == expected.sum() for row in result.history)
    assert result.summary.noise.dropped.f1 > 0.85
    assert result.summary.test_accuracy > 0.95
    assert result.summary.seconds > sum(row["seconds"] for row in result.history)
    # Labels are ranked by those who never saw them.
    given = guess.gather(1, blobs.given[:, None]).squeeze(1)
    torch.testing.assert_close(result.ledger["score"], -given.log(), rtol=1e-4, atol=1e-5)
    assert set(result.issues["row"]) == set(torch.nonzero(result.ledger["dropped"]).flatten().tolist())


def test_checked_labels_stay(blobs, training):
    pruned = prune(training(), blobs.given).ledger["dropped"]
    trusted = torch.zeros(97, dtype=torch.bool)
    trusted[torch.nonzero(pruned)[:5]] = True
    again = prune(training(trusted=trusted), blobs.given).ledger["dropped"]
    assert torch.equal(again, pruned & ~trusted)


def test_what_cannot_be_split_or_done_at_once_is_refused(blobs, make_model, training):
    with pytest.raises(InputError, match="97 samples cannot be split into 98 folds"):
        prune(training(), blobs.given, method=Pruned(folds=98))
    with pytest.raises(InputError, match="folds is 1; it must be a whole number, at least 2"):
        prune(training(), blobs.given, method=Pruned(folds=1))
    with pytest.raises(InputError, match=r"'prune' trains twice, so fit\(\) alone cannot do it: use stepe.training"):
        stepe.fit(make_model(), blobs.x, blobs.given, method="prune", device="cpu")
