"""Labels that are no classes: numbers, and several yes or no at once."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

import stepe
from stepe import InputError, StepE, Truth
from stepe.beliefs.names import Names, given_names
from stepe.loop.labels import LARGE, kind_of, read_marks, with_residuals
from stepe.loop.ledger import Observation
from stepe.loop.task import Task
from stepe.methods import METHODS
from stepe.training.building import Silent, Training
from stepe.training.issues import held_out_table
from stepe.training.session import Row

HUBER = partial(F.huber_loss, reduction="none")
N = 200


def bce(logits: Tensor, marks: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, marks, reduction="none").mean(1)


def seeded(*layers: nn.Module) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for layer in layers:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
    return nn.Sequential(*layers)


@pytest.fixture
def line() -> tuple[Tensor, Tensor, Tensor]:
    """Numbers along a line; every tenth is far off."""
    x = torch.randn(N, 3, generator=torch.Generator().manual_seed(0))
    y = x @ torch.tensor([1.0, -2.0, 0.5])
    noisy = torch.arange(N) % 10 == 0
    return x, torch.where(noisy, y + 6, y), noisy


@pytest.fixture
def tags() -> tuple[Tensor, Tensor, Tensor]:
    """Two tags that follow the signs of two inputs; the second of every tenth sample is turned over."""
    x = torch.randn(N, 4, generator=torch.Generator().manual_seed(1))
    x = x + 0.5 * x.sign()
    marks = (x[:, :2] > 0).float()
    noisy = torch.arange(N) % 10 == 0
    marks[noisy, 1] = 1 - marks[noisy, 1]
    return x, marks, noisy


def regress(x: Tensor, y: Tensor, **options):
    options = {"criterion": HUBER, "rho_max": 0.15, "epochs": 12, "learning_rate": 0.05, "batch_size": 32} | options
    return stepe.fit(seeded(nn.Linear(3, 1), nn.Flatten(0)), x, y, device="cpu", **options)


def mark(x: Tensor, y: Tensor, **options):
    options = {"criterion": bce, "rho_max": 0.15, "epochs": 12, "learning_rate": 0.5, "batch_size": 32} | options
    return stepe.fit(seeded(nn.Linear(4, 2)), x, y, device="cpu", **options)


# What a run makes of them


def test_a_regression_flags_the_numbers_that_are_off_and_suggests_better_ones(line):
    x, y, noisy = line
    result = regress(x, y, truth=Truth(noisy), test=(x, torch.where(noisy, y - 6, y)))
    issues = result.issues
    assert set(issues["row"]) == set(torch.nonzero(noisy).flatten().tolist())
    for issue in issues.itertuples():
        assert float(issue.given_label) == pytest.approx(float(y[issue.row]), rel=1e-4)
        assert float(issue.suggested_label) == pytest.approx(float(y[issue.row] - 6), abs=1)
        assert issue.reason.endswith(f"the model says {issue.suggested_label}")
        assert issue.margin < 0
    assert result.summary.noise.auroc > 0.95
    assert result.summary.test_loss == result.history[-1]["test_loss"] < 0.1
    assert result.summary.test_accuracy is None


def test_a_regression_on_right_numbers_flags_hardly_any_of_what_it_drops(line):
    x, y, noisy = line
    true = torch.where(noisy, y - 6, y) + 0.1 * torch.randn(N, generator=torch.Generator().manual_seed(2))
    summary = regress(x, true).summary
    assert summary.dropped > 20
    assert summary.flagged <= 2


def test_several_labels_flag_the_samples_with_a_wrong_one_and_turn_it_over(tags):
    x, marks, noisy = tags
    result = mark(x, marks, truth=Truth(noisy), class_names=["day", "beach"])
    issues = result.issues
    assert set(issues["row"]) == set(torch.nonzero(noisy).flatten().tolist())
    for issue in issues.itertuples():
        right = marks[issue.row].clone()
        right[1] = 1 - right[1]
        assert issue.given_label == given_names("marks", marks[issue.row : issue.row + 1].numpy(), ["day", "beach"])[0]
        assert issue.suggested_label == given_names("marks", right[None].numpy(), ["day", "beach"])[0]
        assert issue.suggestion_confidence > 0.5
    assert result.summary.noise.flagged.f1 == 1


def test_rows_of_numbers_are_judged_by_their_worst(line):
    x, y, noisy = line
    model = seeded(nn.Linear(3, 2))
    both = torch.stack([x.sum(1), y], 1)
    result = stepe.fit(
        model, x, both, criterion=lambda o, t: HUBER(o, t).mean(1), rho_max=0.15, epochs=12, learning_rate=0.1,
        batch_size=32, device="cpu",
    )  # fmt: skip
    issues = result.issues
    assert set(issues["row"]) == set(torch.nonzero(noisy).flatten().tolist())
    assert len(issues["suggested_label"][0].split()) == 2


@pytest.mark.parametrize("method", [name for name, kind in METHODS.items() if not kind.needs_classes])
def test_every_method_that_compares_no_classes_trains_on_numbers_and_marks(line, tags, method):
    options = {"rho_max": 0.15} if "rho_max" in METHODS[method].options() else {}
    for (x, y, _), model, criterion in (
        (line, nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), HUBER),
        (tags, nn.Linear(4, 2), bce),
    ):
        result = stepe.fit(
            model, x, y, method=method, criterion=criterion, epochs=4, learning_rate=0.05, device="cpu", **options
        )
        assert torch.isfinite(result.ledger["loss"]).all()


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """Targets as data sets return them: not in the precision that they are stored in."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.targets = x, y.double().numpy()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], torch.as_tensor(self.targets[index]).float()


