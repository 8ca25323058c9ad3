"""Step-E whose probe also corrects."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepe
from stepe import InputError
from stepe.loop.ledger import JudgedBy, Ledger, Observation
from stepe.methods import StepEPlus, Task, make_method
from stepe.training.building import cross_entropy

OFF: dict[str, Any] = {"score": "loss", "average": 0, "correct": False, "refine": 0, "mixup": 0, "prior": "none"}
LABELS = torch.tensor([0, 1, 2, 0, 1])
PROBABILITY = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1], [0.5, 0.25, 0.25], [0.02, 0.96, 0.02]])


def seen(probability: Tensor = PROBABILITY) -> Observation:
    loss = -probability.gather(1, LABELS[:, None]).squeeze(1).log()
    return Observation(loss, probability=probability)


def started(trusted: Tensor | None = None, **options: Any) -> tuple[Any, Ledger]:
    method, ledger = make_method("step-e-plus", **{"rho_max": 0.4, "prior": "none"} | options), Ledger(5)
    method.start(Task(LABELS, 3, epochs=10, seed=0, criterion=cross_entropy(3), trusted=trusted), ledger)
    return method, ledger


def test_with_every_part_switched_off_it_is_step_e(fooled):
    same = {"rho_max": 0.4, "warmup": 4, "ramp_end": 20}
    plus, step_e = fooled("step-e-plus", **same, **OFF), fooled("step-e", **same)
    weights = zip(plus.model.parameters(), step_e.model.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in weights)
    assert torch.equal(plus.ledger["dropped"], step_e.ledger["dropped"])


def test_dropped_samples_train_on_the_guess_and_kept_labels_are_refined():
    method, ledger = started()
    method.observe(9, seen(), ledger)
    plan = method.plan(9, ledger)
    assert plan.kept.tolist() == [True, True, False, False, True]
    assert plan.trains.all()
    guess, given = ledger["guess"].float(), F.one_hot(LABELS, 3).float()
    expected = torch.where(plan.kept[:, None], 0.5 * given + 0.5 * guess, guess)
    torch.testing.assert_close(plan.target.float(), expected, atol=1e-3, rtol=0)
    torch.testing.assert_close(plan.weight, torch.tensor([1.0, 1.0, 0.6, 0.5, 1.0]), atol=1e-3, rtol=0)


def test_labels_are_refined_as_the_ramp_proceeds():
    method, ledger = started()
    method.observe(2, seen(), ledger)
    own = [float(method.plan(epoch, ledger).target[1, 1]) for epoch in (2, 4, 6, 9)]
    assert own[0] == 1.0
    assert own == sorted(own, reverse=True)
    assert own[-2:] == pytest.approx([0.9, 0.9], abs=1e-3)


def test_the_warm_up_trains_on_the_labels():
    method, ledger = started(warmup=4)
    plan = method.plan(3, ledger)
    assert plan.target is None
    assert plan.weight is None
    assert plan.kept.all()


def test_what_was_checked_is_neither_dropped_nor_refined():
    method, ledger = started(trusted=torch.tensor([False, False, True, False, False]))
    method.observe(9, seen(), ledger)
    plan = method.plan(9, ledger)
    assert plan.kept[2]
    assert plan.target[2].tolist() == [0.0, 0.0, 1.0]


def test_without_correction_only_kept_samples_train():
    method, ledger = started(correct=False)
    method.observe(9, seen(), ledger)
    plan = method.plan(9, ledger)
    assert plan.trains is None
    assert plan.weight is None
    assert plan.target is not None


def test_the_guess_is_a_running_mean_from_the_middle_of_the_warm_up():
    method, ledger = started(warmup=4, guess_memory=0.75)
    assert [epoch for epoch in range(6) if method.wants_probe(epoch)] == [2, 3, 4, 5]
    uniform = torch.full((5, 3), 1 / 3)
    method.observe(2, seen(uniform), ledger)
    method.observe(3, seen(), ledger)
    torch.testing.assert_close(ledger["guess"].float(), 0.75 * uniform + 0.25 * PROBABILITY, atol=1e-3, rtol=0)


def test_as_many_are_dropped_as_are_wrong():
    assert started(rho_max=None)[0].dropping.finds_rate
    method, ledger = make_method("step-e-plus"), Ledger(5)
    method.start(Task(LABELS, 3, epochs=10, seed=0, criterion=cross_entropy(3), noise_rate=0.4), ledger)
    assert method.dropping.rho_max == 0.4


def test_the_prior_moves_the_scores():
    scores = {}
    for prior in ("none", (1.0, 1.0, 20.0)):
        method, ledger = started(prior=prior)
        method.observe(9, seen(), ledger)
        scores[prior] = method.scores(ledger)
    assert scores[(1.0, 1.0, 20.0)][2] < scores["none"][2]
    assert scores[(1.0, 1.0, 20.0)][0] > scores["none"][0]


def test_it_is_less_fooled_than_step_e(fooled):
    options = {"noise_rate": 0.4}
    plus, step_e = fooled("step-e-plus", **options).summary, fooled("step-e", **options).summary
    assert plus.test_accuracy > step_e.test_accuracy
    assert plus.noise.auroc > step_e.noise.auroc


def test_a_cross_fitted_probe_gives_out_of_fold_guesses(fooled):
    cross, in_sample = (fooled("step-e-plus", noise_rate=0.4, probe=probe) for probe in ("cross:3", "in-sample"))
    assert cross.summary.noise.auroc > in_sample.summary.noise.auroc


def test_inputs_that_cannot_be_blended_are_trained_on_without():
    codes = torch.randint(0, 5, (40, 3), generator=torch.Generator().manual_seed(0))
    labels = codes[:, 0] % 2
    model = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 2))
    options: dict[str, Any] = {"epochs": 4, "batch_size": 8, "device": "cpu", "noise_rate": 0.1}
    with pytest.raises(InputError, match="mixup blends inputs"):
        stepe.fit(model, codes, labels, method="step-e-plus", **options)
    assert stepe.fit(model, codes, labels, method=StepEPlus(mixup=0), **options).summary.epochs == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"average": -1}, "average is -1; it must be a number, at least 0"),
        ({"mixup": float("nan")}, "mixup is nan"),
        ({"cutmix": 1.5}, "cutmix is 1.5"),
        ({"cutmix": 0.5, "mixup": 0}, "mixup=0 has none"),
        ({"refine": 1.5}, r"refine is 1.5; .*\[0, 1\]"),
        ({"guess_memory": 1.5}, "guess_memory is 1.5"),
        ({"softness": 0.5}, "choose one of them"),
        ({"prior": "balanced"}, "prior is 'balanced'"),
        ({"score": "margin"}, "score is 'margin'"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        started(**options)


def test_what_serves_one_model_is_off_where_others_judge(fooled):
    for probe, expected in (("in-sample", (0.85, 0.5)), ("cross:3", (0.0, 0.0))):
        method = fooled("step-e-plus", noise_rate=0.4, probe=probe).training.method
        assert (method.averaging, method.settings.refine) == expected


@pytest.mark.parametrize(
    "criterion",
    [
        lambda outputs, labels: F.nll_loss(outputs.log_softmax(1), labels, reduction="none"),
        nn.MultiMarginLoss(reduction="none"),
        lambda outputs, labels: F.cross_entropy(outputs, labels, reduction="none").expand(*labels.shape),
    ],
)
def test_a_criterion_for_indices_alone_is_refused_before_training(criterion):
    method = make_method("step-e-plus", rho_max=0.4)
    with pytest.raises(InputError, match=r"takes class indices alone .* or train without corrections"):
        method.start(Task(LABELS, 3, epochs=10, seed=0, criterion=criterion), Ledger(5))
    uncorrected = make_method("step-e-plus", rho_max=0.4, correct=False, refine=0)
    uncorrected.start(Task(LABELS, 3, epochs=10, seed=0, criterion=criterion), Ledger(5))


@pytest.mark.parametrize("options", [{"method": "step-e"}, {"method": "step-e-plus"}, {"probe": "cross:2"}])
def test_a_model_may_have_more_outputs_than_the_labels_have_classes(options, blobs):
    x, y = blobs.x, blobs.given
    model = nn.Linear(x.shape[1], int(y.max()) + 4)
    result = stepe.fit(model, x, y, epochs=4, device="cpu", **options)
    torch.testing.assert_close(result.ledger["guess"].float().sum(1), torch.ones(len(y)), atol=5e-3, rtol=0)


def judged_by(probe: str, judge: JudgedBy) -> Any:
    method, ledger = make_method("step-e-plus", rho_max=0.2, warmup=2, mixup=0), Ledger(5)
    method.start(Task(LABELS, 3, epochs=10, seed=0, criterion=cross_entropy(3), probe=probe), ledger)
    method.observe(0, replace(seen(), judged_by=judge), ledger)
    return method


def test_a_watched_model_that_judges_for_itself_is_probed_less_often_after_the_warm_up():
    probed = {}
    judges: tuple[tuple[str, JudgedBy], ...] = (("auto", "cleared"), ("auto", "others"), ("in-sample", "cleared"))
    for probe, judge in judges:
        method = judged_by(probe, judge)
        probed[probe, judge] = [epoch for epoch in range(10) if method.wants_probe(epoch)]
    assert probed["auto", "cleared"] == [1, 2, 5, 8]
    assert probed["auto", "others"] == probed["in-sample", "cleared"] == list(range(1, 10))


@pytest.mark.parametrize(
    ("reach", "epochs", "left"), [("in-sample", 30, 0.85), ("cross:2", 60, 0.85), ("cross:2", 30, 0.7225)]
)
def test_guesses_out_of_fold_remember_by_the_length_of_the_run(reach, epochs, left):
    method = make_method("step-e-plus", rho_max=0.2)
    method.start(Task(LABELS, 3, epochs=epochs, seed=0, criterion=cross_entropy(3), probe=reach), Ledger(5))
    assert method.settings.guess_memory == pytest.approx(left)


def test_a_rate_that_is_to_be_found_out_is_found_out_though_it_is_known():
    labels = torch.arange(100) % 4
    guess = torch.where(F.one_hot(torch.where(torch.arange(100) < 30, (labels + 1) % 4, labels), 4).bool(), 0.7, 0.1)
    method, ledger = make_method("step-e-plus", rho_max="auto", score="guess", warmup=1, mixup=0), Ledger(100)
    task = Task(labels, 4, epochs=10, seed=0, criterion=cross_entropy(4), noise_rate=0.1)
    method.start(task, ledger)
    method.observe(1, Observation(torch.zeros(100), probability=guess), ledger)
    assert int((~method.plan(6, ledger).kept).sum()) == 30


def test_looking_at_the_scores_in_the_warm_up_leaves_no_trace():
    looked, unseen = started(rho_max=None, warmup=3), started(rho_max=None, warmup=3)
    for method, ledger in (looked, unseen):
        for epoch in (1, 2, 3):
            method.observe(epoch, replace(seen(), judged_by="others"), ledger)
            if method is looked[0]:
                method.scores(ledger)
                method.make_belief(ledger)
            method.plan(epoch, ledger)
    one, other = (method.state_dict() | {"blends": None} for method, _ in (looked, unseen))
    assert one == other
    for name, column in looked[1].columns.items():
        torch.testing.assert_close(column, unseen[1][name], equal_nan=True)


def watched(shares: dict[int, float], **options: Any) -> list[Any]:
    """What is dropped at most after probes, by epoch, whose guesses call so many of 400 labels wrong."""
    labels, found = torch.arange(400) % 4, []
    method, ledger = make_method("step-e-plus", warmup=1, mixup=0, guess_memory=0.0, **options), Ledger(400)
    method.start(Task(labels, 4, epochs=10, seed=0, criterion=cross_entropy(4), probe="cross:2"), ledger)
    for epoch, share in shares.items():
        said = torch.where(torch.arange(400) < 400 * share, (labels + 1) % 4, labels)
        guess = torch.where(F.one_hot(said, 4).bool(), 0.94, 0.02)
        if share != share:
            guess = torch.full_like(guess, 0.25)
        method.observe(epoch, Observation(torch.zeros(400), probability=guess, judged_by="others"), ledger)
        ledger.record_selection(method.plan(epoch, ledger).kept)
        found.append(method.dropping.rho_max)
    return found


def test_how_much_is_dropped_follows_the_guesses_to_the_end():
    assert watched({1: 0.3, 5: 0.2, 9: 0.1}) == pytest.approx([0.3, 0.2, 0.1])


def test_nothing_is_dropped_before_anything_is_known_however_late_that_is():
    assert watched({1: float("nan"), 5: float("nan"), 6: 0.2}) == pytest.approx([0, 0, 0.2])


def test_a_rate_that_was_given_is_told_as_it_was_given_and_the_flags_are_what_is_believed():
    labels = torch.arange(400) % 4
    guess = torch.where(F.one_hot(torch.where(torch.arange(400) < 80, (labels + 1) % 4, labels), 4).bool(), 0.7, 0.1)
    method, ledger = make_method("step-e-plus", mixup=0), Ledger(400)
    method.start(Task(labels, 4, epochs=10, seed=0, criterion=cross_entropy(4), noise_rate=0.3), ledger)
    method.observe(9, Observation(torch.zeros(400), probability=guess), ledger)
    belief = method.make_belief(ledger)
    assert belief.rate.rate == belief.rate.low == belief.rate.high == 0.3
    assert belief.found_rate is None
    assert belief.flagged.nonzero()[0].tolist() == list(range(80))
