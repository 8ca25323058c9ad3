import json
import re
import shutil
from pathlib import Path

import matplotlib
import matplotlib.style
import numpy as np
import pytest
from matplotlib.figure import Figure

from stepe import InputError, Run
from stepe.report import figures


def drawn(run: Run) -> dict[str, figures.Drawing | None]:
    runs = [run, *run.others]
    return {
        "noise": figures.noise_range(run),
        "accuracy": figures.accuracy_curves(runs),
        "loss": figures.loss_curves(runs),
        "kept": figures.kept_share(run),
        "turnover": figures.turnover(run),
        "detection": figures.detection(run),
        "losses": figures.loss_histogram(run),
    }


def legend_of(figure: Figure) -> list[str]:
    legends = figure.legends or [axes.get_legend() for axes in figure.axes]
    return [text.get_text() for legend in legends if legend is not None for text in legend.get_texts()]


def test_a_run_with_everything_has_every_chart(digits_run: Run) -> None:
    charts = drawn(digits_run)
    assert all(charts.values())
    assert charts["accuracy"] is not None
    assert legend_of(charts["accuracy"].figure) == ["step-e-plus", "oracle", "plain"]


def test_charts_with_nothing_to_show_are_left_out(plain_run: Run, features_run: Run, fitted_run: Run) -> None:
    def missing(run: Run) -> set[str]:
        return {name for name, drawing in drawn(run).items() if drawing is None}

    assert missing(plain_run) == {"kept", "turnover", "detection"}
    assert missing(features_run) == {"noise", "detection"}
    assert missing(fitted_run) == {"noise", "accuracy", "detection"}


def test_this_run_has_the_same_colour_with_and_without_others(digits_run: Run) -> None:
    for runs in ([digits_run], [digits_run, *digits_run.others]):
        drawing = figures.accuracy_curves(runs)
        assert drawing is not None
        front = drawing.figure.axes[0].get_lines()[-1]
        assert front.get_color() == figures.SERIES[0]
        assert list(front.get_ydata()) == [row["test_accuracy"] for row in digits_run.history]


def test_final_losses_are_the_last_of_the_trace(digits_run: Run) -> None:
    loss, dropped = figures.final_losses(digits_run)
    assert len(loss) == len(dropped) == 1438
    for index in (0, 700, 1437):
        last = digits_run.trace(index)[-1]
        assert (loss[index], dropped[index]) == (last["loss"], last["dropped"])


def test_without_a_trace_the_suspicion_stands_in_for_the_loss(digits_run: Run, tmp_path: Path) -> None:
    shutil.copytree(digits_run.path, tmp_path / "run")
    (tmp_path / "run" / "trace.bin").unlink()
    run = Run(tmp_path / "run")
    loss, _ = figures.final_losses(run)
    suspicion = run.samples["suspicion"][run.samples["split"] == "train"]
    assert np.allclose(1 - np.exp(-loss), suspicion, atol=1e-6)
    assert figures.loss_histogram(run) is not None


def test_the_warm_up_is_the_one_of_the_run(digits_run: Run, plain_run: Run) -> None:
    assert figures.warmup_epochs(digits_run) == 1
    assert figures.warmup_epochs(plain_run) == 0


def test_overlaid_runs_may_differ_in_length_and_in_what_is_known(
    digits_run: Run, plain_run: Run, features_run: Run, fitted_run: Run
) -> None:
    figure = figures.overlaid([digits_run, plain_run, features_run, fitted_run])
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Test accuracy",
        "Share of samples trained on",
        "F1 of the dropped",
    ]
    assert legend_of(figure) == ["digits (step-e-plus)", "plain", "features (step-e-plus)", "fitted (step-e)"]
    lengths = [len(run.history) for run in (digits_run, plain_run, features_run, fitted_run)]
    assert [len(line.get_xdata()) for line in figure.axes[1].get_lines()] == lengths
    assert len({line.get_color() for line in figure.axes[0].get_lines()}) == 4


def test_panels_that_no_run_can_fill_are_left_out(features_run: Run, fitted_run: Run) -> None:
    assert len(figures.overlaid([features_run, fitted_run]).axes) == 2
    assert len(figures.overlaid([fitted_run]).axes) == 1


def test_runs_of_the_same_name_are_told_apart_by_their_parents(digits_run: Run, tmp_path: Path) -> None:
    for parent in ("a", "b"):
        shutil.copytree(digits_run.path, tmp_path / parent / "run")
    runs = [Run(tmp_path / parent / "run") for parent in ("a", "b")]
    assert figures.folder_names(runs) == ["a/run", "b/run"]
    assert figures.folder_names([runs[0], digits_run]) == ["run", "digits"]
    assert figures.folder_names([runs[0], runs[0]]) == ["run", "run"]


