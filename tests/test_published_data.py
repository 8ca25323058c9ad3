"""Slices of the published data sets (docs/data.md), where $STEPE_DATA leads to them."""

import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch

import stepe
from stepe.beliefs.believe import believe
from stepe.beliefs.confident import prunable
from stepe.data.source import Source, open_source
from stepe.judges.neighbours import nearest
from stepe.loop.metrics import auroc
from stepe.options.layout import Layout

DATA = Path(os.environ.get("STEPE_DATA") or "nowhere")
TEXTS = DATA / "debian-packages.csv"
FEATURES = DATA / "cifar10n-features.npz"
PROBABILITIES = DATA / "ready-probabilities.npz"
TABLES = {  # rows, columns to learn from, classes
    "glass": (214, 9, 6),
    "income": (2000, 13, 9),
    "ionosphere": (351, 34, 2),
    "musk": (476, 166, 2),
    "pima2": (768, 8, 2),
    "satellite": (2000, 36, 6),
    "shuttle": (1992, 9, 3),
    "sonar": (208, 60, 2),
    "soybean": (675, 35, 18),
    "spam": (2000, 57, 2),
    "vehicle": (846, 18, 4),
    "votes": (435, 16, 2),
    "wisconsin": (699, 9, 2),
}


def needs(path: Path) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not path.exists(), reason=f"$STEPE_DATA does not lead to {path.name}")


def rows_of(source: Source) -> int:
    return len(source.labels) + len(source.test_labels)


@cache
def probabilities(name: str) -> npt.NDArray[Any]:
    with np.load(PROBABILITIES, allow_pickle=False) as stored:
        return stored[name]


@needs(DATA / "tables")
@pytest.mark.parametrize("name", TABLES)
def test_a_table_opens_by_its_label_column_with_all_its_rows_and_classes(name):
    rows, columns, classes = TABLES[name]
    path = DATA / "tables" / f"{name}.parquet"
    source = open_source(str(path), layout=Layout(label="__label"))
    assert (rows_of(source), source.classes, source.kind) == (rows, classes, "table")
    assert source.class_names == sorted(set(pd.read_parquet(path)["__label"]))
    assert pd.read_parquet(path).shape == (rows, columns + 1)
    assert np.isfinite(source.x).all()


@needs(TEXTS)
def test_texts_open_by_their_column(tmp_path):
    slice_ = tmp_path / "packages.csv"
    slice_.write_text("".join(TEXTS.open(encoding="utf-8").readlines()[:601]), encoding="utf-8")
    source = open_source(str(slice_), layout=Layout(label="section", text="description", id="package"))
    assert (rows_of(source), source.classes, source.kind) == (600, 12, "text")


@needs(FEATURES)
def test_features_of_pictures_tell_which_human_labels_are_wrong():
    with np.load(FEATURES, allow_pickle=False) as stored:
        features = stored["features"][:1000].astype(np.float32)
        clean, given = (stored[name][:1000].astype(np.int64) for name in ("clean", "worst"))
    neighbours = nearest(features, 10)
    share = (clean[neighbours] == clean[:, None]).mean()
    assert share > 0.5
    torch.manual_seed(0)
    model = torch.nn.Linear(features.shape[1], 10)
    inputs, labels = torch.from_numpy(features / features.std()), torch.from_numpy(given)
    result = stepe.fit(model, inputs, labels, rho_max=0.4, epochs=6, device="cpu")
    found = auroc(1 - result.belief.p_right, clean != given)
    assert found is not None
    assert found > 0.75


@needs(PROBABILITIES)
@pytest.mark.parametrize("network", ["resnet18", "efficientnet"])
@pytest.mark.parametrize("labels", ["planted", "aggre", "worst"])
def test_ready_probabilities_give_a_list_and_a_rate_near_the_truth(labels, network):
    n = 4000
    probability = probabilities(f"{labels}_{network}_probabilities")[-n:].astype(np.float64)
    given, truth = (probabilities(f"{labels}_{network}_{what}")[-n:].astype(np.int64) for what in ("labels", "truth"))
    wrong = given != truth
    pruned = prunable(probability, given)
    assert wrong[pruned].mean() > 0.7
    assert pruned[wrong].mean() > 0.5
    rate = believe(given, probability, evidence=0.5).rate
    assert rate.low <= wrong.mean() <= rate.high
    assert rate.rate == pytest.approx(wrong.mean(), abs=0.06)


@needs(PROBABILITIES)
@pytest.mark.parametrize("labels", ["planted", "aggre", "worst"])
def test_the_list_of_ready_probabilities_is_that_of_cleanlab(labels):
    filter_ = pytest.importorskip("cleanlab.filter")
    probability = probabilities(f"{labels}_efficientnet_probabilities").astype(np.float64)
    given = probabilities(f"{labels}_efficientnet_labels").astype(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = filter_.find_label_issues(given, probability, n_jobs=1)
    np.testing.assert_array_equal(prunable(probability, given), theirs)