@pytest.mark.parametrize("kind", ["numbers", "marks"])
def test_a_data_set_brings_its_own_targets(line, tags, kind, bits):
    (x, y, _), train = (line, regress) if kind == "numbers" else (tags, mark)
    from_tensors, from_rows = train(x, y, epochs=3), train(Rows(x, y), None, epochs=3)
    assert bits(from_tensors.model) == bits(from_rows.model)


def test_integers_of_0_and_1_in_rows_are_marks(tags, bits):
    x, marks, _ = tags
    for other in (marks.long(), marks.bool(), marks.double().numpy()):
        assert bits(mark(x, other, epochs=2).model) == bits(mark(x, marks, epochs=2).model)


def test_a_criterion_of_ones_own_changes_nothing_for_classes(blobs, make_model, bits):
    own = stepe.fit(
        make_model(), blobs.x, blobs.given, rho_max=0.3, epochs=4, device="cpu",
        criterion=partial(F.cross_entropy, reduction="none"),
    )  # fmt: skip
    default = stepe.fit(make_model(), blobs.x, blobs.given, rho_max=0.3, epochs=4, device="cpu")
    assert bits(own.model) == bits(default.model)
    assert own.issues.equals(default.issues)


def test_a_run_folder_holds_a_regression_and_resumes_it(line, tmp_path, bits):
    x, y, _ = line

    class PulledPlug(Silent):
        def epoch_ended(self, training: Training, row: Row) -> None:
            if row["epoch"] == 6:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regress(x, y, run=tmp_path / "run", observers=(PulledPlug(),))
    resumed = regress(x, y, run=tmp_path / "run", resume=True)
    whole = regress(x, y)
    assert bits(resumed.model) == bits(whole.model)
    run = stepe.Run(tmp_path / "run")
    assert run.issues["suggested_label"].tolist() == whole.issues["suggested_label"].astype(str).tolist()
    assert run.report().exists()


# In a loop of one's own


def judged_numbers(model: nn.Module, batch: list[Tensor]) -> tuple[Tensor, Tensor]:
    x, y = batch
    outputs = model(x)
    return HUBER(outputs, y), outputs


