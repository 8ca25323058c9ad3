import pytest
import torch
import torch.nn.functional as F

import stepe
from stepe.loop.ledger import Ledger, Observation
from stepe.methods import SelfPaced, Task, make_method


def test_the_easy_come_first_and_in_the_end_all():
    task = Task(torch.arange(10) % 2, 2, epochs=8, seed=0, criterion=F.cross_entropy)
    ledger, method = Ledger(10), make_method("self-paced", keep_start=0.2, reach=0.5)
    method.start(task, ledger)
    losses = torch.arange(10.0).flip(0)
    kept = []
    for epoch in range(8):
        assert method.wants_probe(epoch)
        method.observe(epoch, Observation(losses), ledger)
        kept.append(torch.nonzero(method.plan(epoch, ledger).kept).flatten().tolist())
    assert [len(indices) for indices in kept] == [2, 4, 6, 8, 10, 10, 10, 10]
    assert kept[0] == [8, 9]
    assert kept[2] == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("keep_start", [0.1, 0.3, 0.7, 1 / 3, 1.0])
def test_the_end_of_the_pace_is_exactly_all(keep_start, blobs, make_model):
    result = stepe.fit(
        make_model(), blobs.x, blobs.given, method=SelfPaced(keep_start=keep_start), epochs=4, device="cpu"
    )
    assert [row["dropped"] for row in result.history[2:]] == [0, 0]
    assert result.history[-1]["drop_fraction"] == 0
