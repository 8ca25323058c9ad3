"""The bag of n-grams."""

import torch

from stepe.models.text import TextBag


def make(absent: float = 0.5) -> TextBag:
    torch.manual_seed(0)
    return TextBag(vocabulary=50, classes=3, width=8, hidden=16, dropout=0.5, absent=absent)


def test_padding_order_and_company_do_not_matter():
    model = make().eval()
    bag = torch.tensor([[3, 7, 9, 0, 0, 0], [9, 3, 7, 0, 0, 0]], dtype=torch.int32)
    logits = model(bag)
    assert logits.shape == (2, 3)
    torch.testing.assert_close(logits[0], logits[1])
    torch.testing.assert_close(model(bag[:1, :3]), logits[:1])


def test_a_text_without_ngrams_has_finite_logits():
    assert torch.isfinite(make()(torch.zeros(2, 4, dtype=torch.int32))).all()


def test_some_ngrams_stay_away_from_training_alone():
    bag = torch.arange(1, 41, dtype=torch.int32)[None]
    model = make(absent=0.9)
    model.body[0].p = model.body[3].p = 0.0
    assert not torch.equal(model(bag), model(bag))
    model.eval()
    assert torch.equal(model(bag), model(bag))


def test_padding_is_never_learned():
    model = make()
    model(torch.tensor([[3, 0, 0]])).sum().backward()
    assert model.embedding.weight.grad[0].abs().sum() == 0