@pytest.mark.parametrize("name", ["_hidden", "$x^2$", "a$b", "<b>&amp;"])
def test_folder_names_are_drawn_as_they_are(name: str, digits_run: Run, tmp_path: Path) -> None:
    shutil.copytree(digits_run.path, tmp_path / name)
    figure = figures.overlaid([Run(tmp_path / name)])
    assert legend_of(figure) == [f"{name} (step-e-plus)"]
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"{escaped} (step-e-plus)" in figures.svg(figure, "x")


def test_nothing_to_overlay_is_an_error() -> None:
    with pytest.raises(InputError, match="no run"):
        figures.overlaid([])


def test_an_svg_is_the_same_each_time_and_shares_no_id_with_another(digits_run: Run) -> None:
    first, again, other = (figures.svg(figures.overlaid([digits_run]), name) for name in ("one", "one", "two"))
    assert first == again
    ids = [set(re.findall(r'\bid="([^"]*)"', text)) for text in (first, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert set(re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', first)) <= {
        pair for each in ids[0] for pair in ((each, ""), ("", each))
    }


def test_every_colour_of_an_svg_follows_the_page(digits_run: Run) -> None:
    for name, drawing in drawn(digits_run).items():
        assert drawing is not None
        text = figures.svg(drawing.figure, name)
        assert "http" not in text
        fixed = re.sub(r"var\(--chart-\w+, #\w{6}\)", "", text)
        assert not re.search(r"(?:fill|stroke): ?#", fixed)


def test_the_users_own_style_is_neither_used_nor_changed(digits_run: Run) -> None:
    expected = figures.svg(figures.overlaid([digits_run]), "x")
    with matplotlib.style.context(["dark_background", {"xtick.bottom": False, "font.weight": "bold"}]):
        before = dict(matplotlib.rcParams)
        assert figures.svg(figures.overlaid([digits_run]), "x") == expected
        assert dict(matplotlib.rcParams) == before


def test_every_chart_can_be_read_off_from_left_to_right(digits_run: Run) -> None:
    for name, drawing in drawn(digits_run).items():
        assert drawing is not None
        figures.svg(drawing.figure, name)
        found = figures.readings(drawing)
        left, top, right, bottom = found["box"]
        assert 0 <= left < right <= 1
        assert 0 <= top < bottom <= 1
        places = [place for place, _, _ in found["stops"]]
        assert places
        assert places == sorted(places)
        assert left - 0.001 <= places[0]
        assert places[-1] <= right + 0.001


def test_what_is_read_off_is_what_the_run_recorded(digits_run: Run) -> None:
    charts = drawn(digits_run)
    last = digits_run.history[-1]
    plain = next(other for other in digits_run.others if other.method == "plain")

    def end(name: str) -> dict[str, str]:
        drawing = charts[name]
        assert drawing is not None
        assert drawing.stops[-1].title == f"epoch {len(digits_run.history)}"
        return dict(drawing.stops[-1].values)

    assert end("accuracy")["step-e-plus"] == f"{100 * last['test_accuracy']:.1f}%"
    assert end("accuracy")["plain"] == f"{100 * plain.history[-1]['test_accuracy']:.1f}%"
    assert end("kept") == {"trained on": f"{last['kept'] / 14.38:.1f}%", "dropped": f"{last['dropped'] / 14.38:.1f}%"}
    assert end("turnover") == {"came back": f"{last['came']:,}", "newly dropped": f"{last['went']:,}"}
    assert end("detection")["F1"] == f"{100 * last['f1']:.1f}%"
    histogram = charts["losses"]
    assert histogram is not None
    counted = [sum(int(count.replace(",", "")) for _, count in stop.values) for stop in histogram.stops]
    assert sum(counted) == 1438


def test_runs_that_ended_before_are_left_out_of_later_readings(digits_run: Run, plain_run: Run) -> None:
    drawing = figures.accuracy_curves([digits_run, plain_run])
    assert drawing is not None
    assert [len(stop.values) for stop in drawing.stops] == [2, 2, 1]


def test_an_estimate_is_drawn_with_its_range(digits_run: Run, tmp_path: Path) -> None:
    shutil.copytree(digits_run.path, tmp_path / "run")
    (tmp_path / "run" / "belief.npz").unlink()
    for rate, told in (
        ({"rate": 0.3, "low": 0.2, "high": 0.35}, [("estimated wrong", "30.0%"), ("range", "20.0% to 35.0%")]),
        ({"rate": 0.0, "low": 0.0, "high": 1.0}, None),
    ):
        (tmp_path / "run" / "summary.json").write_text(json.dumps(digits_run.summary.to_json() | {"noise_rate": rate}))
        drawing = figures.noise_range(Run(tmp_path / "run"))
        assert drawing is not None
        values = [stop.values for stop in drawing.stops]
        assert (told in values) if told else (len(values) == 3)