def judged_marks(model: nn.Module, batch: list[Tensor]) -> tuple[Tensor, Tensor]:
    x, y = batch
    logits = model(x)
    return bce(logits, y), logits


def loop(data: Dataset, model: nn.Module, forward, learning_rate: float) -> StepE:
    cleaner = StepE(data, epochs=12, rho_max=0.15)
    loader = cleaner.loader(batch_size=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    for _ in cleaner.epochs(model, forward=forward):
        for batch in loader:
            seen = (forward or judged_numbers)(model, batch)
            loss = (seen[0] if isinstance(seen, tuple) else seen).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return cleaner


def test_a_loop_flags_numbers_that_are_off(line):
    x, y, noisy = line
    model = seeded(nn.Linear(3, 1), nn.Flatten(0))
    issues = loop(Rows(x, y), model, judged_numbers, 0.02).issues
    assert set(issues["row"]) == set(torch.nonzero(noisy).flatten().tolist())
    for issue in issues.itertuples():
        assert float(issue.suggested_label) == pytest.approx(float(y[issue.row] - 6), abs=1)


def test_a_loop_flags_samples_with_a_wrong_mark(tags):
    x, marks, noisy = tags
    issues = loop(Rows(x, marks), seeded(nn.Linear(4, 2)), judged_marks, 0.5).issues
    assert set(issues["row"]) == set(torch.nonzero(noisy).flatten().tolist())


def test_a_loop_that_gives_losses_alone_flags_what_it_drops(line):
    x, y, noisy = line
    model = seeded(nn.Linear(3, 1), nn.Flatten(0))
    cleaner = loop(Rows(x, y), model, lambda model, batch: judged_numbers(model, batch)[0], 0.02)
    issues = cleaner.issues
    assert set(issues["row"]) == set(torch.nonzero(cleaner.ledger["dropped"]).flatten().tolist())
    assert set(torch.nonzero(noisy).flatten().tolist()) <= set(issues["row"])
    assert set(issues["suggested_label"]) == {""}


def test_a_stream_of_numbers_flags_those_that_are_off(line):
    x, y, noisy = line
    model = seeded(nn.Linear(3, 1), nn.Flatten(0))
    cleaner = StepE(N, labels=y, epochs=12, rho_max=0.15)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for _ in cleaner.epochs():
        for index in torch.arange(N).split(32):
            outputs = model(x[index])
            loss = cleaner.reduce(HUBER(outputs, y[index]), index, logits=outputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    issues = cleaner.issues
    assert set(issues["row"]) == set(torch.nonzero(noisy).flatten().tolist())
    assert all(issues["suggested_label"] != "")


def test_a_criterion_makes_forward_unnecessary(line):
    x, y, noisy = line
    model = seeded(nn.Linear(3, 1), nn.Flatten(0))
    cleaner = StepE(Rows(x, y), epochs=12, rho_max=0.15, criterion=HUBER)
    loader = cleaner.loader(batch_size=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for _ in cleaner.epochs(model):
        for inputs, _ in loader:
            optimizer.zero_grad()
            cleaner.loss(model, inputs).backward()
            optimizer.step()
    assert set(cleaner.issues["row"]) == set(torch.nonzero(noisy).flatten().tolist())


def test_a_loop_over_numbers_asks_how_they_become_losses(line):
    x, y, _ = line
    with pytest.raises(InputError, match="labels are numbers, not classes; give criterion=, or say how"):
        loop(Rows(x, y), seeded(nn.Linear(3, 1), nn.Flatten(0)), None, 0.1)
    with pytest.raises(InputError, match=r"outputs have shape \(200, 2\) and the labels \(200,\)"):
        loop(Rows(x, y), seeded(nn.Linear(3, 2)), lambda model, batch: (model(batch[0])[:, 0], model(batch[0])), 0.1)
    with pytest.raises(InputError, match="give rho_max"):
        StepE(Rows(x, y), epochs=12)


# What cannot be


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho_max": "auto"}, "estimated for classes alone, and these are numbers: give rho_max"),
        ({"rho_max": None}, "give rho_max, the largest share to drop, or noise_rate"),
        ({"probe": "cross:2"}, "use score='loss' and probe='in-sample'"),
        ({"score": "guess"}, "use score='loss'"),
        ({"min_keep": 0.5}, "give groups too"),
        ({"criterion": None}, r"labels are torch\.float32; .* give criterion="),
        ({"criterion": F.huber_loss}, "one loss per sample"),
        ({"test": (torch.zeros(2, 3), [1, 0])}, "labels of the test data are int64 of shape"),
    ],
)
def test_what_needs_classes_says_so(line, options, message):
    x, y, _ = line
    with pytest.raises(InputError, match=message):
        regress(x, y, **options)


def test_groups_protect_numbers_too(line):
    x, y, noisy = line
    result = regress(x, y, min_keep=1.0, groups=noisy.long())
    assert not result.ledger["dropped"].any()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.zeros(3, 2, 2), r"shape \(3, 2, 2\) for 3 samples"),
        (torch.zeros(2), r"shape \(2,\) for 3 samples"),
        (torch.tensor([[0, 2], [1, 0], [0, 0]]), "0 and 1 alone"),
        (torch.tensor([0.0, float("nan"), 1.0]), "label of sample 1 is NaN"),
        (["a", "b", "c"], "must be integers"),
    ],
)
def test_targets_that_cannot_be_used_say_so(labels, message):
    with pytest.raises(InputError, match=message):
        regress(torch.zeros(3, 3), labels)


