"""Who judges a sample: never a model that trained on it, unless that is what was asked for or proved harmless."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepe
from stepe import InputError
from stepe.engine.steps import exhaust
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.probe import judged
from stepe.methods.step_e_plus.method import StepEPlus
from stepe.run.record import ProbeFacts
from stepe.samples.samples import TensorSamples
from stepe.training.building import Silent, Training
from stepe.training.judging import auto
from stepe.training.judging.auto import AutoProber, learned_by_heart
from stepe.training.judging.cross_fitted import CrossFittedProber, lengthen_steps
from stepe.training.judging.folds import Folds, Views
from stepe.training.session import Row

CROSS = {"epochs": 4, "warmup": 1, "rho_max": 0.3, "batch_size": 16, "device": "cpu", "probe": "cross:3x2"}


def fit(model: nn.Module, x: Any, y: Tensor, **options: Any) -> stepe.Result:
    wanted = {name: value for name, value in (CROSS | options).items() if value is not None}
    return stepe.fit(model, x, y, **wanted)


@pytest.mark.parametrize("folds", [Folds(2), Folds(5, 3)])
def test_folds_are_even_in_every_class_and_differ_between_splits(folds):
    labels = torch.tensor([0] * 50 + [1] * 23 + [2] * 7)
    dealt = folds.deal(labels, seed=1)
    assert dealt.shape == (folds.splits, len(labels))
    for split in dealt:
        for label in range(3):
            counts = torch.bincount(split[labels == label], minlength=folds.folds)
            assert int(counts.max() - counts.min()) <= 1
    assert torch.equal(dealt, folds.deal(labels, seed=1))
    assert not torch.equal(dealt, folds.deal(labels, seed=2))
    assert folds.splits == 1 or not torch.equal(dealt[0], dealt[1])


def test_no_prober_ever_trains_on_what_it_judges(blobs, make_model, monkeypatch):
    trained: dict[int, set[int]] = {}
    judging: dict[int, set[int]] = {}
    from stepe.engine.eager import EagerEngine

    batches, probe = EagerEngine.batches, EagerEngine.probe

    def training(engine: EagerEngine, *args: Any) -> Any:
        for batch in batches(engine, *args):
            trained.setdefault(id(engine), set()).update(batch.index.tolist())
            yield batch

    def probing(engine: EagerEngine, *args: Any, only: Tensor | None = None, **options: Any) -> Any:
        if only is not None:
            judging.setdefault(id(engine), set()).update(only.tolist())
        return probe(engine, *args, only=only, **options)

    monkeypatch.setattr(EagerEngine, "batches", training)
    monkeypatch.setattr(EagerEngine, "probe", probing)
    fit(make_model(), blobs.x, blobs.given)
    assert len(judging) == 6
    assert len(trained) == 7  # and the main model
    for engine, seen in judging.items():
        assert seen
        assert not seen & trained[engine]
    assert sum(map(len, judging.values())) == 2 * len(blobs.given)


def test_a_sample_is_judged_by_the_mean_of_its_own_probers(blobs, make_model):
    result = fit(make_model(), blobs.x, blobs.given)
    prober = result.training.prober
    assert isinstance(prober, CrossFittedProber)
    for sample in (0, 40, 96):
        expected = torch.zeros(3)
        for position, engine in enumerate(prober.engines):
            split, fold = divmod(position, 3)
            if int(prober.dealt.fold[split, sample]) == fold:
                engine.model.eval()
                with torch.no_grad():
                    expected += engine.model(blobs.x[sample : sample + 1]).softmax(1)[0] / 2
        found = result.ledger["loss"][sample]
        assert float(found) == pytest.approx(-float(expected[blobs.given[sample]].log()), rel=1e-4)
        assert int(result.ledger["prediction"][sample]) == int(expected.argmax())


def test_probers_do_not_disturb_the_main_model(blobs, make_model, bits):
    """At rho 0 it is plain training, bit for bit."""
    crossed = fit(make_model(), blobs.x, blobs.given, rho_max=0.0)
    plain = fit(make_model(), blobs.x, blobs.given, rho_max=None, method="plain", warmup=None, probe="in-sample")
    assert bits(crossed.model) == bits(plain.model)


@pytest.mark.parametrize("probe", ["cross:2x2", "auto"])
def test_the_same_seed_gives_the_same_bits(probe, blobs, make_model, bits):
    one, other = (fit(make_model(), blobs.x, blobs.given, probe=probe, rho_max="auto") for _ in range(2))
    assert bits(one.model) == bits(other.model)
    assert torch.equal(one.ledger["guess"], other.ledger["guess"])


class Interrupt(Silent):
    def __init__(self, after: int):
        self.after = after

    def epoch_ended(self, training: Training, row: Row) -> None:
        if training.epoch == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [1, 2, 4])
@pytest.mark.parametrize("probe", ["cross:2x2", "auto"])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(probe, after, blobs, make_model, bits, tmp_path):
    options: dict[str, Any] = {"probe": probe, "rho_max": "auto", "warmup": "auto", "epochs": 6}
    whole = fit(make_model(), blobs.x, blobs.given, **options)
    with pytest.raises(KeyboardInterrupt):
        fit(make_model(), blobs.x, blobs.given, run=tmp_path / "run", observers=(Interrupt(after),), **options)
    resumed = fit(make_model(), blobs.x, blobs.given, run=tmp_path / "run", resume=True, **options)
    assert bits(whole.model) == bits(resumed.model)
    for name, column in whole.ledger.state_dict().items():
        assert torch.equal(column.nan_to_num(), resumed.ledger[name].nan_to_num()), name
    untimed = {"seconds": 0.0, "seconds_per_epoch": 0.0}
    assert replace(whole.summary, **untimed) == replace(resumed.summary, **untimed)


def test_a_method_that_does_not_select_has_nobody_to_train_beside_it(blobs, make_model):
    result = fit(make_model(), blobs.x, blobs.given, method="plain", rho_max=None, warmup=None)
    assert result.summary.probe == ProbeFacts("in-sample")


def test_probers_need_optimizers_of_their_own(blobs, make_model):
    model = make_model()
    with pytest.raises(InputError, match="trains copies of the model: give optimizer and scheduler as functions"):
        fit(model, blobs.x, blobs.given, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


def half_known(n: int = 400) -> tuple[Tensor, Tensor]:
    """Two classes told apart by one input of many, a quarter of the labels wrong."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(n, 20, generator=draw)
    x[:, 0] *= 3
    labels = (x[:, 0] > 0).long()
    return x, torch.where(torch.rand(n, generator=draw) < 0.25, 1 - labels, labels)


