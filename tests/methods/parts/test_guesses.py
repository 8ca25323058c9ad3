"""What networks' guesses say of the labels: the running guess of a ledger, and the one belief."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stepe.beliefs.believe import believe
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.task import Task
from stepe.methods.defaults import CAP, DOUBTED, rho_max_by
from stepe.methods.parts.guesses import EVIDENCE, HEARD, POWERS, Guesses, believe_guess, sharpened
from stepe.training.building import cross_entropy

CLASSES, N = 4, 400


def task_of(labels: Tensor, trusted: Tensor | None = None) -> Task:
    return Task(labels, CLASSES, epochs=10, seed=0, criterion=cross_entropy(CLASSES), trusted=trusted)


def planted(rate: float = 0.2) -> tuple[Tensor, Tensor]:
    """True classes, and labels of which so many are wrong, the first ones."""
    true = torch.arange(N) % CLASSES
    return true, torch.where(torch.arange(N) < rate * N, (true + 1 + torch.arange(N) // CLASSES % 3) % CLASSES, true)


def guessing(classes: Tensor, sure: float = 0.94) -> Tensor:
    return torch.where(F.one_hot(classes, CLASSES).bool(), sure, (1 - sure) / (CLASSES - 1))


def watched(
    labels: Tensor, *looks: Tensor, drops: bool = False, trusted: Tensor | None = None
) -> tuple[Guesses, Ledger]:
    """The guesses of probes that a ledger remembers; each may be followed by the drop of two samples."""
    guesses, ledger = Guesses(task_of(labels, trusted)), Ledger(N)
    guesses.declare(ledger)
    for look in looks:
        ledger.record_probe(Observation(torch.zeros(N), probability=look), trust_memory=0.0)
        guesses.note(ledger)
        ledger.record_selection(torch.arange(N) >= 2 * drops)
    return guesses, ledger


def test_it_is_the_belief_of_everybody_else():
    true, labels = planted()
    guess = guessing(true)
    found = believe_guess(task_of(labels), guess, "others")
    expected = believe(labels.numpy(), sharpened(guess.numpy(), labels.numpy()), evidence=EVIDENCE)
    np.testing.assert_array_equal(found.p_right, expected.p_right)
    assert found.rate == expected.rate
    assert found.rate_was_found
    assert np.flatnonzero(found.flagged).tolist() == list(range(80))
    assert found.suggestion[:80].tolist() == true[:80].tolist()


def test_which_classes_are_recognised_is_seen_before_anything_is_dropped():
    _, labels = planted()
    looks = guessing(labels, 0.7), guessing((labels + 1) % 4)  # what knows the labels, and what knows nothing of them
    dropped, kept = watched(labels, *looks, drops=True)[0], watched(labels, *looks)[0]
    assert dropped.recognised is not None
    assert dropped.recognised.tolist() == watched(labels, looks[0])[0].recognised.tolist() == [True] * 4
    assert kept.recognised.tolist() == [False] * 4
    other = Guesses(task_of(labels))
    other.load_state_dict(dropped.state_dict())
    assert other.recognised.tolist() == dropped.recognised.tolist()


def test_what_was_recognised_once_is_believed_of_later():
    true, labels = planted(0.6)
    guesses, ledger = watched(labels, guessing(labels, 0.7), guessing(true, 0.97), drops=True)
    found = guesses.believe(ledger, "others")
    assert found.has_signal
    assert np.flatnonzero(found.flagged).tolist() == list(range(240))


def test_scores_follow_what_was_last_believed_or_guessed():
    true, labels = planted()
    guesses, ledger = watched(labels, guessing(true))
    belief = guesses.learn(ledger, "others")
    by_belief, by_guess = (guesses.scores(ledger, by_belief=which) for which in (True, False))
    torch.testing.assert_close(by_belief.exp().double(), torch.from_numpy(1 / belief.p_right), rtol=1e-4, atol=0)
    assert by_guess[:80].min() == by_guess.max() > by_guess[80:].max()


def test_where_guesses_tell_nothing_the_rate_stays_open_and_nothing_is_flagged_or_dropped():
    _, labels = planted()
    draw = torch.Generator().manual_seed(0)
    for blind in (torch.full((N, CLASSES), 0.25), torch.rand(N, CLASSES, generator=draw).softmax(1)):
        found = believe_guess(task_of(labels), blind, "others")
        assert found.rate.is_unknown
        assert not found.flagged.any()
        assert not found.recognised.any()
        assert rho_max_by(found, labels) == 0


def test_of_a_sample_without_a_finite_guess_nothing_is_known_but_that_people_should_look():
    true, labels = planted()
    guess = guessing(true)
    guess[[90, 91]] = float("nan")
    trusted = torch.arange(N) == 91
    guesses, ledger = watched(labels, guess, trusted=trusted)
    found = guesses.learn(ledger, "others")
    assert np.isnan(found.p_right[90])
    assert found.suggestion[90] == -1
    assert np.isnan(found.confidence[90])
    assert found.p_right[91] == 1
    assert np.flatnonzero(found.flagged).tolist() == [*range(80), 90]
    assert torch.nonzero(~torch.isfinite(guesses.scores(ledger, by_belief=True))).flatten().tolist() == [90]


def test_what_was_checked_is_right():
    true, labels = planted()
    found = believe_guess(task_of(labels, torch.arange(N) < 10), guessing(true), "others")
    assert (found.p_right[:10] == 1).all()
    assert np.flatnonzero(found.flagged).tolist() == list(range(10, 80))


def test_labels_of_a_rare_class_that_is_hardly_recognised_are_not_flagged():
    labels = torch.where(torch.arange(N) < 370, torch.arange(N) % 3, 3)
    found = believe_guess(task_of(labels), guessing(labels.where(labels < 3, torch.arange(N) % 3)), "others")
    assert found.hardly_recognised == [3]
    assert not found.flagged.any()
    assert (found.p_right[370:] >= 0.5).all()


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_as_many_are_dropped_as_are_doubted(rate):
    true, labels = planted(rate)
    found = believe_guess(task_of(labels), guessing(true), "others")
    assert rho_max_by(found, labels) == pytest.approx(rate, abs=0.01)
    found.p_right[390:] = DOUBTED - 0.01
    assert rho_max_by(found, labels) == pytest.approx(rate + 10 / N, abs=0.01)
    assert rho_max_by(replace(found, recognised=np.arange(CLASSES) > 0), labels) < rho_max_by(found, labels)


def test_something_is_left_to_learn_from():
    labels = torch.arange(N) % CLASSES
    found = believe_guess(task_of(labels), guessing(labels), "others")
    found.p_right[:] = 0.0
    assert rho_max_by(found, labels) == CAP


def test_a_model_that_trained_on_the_labels_has_heard_them_already():
    true, labels = planted()
    guess = guessing(true)
    by_itself, by_others = (believe_guess(task_of(labels), guess, judge) for judge in ("itself", "others"))
    assert (by_itself.evidence, by_others.evidence) == (HEARD, EVIDENCE)
    assert by_itself.rate.rate > by_others.rate.rate
    assert believe_guess(task_of(labels), guess, "cleared").evidence == EVIDENCE


def test_guesses_that_know_more_than_they_dare_to_say_are_sharpened_and_others_left_alone():
    true, labels = planted()
    shy, bold = guessing(true, 0.4).numpy(), guessing(true, 0.94).numpy()
    np.testing.assert_array_equal(sharpened(bold, labels.numpy()), bold)
    found = sharpened(shy, labels.numpy())
    powers = {power: shy**power / (shy**power).sum(1, keepdims=True) for power in POWERS}
    rows = np.arange(N)
    best = max(powers.values(), key=lambda each: np.log(each[rows, labels.numpy()]).mean())
    np.testing.assert_allclose(found, best, rtol=1e-5)
    assert (found.argmax(1) == true.numpy()).all()
    assert found.max() > 0.6
