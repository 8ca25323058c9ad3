"""Prune by confident learning, then train anew."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import stepe
from stepe import InputError
from stepe.methods import Method
from stepe.training import prune as recipe
from stepe.training.prune import out_of_fold, prune

OPTIONS = {"epochs": 8, "batch_size": 16, "learning_rate": 0.1, "device": "cpu"}


def test_nobody_judges_what_it_was_trained_on_and_all_start_alike(monkeypatch, blobs, make_model, bits):
    trained, models = [], []

    def fit(model: nn.Module, data, labels, *, method: Method, seed: int, **options) -> SimpleNamespace:
        assert options == {"epochs": 8, "weight": "kept"}
        trained.append(method.kept)
        models.append(bits(model))
        return SimpleNamespace(ledger={"guess": method.kept[:, None].float().expand(-1, 3)})

    monkeypatch.setattr(recipe, "fit", fit)
    about_the_second = {"run": "folder", "resume": True, "truth": blobs.truth, "observers": ()}
    guess = out_of_fold(make_model, blobs.x, blobs.given, epochs=8, weight="kept", **about_the_second)
    assert guess.shape == (97, 3)
    assert not guess.any()  # whoever gave a row was not trained on it
    assert torch.stack(trained).sum(0).eq(4).all()
    assert len(set(models)) == 1


def test_what_cleanlab_would_prune_is_left_out_and_the_rest_trains(blobs, make_model):
    find_label_issues = pytest.importorskip("cleanlab.filter").find_label_issues
    result = prune(make_model, blobs.x, blobs.given, truth=blobs.truth, test=(blobs.x, blobs.clean), **OPTIONS)
    guess = out_of_fold(make_model, blobs.x, blobs.given, **OPTIONS)
    expected = find_label_issues(blobs.given.numpy(), guess.numpy(), n_jobs=1)
    assert result.ledger["dropped"].tolist() == expected.tolist()
    assert all(row["dropped"] == expected.sum() for row in result.history)
    assert result.summary["noise"]["dropped"]["f1"] > 0.85
    assert result.summary["test_accuracy"] > 0.95
    assert result.summary["seconds"] > sum(row["seconds"] for row in result.history)
    # Labels are ranked by those who never saw them.
    given = guess.gather(1, blobs.given[:, None]).squeeze(1)
    torch.testing.assert_close(result.ledger["score"], -given.log(), rtol=1e-4, atol=1e-5)
    assert set(result.issues["row"]) == set(torch.nonzero(result.ledger["dropped"]).flatten().tolist())


def test_checked_labels_stay(blobs, make_model):
    pruned = prune(make_model, (blobs.x, blobs.given), **OPTIONS).ledger["dropped"]
    trusted = torch.zeros(97, dtype=torch.bool)
    trusted[torch.nonzero(pruned)[:5]] = True
    again = prune(make_model, blobs.x, blobs.given, trusted=trusted, **OPTIONS).ledger["dropped"]
    assert torch.equal(again, pruned & ~trusted)


def test_what_cannot_be_split_or_done_at_once_is_refused(blobs, make_model):
    with pytest.raises(InputError, match="97 samples cannot be split into 98 folds"):
        prune(make_model, blobs.x, blobs.given, folds=98)
    with pytest.raises(InputError, match="folds is 1; it must be a whole number, at least 2"):
        prune(make_model, blobs.x, blobs.given, folds=1)
    with pytest.raises(InputError, match=r"'prune' trains twice, so fit\(\) alone cannot do it: use stepe.training"):
        stepe.fit(make_model(), blobs.x, blobs.given, method="prune", device="cpu")
