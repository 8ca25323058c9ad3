import re
from collections import Counter

import pytest

from stepe.loop.schedule import check_epochs
from stepe.methods import METHODS as LIBRARY
from stepe.methods import make_method
from stepe.reproduction import grid, numbers
from stepe.reproduction.grid import Cell

LENGTHS = [2, 3, 10, 60, 120]


def whole(epochs: int = 60, seeds: tuple[int, ...] = (13, 21, 42)) -> list[Cell]:
    cells = [*grid.cifar100n(seeds), *grid.cifar10n(seeds), *grid.sensitivity(), *grid.cifar_stem()]
    return [cell.lasting(epochs) for cell in cells]


def test_the_methods_are_the_papers_under_its_names():
    assert list(grid.METHODS) == list(numbers.METHOD_TITLES)
    assert set(grid.METHODS.values()) <= set(LIBRARY)
    assert {name for name, ours in grid.METHODS.items() if name != ours} == {"baseline"}


def test_the_main_table_is_six_methods_under_three_seeds_as_the_paper_ran_them():
    cells = grid.cifar100n()
    assert {(cell.method, cell.seed) for cell in cells} == set(numbers.PER_SEED)
    assert len(cells) == 18
    settings = {(c.file, c.data, c.labels, c.stem, c.variant, c.epochs, c.warmup) for c in cells}
    assert settings == {("cifar100n", "cifar100n", "noisy", "imagenet", None, 60, 10)}
    assert all(cell.options == {} for cell in cells)


def test_cifar10n_has_the_papers_runs_and_two_label_sets_more():
    found = Counter((cell.labels, cell.method, cell.seed) for cell in grid.cifar10n())
    aggre = {("aggre", method, seed) for method in numbers.CIFAR10N for seed in (13, 21, 42)}
    more = {(labels, method, 42) for labels in ("worst", "rand1") for method in ("baseline", "step-e")}
    assert found == Counter(aggre | more)
    assert {(cell.file, cell.data, cell.stem) for cell in grid.cifar10n()} == {("cifar10n", "cifar10n", "imagenet")}


def test_sensitivity_changes_one_setting_at_a_time():
    cells = grid.sensitivity()
    step_e = [(cell.options, cell.warmup) for cell in cells if cell.method == "step-e"]
    assert step_e == [
        ({"rho_max": 0.25}, 10),
        ({"rho_max": 0.35}, 10),
        ({"rho_max": 0.55}, 10),
        ({}, 5),
        ({}, 20),
        ({"view": "plain"}, 10),
    ]
    assert [cell.options for cell in cells if cell.method == "truncation"] == [{"threshold": "first-epoch"}]
    paces = [cell.options for cell in cells if cell.method == "self-paced"]
    assert len(paces) == len({tuple(pace.items()) for pace in paces}) == 4
    assert all(pace.keys() == {"keep_start", "reach"} for pace in paces)
    assert {(cell.file, cell.data, cell.labels, cell.seed, cell.stem) for cell in cells} == {
        ("sensitivity", "cifar100n", "noisy", 42, "imagenet")
    }
    assert len(cells) == 11


def test_the_cifar_stem_has_the_main_table_under_one_seed():
    cells = grid.cifar_stem()
    assert [cell.method for cell in cells] == list(grid.METHODS)
    assert {(cell.file, cell.data, cell.labels, cell.seed, cell.stem, cell.variant) for cell in cells} == {
        ("cifar-stem", "cifar100n", "noisy", 42, "cifar", None)
    }


@pytest.mark.parametrize("epochs", LENGTHS)
def test_every_run_has_a_file_name_of_its_own(epochs):
    keys = [cell.key for cell in whole(epochs)]
    assert len(set(keys)) == len(keys) == 48
    assert all(re.fullmatch(r"[\w.%-]+", key) for key in keys)


def test_a_shorter_run_never_passes_for_a_longer_one():
    assert not {cell.key for cell in whole(60)} & {cell.key for cell in whole(3)}
    assert not {cell.key for cell in whole(4)} & {cell.key for cell in whole(3)}


@pytest.mark.parametrize("epochs", LENGTHS)
def test_every_run_can_be_carried_out(epochs):
    for cell in whole(epochs):
        check_epochs(cell.epochs, cell.warmup)
        assert cell.epochs == epochs
        method = grid.METHODS[cell.method]
        options = dict(cell.options)
        if "warmup" in LIBRARY[method].options():
            options["warmup"] = cell.warmup
        assert make_method(method, **options).name == method


@pytest.mark.parametrize(("epochs", "warmup"), [(60, 10), (120, 20), (30, 5), (7, 1), (3, 1)])
def test_the_warm_up_keeps_its_share_of_the_run(epochs, warmup):
    assert {cell.lasting(epochs).warmup for cell in grid.cifar100n((42,))} == {warmup}


def test_variants_are_named_and_described():
    variants = [cell.variant for cell in grid.sensitivity()]
    assert None not in variants
    for cell in whole():
        described = cell.describe()
        assert described.keys() == {"data", "labels", "method", "seed", "stem", "variant", "epochs"}
        assert described["variant"] == cell.variant
        assert described["seed"] == cell.seed


def test_only_the_main_tables_runs_under_one_seed_are_timed():
    timed = {(cell.file, cell.method, cell.seed) for cell in whole() if cell.timed}
    assert timed == {("cifar100n", method, 42) for method in grid.METHODS}


def test_seeds_that_were_asked_for_are_the_ones_that_run():
    assert {cell.seed for cell in grid.cifar100n((5, 6))} == {5, 6}
    found = {(cell.labels, cell.seed) for cell in grid.cifar10n((5, 6))}
    assert found == {("aggre", 5), ("aggre", 6)}