# The parts


def suggested(seen: Observation, labels: Tensor, class_names: list[str]) -> list[str]:
    task = Task(labels, 0, epochs=1, seed=0, criterion=bce)
    return held_out_table(seen, task, labels, class_names, Names.numbered(len(labels)))["suggested_label"]


def test_kinds_of_labels():
    assert kind_of(torch.tensor([0, 1])) == "classes"
    assert kind_of(torch.tensor([0.0, 1.0])) == "numbers"
    assert kind_of(torch.tensor([[0.0, 1.0]])) == "marks"
    assert kind_of(torch.tensor([[0.0, 0.5]])) == "numbers"


def test_the_worst_mark_is_the_one_that_the_logits_contradict_most():
    read = read_marks(torch.tensor([[3.0, -2.0, 1.0], [3.0, 2.0, -1.0]]), torch.tensor([[1.0, 1, 0], [1, 1, 0]]))
    assert read["prediction"].tolist() == [1, 2]
    assert read["margin"].tolist() == [-2, 1]
    torch.testing.assert_close(read["confidence"] + read["given_probability"], torch.ones(2))
    seen = Observation(torch.zeros(2), **read)
    marks = torch.tensor([[1.0, 1, 0], [1, 1, 0]])
    assert suggested(seen, marks, ["a", "b", "c"]) == ["a", "a, b"]


def test_a_residual_is_large_beside_the_usual_one_whatever_its_unit():
    labels = torch.zeros(101)
    output = torch.linspace(-1, 1, 101)
    output[0] = -30.0
    for unit in (1e-3, 1.0, 1e3):
        margin = with_residuals(Observation(torch.zeros(101), output=unit * output), labels).margin
        assert torch.nonzero(margin < 0).flatten().tolist() == [0]
        assert float(margin.max()) <= LARGE


def test_perfect_predictions_contradict_nothing():
    exact = with_residuals(Observation(torch.zeros(3), output=torch.ones(3)), torch.ones(3))
    assert (exact.margin > 0).all()


def test_losses_alone_suggest_nothing():
    seen = Observation(torch.zeros(2))
    for labels, given in (
        (torch.tensor([0.5, 2.0]), ["0.5", "2"]),
        (torch.tensor([[0.0, 0], [0, 1]]), ["(none)", "1"]),
    ):
        assert given_names(kind_of(labels), labels.numpy(), []) == given
        assert suggested(seen, labels, []) == ["", ""]
