"""The trace: a row an epoch, from which one sample's column is read."""

import numpy as np

from stepe.run.trace import ENTRY, LARGEST, Trace

DROPPED = np.array([False, True, True])
LOSS = np.array([0.5, 1e9, np.nan], np.float32)
PREDICTION = np.array([2, 0, 1])


def test_a_samples_entries_come_back_in_the_order_of_the_epochs(tmp_path):
    trace = Trace(tmp_path / "trace.bin", 3)
    trace.append(DROPPED, LOSS, PREDICTION)
    trace.append(~DROPPED, np.array([0.25, 2.0, 3.0]), np.array([1, 1, 1]))
    assert trace.sample(0).tolist() == [(0.5, 2, False), (0.25, 1, True)]
    assert trace.sample(1)["dropped"].tolist() == [True, False]
    assert trace.last()["loss"].tolist() == [0.25, 2.0, 3.0]


def test_a_loss_too_large_for_half_precision_stays_finite_and_nan_stays_nan(tmp_path):
    trace = Trace(tmp_path / "trace.bin", 3)
    trace.append(DROPPED, LOSS, PREDICTION)
    assert trace.sample(1)["loss"][0] == np.finfo(np.float16).max
    assert np.isnan(trace.sample(2)["loss"][0])


def test_without_a_fresh_probe_only_the_fate_is_told(tmp_path):
    trace = Trace(tmp_path / "trace.bin", 3)
    trace.append(DROPPED)
    loss, prediction, dropped = trace.sample(1)[0]
    assert np.isnan(loss)
    assert prediction == -1
    assert dropped


def test_truncating_forgets_later_epochs_and_torn_rows(tmp_path):
    trace = Trace(tmp_path / "trace.bin", 3)
    for _ in range(3):
        trace.append(DROPPED, LOSS, PREDICTION)
    with trace.path.open("ab") as file:
        file.write(b"torn")
    assert len(trace.sample(0)) == 3
    trace.truncate(2)
    assert trace.path.stat().st_size == 2 * 3 * ENTRY.itemsize
    trace.truncate(5)
    assert len(trace.sample(0)) == 2


def test_without_a_file_there_is_nothing_to_tell(tmp_path):
    trace = Trace(tmp_path / "trace.bin", 3)
    trace.truncate(1)
    assert len(trace.sample(0)) == 0
    assert len(trace.last()) == 0
    assert not trace.path.exists()


def test_a_run_whose_trace_would_be_a_burden_has_none():
    rows = LARGEST // ENTRY.itemsize // 1000
    assert Trace("unused", 1000).fits(rows - 1)
    assert not Trace("unused", 1000).fits(rows)