def test_auto_sees_which_model_learns_by_heart():
    x, y = half_known()
    torch.manual_seed(0)
    fast = nn.Sequential(nn.Linear(20, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 2))
    slow = nn.Linear(20, 2)
    options: dict[str, Any] = {"probe": "auto", "epochs": 24, "warmup": 8, "rho_max": "auto", "learning_rate": 0.1}
    found = {name: fit(model, x, y, **options).summary.probe for name, model in (("fast", fast), ("slow", slow))}
    for finding in found.values():
        assert finding.chosen
        assert finding.contradicted is not None
    gaps = {name: each.contradicted.unseen - each.contradicted.trained for name, each in found.items()}
    assert gaps["fast"] > 0.2
    assert gaps["fast"] > gaps["slow"]
    assert found["fast"].reach == "cross:2x2"


class Lookout:
    """Probers that contradict so many labels they train on, epoch by epoch, and 30% of the others; and a method."""

    name = "cross:2x2"

    def __init__(self, n: int, trained: dict[int, float], *, warmup: int = 8):
        self.task = SimpleNamespace(labels=torch.arange(n) % 2, n=n)
        self.trained, self.warmup_epochs = trained, warmup
        self.unseen: float | None = None

    def contradicted(self, epoch: int, method: Any) -> Any:
        return self.trained[epoch]
        yield


def settled(lookout: Lookout, unseen: dict[int, float | None] | None = None) -> list[str | None]:
    """What is chosen by the end of every epoch, with a probe in each; ``unseen``: what others than usual saw."""
    prober = AutoProber(SimpleNamespace(name="in-sample"), lookout)  # type: ignore[arg-type]
    chosen = []
    for epoch in range(10):
        lookout.unseen = (unseen or {}).get(epoch, 0.3)
        exhaust(prober.settle(epoch, lookout))  # type: ignore[arg-type]
        chosen.append(prober.chosen)
    return chosen


def test_a_model_that_surely_does_not_learn_by_heart_judges_for_itself_from_half_the_warm_up_on():
    assert settled(Lookout(10_000, {4: 0.30})) == [None] * 4 + ["in-sample"] * 6


def test_who_is_in_doubt_by_then_is_watched_to_the_end_of_the_warm_up():
    assert settled(Lookout(10_000, {4: 0.29, 8: 0.295})) == [None] * 8 + ["in-sample"] * 2
    assert settled(Lookout(10_000, {4: 0.29, 8: 0.25})) == [None] * 8 + ["cross:2x2"] * 2


def test_few_samples_cannot_show_that_a_model_does_not_learn_by_heart():
    assert settled(Lookout(400, {4: 0.30, 8: 0.30}))[-1] == "cross:2x2"


@pytest.mark.parametrize(("sure", "tells"), [(0.0, False), (0.1, True), (1.0, True)])
def test_probers_that_know_nothing_of_the_labels_are_not_taken_for_ones_that_learn_nothing_by_heart(sure, tells):
    labels = torch.arange(100) % 2
    right = torch.where(torch.arange(100) < 30, 1 - labels, labels)
    probability = 0.5 + sure * (F.one_hot(right, 2) - 0.5)
    assert Views(probability, right[None], labels).tell_something == tells


def test_what_a_probe_of_another_epoch_saw_or_one_that_saw_nothing_settles_nothing():
    assert settled(Lookout(10_000, {9: 0.30}), {4: None, 8: None}) == [None] * 9 + ["in-sample"]


