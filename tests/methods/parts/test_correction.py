"""What is trained on instead of labels that are not believed."""

import torch

from stepe.methods.parts.correction import confidence, corrected

LABELS = torch.tensor([0, 1, 2, 0])
KEPT = torch.tensor([True, True, False, False])
GUESS = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [float("nan")] * 3])


def test_kept_labels_are_refined_and_others_replaced():
    found = corrected(LABELS, KEPT, GUESS, 0.4)
    expected = [[0.8, 0.12, 0.08], [0.04, 0.92, 0.04], [0.7, 0.2, 0.1], [1.0, 0.0, 0.0]]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_how_much_is_refined_may_differ_between_samples():
    found = corrected(LABELS, KEPT, GUESS, torch.tensor([[0.0], [1.0], [0.0], [0.0]]))
    assert found[:2].tolist() == [[1.0, 0.0, 0.0], GUESS[1].tolist()]


def test_a_guess_counts_as_far_as_it_is_sure():
    torch.testing.assert_close(confidence(KEPT, GUESS), torch.tensor([1.0, 1.0, 0.7, 0.0]))
