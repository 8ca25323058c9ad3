import torch
import torch.nn.functional as F

import stepe
from stepe.loop.ledger import Ledger, Observation
from stepe.methods import Task, make_method


def test_it_probes_once_when_the_warm_up_ends_and_cuts_once():
    task = Task(torch.arange(10) % 2, 2, epochs=6, seed=0, criterion=F.cross_entropy)
    ledger, method = Ledger(10), make_method("one-shot", rho_max=0.3, warmup=2)
    method.start(task, ledger)
    assert [method.wants_probe(epoch) for epoch in range(6)] == [False, False, True, False, False, False]
    assert method.plan(1, ledger).kept.all()
    method.observe(2, Observation(torch.arange(10.0)), ledger)
    for epoch in range(2, 6):
        plan = method.plan(epoch, ledger)
        assert torch.nonzero(~plan.kept).flatten().tolist() == [7, 8, 9]
        assert plan.drop_fraction == 0.3


def test_nobody_comes_or_goes_after_the_cut(blobs, make_model):
    result = stepe.fit(
        make_model(), blobs.x, blobs.given, method="one-shot", rho_max=0.25, warmup=2, epochs=6, device="cpu"
    )
    assert [row["went"] for row in result.history] == [0, 0, 24, 0, 0, 0]
    assert [row["came"] for row in result.history] == [0] * 6
    assert [row["probed"] for row in result.history].count(True) == 1