def test_without_a_warm_up_the_first_epoch_settles():
    assert settled(Lookout(10_000, {1: 0.30}, warmup=0)) == [None] + ["in-sample"] * 9
    assert settled(Lookout(10_000, {1: 0.10}, warmup=0)) == [None] + ["cross:2x2"] * 9


@pytest.mark.parametrize("after", [2, 3, 4, 5])
@pytest.mark.parametrize("probe_every", [1, 2])
def test_a_model_that_comes_to_judge_itself_goes_on_as_if_it_had_not_been_interrupted(
    probe_every, after, blobs, make_model, bits, tmp_path, monkeypatch
):
    monkeypatch.setattr(auto, "BY_HEART", 10.0)
    observed: list[int] = []
    observe = StepEPlus.observe

    def noting(method: StepEPlus, epoch: int, seen: Observation, ledger: Ledger) -> None:
        observed.append(epoch)
        observe(method, epoch, seen, ledger)

    monkeypatch.setattr(StepEPlus, "observe", noting)
    options: dict[str, Any] = {"method": "step-e-plus", "probe": "auto", "rho_max": "auto", "warmup": 4, "epochs": 12}
    options |= {"probe_every": probe_every}
    whole = fit(make_model(), blobs.x, blobs.given, **options)
    assert whole.summary.probe.reach == "in-sample"
    assert observed == [*(row["epoch"] for row in whole.history if row["probed"]), 12]
    with pytest.raises(KeyboardInterrupt):
        fit(make_model(), blobs.x, blobs.given, run=tmp_path / "run", observers=(Interrupt(after),), **options)
    resumed = fit(make_model(), blobs.x, blobs.given, run=tmp_path / "run", resume=True, **options)
    assert bits(whole.model) == bits(resumed.model)
    assert torch.equal(whole.ledger["guess"], resumed.ledger["guess"])


def test_a_run_that_is_watched_needs_no_warm_up(blobs, make_model):
    result = fit(make_model(), blobs.x, blobs.given, probe="auto", warmup=0)
    assert result.summary.probe.chosen


def test_a_rate_that_is_a_tensor_stays_the_main_models():
    rate = torch.tensor(0.01)
    main, prober = (torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=rate) for _ in range(2))
    lengthen_steps(prober, 0.5)
    assert (float(main.param_groups[0]["lr"]), float(prober.param_groups[0]["lr"])) == pytest.approx((0.01, 0.02))


def test_models_that_contradict_nothing_have_nothing_to_learn_by_heart():
    assert learned_by_heart(0.0, 0.0, n=10) == 0


@pytest.mark.parametrize(("optimizer", "factor"), [("Adam", 1.5), ("AdamW", 1.5), ("SGD", 1.0)])
def test_probers_take_longer_steps_for_they_take_fewer_of_them_where_a_rate_is_a_length(
    optimizer, factor, blobs, make_model
):
    make = partial(getattr(torch.optim, optimizer), lr=0.01)
    training = fit(make_model(), blobs.x, blobs.given, optimizer=make, probe="cross:3").training
    assert isinstance(training.prober, CrossFittedProber)
    main, *probers = [engine.rate.state_dict()["first"][0] for engine in (training.engine, *training.prober.engines)]
    assert main == 0.01
    assert probers == pytest.approx([factor * 0.01] * 3)


def test_probers_are_let_go_when_the_model_itself_can_be_asked(blobs, make_model):
    result = fit(make_model(), blobs.x, blobs.given, probe="auto", epochs=3, warmup=1)
    prober = result.training.prober
    assert isinstance(prober, AutoProber)
    prober.chosen = "in-sample"
    assert set(prober.state_dict()) == {"chosen", "contradicted"}
    assert list(prober.train_steps(None, None)) == []  # type: ignore[arg-type]


def test_judging_by_probabilities_is_what_the_logits_would_have_said():
    logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 4
    seen = judged(logits.softmax(1), labels)
    torch.testing.assert_close(seen.loss, nn.functional.cross_entropy(logits, labels, reduction="none"))
    assert torch.equal(seen.prediction, logits.argmax(1))
    others = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    torch.testing.assert_close(seen.margin, logits.gather(1, labels[:, None]).squeeze(1) - others)


def test_trusted_samples_are_never_dropped(blobs, make_model):
    trusted = torch.arange(len(blobs.given)) % 2 == 0
    for method in ("step-e", "one-shot", "self-paced"):
        options = {"rho_max": 0.6} if method != "self-paced" else {"rho_max": None, "warmup": None}
        result = fit(make_model(), blobs.x, blobs.given, method=method, trusted=trusted, probe="in-sample", **options)
        assert int(result.ledger["drop_count"][trusted].sum()) == 0
        assert int(result.ledger["drop_count"].sum()) > 0


def test_a_part_of_the_samples_is_judged_as_it_is_among_all(blobs, make_model):
    engine = fit(make_model(), blobs.x, blobs.given, probe="in-sample").training.engine
    assert isinstance(engine.samples, TensorSamples)
    only = torch.tensor([3, 96, 40])
    everything, part = engine.probe(1, "plain"), engine.probe(1, "plain", only=only)
    torch.testing.assert_close(part.loss, everything.loss[only])
