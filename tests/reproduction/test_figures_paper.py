import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure
from PIL import Image

from stepe.reproduction.figures import LOOKS, cifar10n, convergence, dynamics, seed_band, write_figures
from stepe.reproduction.numbers import METHOD_TITLES
from stepe.reproduction.tables import MeasuredRun

EPOCHS = 6


def run(method: str, seed: int = 42, level: float = 40.0, epochs: int = EPOCHS, **changes: Any) -> MeasuredRun:
    """Test accuracy rises by a point an epoch; Step-E drops from the third epoch on."""
    history = []
    for epoch in range(epochs):
        dropped = 10 * (epoch - 1) if method == "step-e" and epoch > 1 else 0
        history.append(
            {
                "epoch": epoch,
                "test_accuracy": level + epoch,
                "kept": 100 - dropped,
                "dropped": dropped,
                "precision": 85.0 - epoch if dropped else 0.0,
                "recall": 15.0 * epoch if dropped else 0.0,
                "f1": 12.0 * epoch if dropped else 0.0,
                "auroc": None,
            }
        )
    identity = {"data": "cifar100n", "labels": "noisy", "stem": "imagenet", "variant": None}
    return {**identity, "method": method, "seed": seed, "history": history, **changes}  # type: ignore[typeddict-item]


def every_run() -> list[MeasuredRun]:
    large = [run(method, seed, 40 + seed / 10) for method in METHOD_TITLES for seed in (13, 21, 42)]
    small = [run(method, level=80.0, data="cifar10n", labels="aggre") for method in ("baseline", "step-e", "oracle")]
    return large + small


def legend_of(figure: Figure | None) -> list[str]:
    assert figure is not None
    legends = [axes.get_legend() for axes in figure.axes]
    return [text.get_text() for legend in legends if legend is not None for text in legend.get_texts()]


def line_of(figure: Figure | None, label: str) -> tuple[list[float], list[float]]:
    assert figure is not None
    (line,) = [line for axes in figure.axes for line in axes.get_lines() if line.get_label() == label]
    return list(line.get_xdata()), list(line.get_ydata())


def title_of(figure: Figure | None) -> str:
    assert figure is not None
    return figure.get_suptitle()


def test_convergence_shows_every_method_of_seed_42() -> None:
    figure = convergence(every_run())
    assert legend_of(figure) == list(METHOD_TITLES.values())
    assert title_of(figure) == "Test accuracy on CIFAR-100N, seed 42"
    epochs, accuracies = line_of(figure, "Step-E")
    assert epochs == [1, 2, 3, 4, 5, 6]
    assert accuracies == pytest.approx([44.2, 45.2, 46.2, 47.2, 48.2, 49.2])


def test_no_two_methods_look_alike_without_colour() -> None:
    looks = {method: (str(dash), method == "step-e") for method, (_, dash) in LOOKS.items()}
    assert len(set(looks.values())) == len(LOOKS)


def test_a_missing_run_is_left_out_and_another_seed_steps_in() -> None:
    figure = convergence([run("baseline", 21), run("step-e", 13), run("oracle", 13)])
    assert legend_of(figure) == ["Step-E", "Oracle (clean labels)"]
    assert title_of(figure).endswith("seed 13")


def test_dynamics_shows_shares_and_detection_from_the_first_drop() -> None:
    figure = dynamics(every_run())
    warm_up = "no drops yet"
    assert legend_of(figure) == ["kept", "dropped", warm_up, "precision", "recall", "F1", warm_up]
    assert line_of(figure, "kept")[1] == [100, 100, 90, 80, 70, 60]
    assert line_of(figure, "dropped")[1] == [0, 0, 10, 20, 30, 40]
    assert line_of(figure, "precision") == ([3, 4, 5, 6], [83, 82, 81, 80])


def test_the_band_is_mean_and_sample_deviation_over_seeds() -> None:
    figure = seed_band([run("step-e", 1, 40.0), run("step-e", 2, 42.0), run("step-e", 3, 44.0), run("baseline")])
    assert legend_of(figure) == ["Baseline (1 seed)", "Step-E (3 seeds)"]
    assert line_of(figure, "Step-E (3 seeds)")[1] == [42, 43, 44, 45, 46, 47]
    assert figure is not None
    edges = figure.axes[0].collections[1].get_paths()[0].vertices
    assert {float(y) for x, y in edges if x == 1} == {40.0, 44.0}


def test_the_band_ends_where_a_seed_has_no_more_epochs() -> None:
    figure = seed_band([run("step-e", 1), run("step-e", 2, epochs=4)])
    assert line_of(figure, "Step-E (2 seeds)")[0] == [1, 2, 3, 4]


def test_cifar10n_shows_three_methods_of_the_aggregated_labels() -> None:
    figure = cifar10n([*every_run(), run("baseline", 42, 10.0, data="cifar10n", labels="worst")])
    assert legend_of(figure) == ["Baseline", "Step-E", "Oracle (clean labels)"]
    assert line_of(figure, "Baseline")[1][0] == 80


@pytest.mark.parametrize("draw", [convergence, dynamics, seed_band, cifar10n])
def test_without_runs_or_epochs_there_is_no_figure(draw: Any) -> None:
    assert draw([]) is None
    unstarted = [run(method, epochs=0) for method in METHOD_TITLES]
    unstarted += [run(method, epochs=0, data="cifar10n", labels="aggre") for method in METHOD_TITLES]
    assert draw(unstarted) is None


@pytest.mark.parametrize("draw", [convergence, dynamics, seed_band])
def test_one_epoch_is_enough(draw: Any) -> None:
    assert draw([run("baseline", epochs=1), run("step-e", epochs=1)]) is not None


def test_figures_are_written_as_png_and_svg_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "cifar100n.json").write_text(json.dumps({"runs": every_run(), "environment": {}}))
    first, second = (write_figures(tmp_path, tmp_path / folder) for folder in ("first", "second"))
    names = ["convergence", "dynamics", "seed-band", "cifar10n"]
    assert first == [tmp_path / "first" / "figures" / f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    svg = first[1].read_text()
    assert all(f">{title}</text>" in svg for title in METHOD_TITLES.values())
    assert "<dc:date>" not in svg
    with Image.open(first[0]) as picture:
        assert picture.width > 1000


def test_drawing_leaves_the_users_own_figures_alone(tmp_path: Path) -> None:
    (tmp_path / "cifar100n.json").write_text(json.dumps({"runs": every_run(), "environment": {}}))
    before = dict(plt.rcParams)
    write_figures(tmp_path, tmp_path)
    assert dict(plt.rcParams) == before
    assert not plt.get_fignums()
