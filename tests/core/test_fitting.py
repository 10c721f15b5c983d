"""The one fit of networks to data in memory: steps by hand, refused numbers, threads, the best parameters."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch

from robo_rl.errors import NonFiniteUpdate
from robo_rl.fitting import Best, fit
from robo_rl.system.threads import threads_in_use

ROOT = Path(__file__).parents[2]


def line(slope=0.0):
    network = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(network.weight, slope)
    return network


def loss_of(network):
    """Returns a loss of numbers x, least at a slope of 2."""
    return lambda x: (network(x[:, None]) - 2.0 * x[:, None]).square().mean()


def test_steps_are_those_of_the_optimiser_in_their_order():
    network, seen = line(), []

    def batches():
        for number in (1.0, 3.0):
            seen.append(float(network.weight.detach()))  # drawn after the step before
            yield torch.tensor([number])

    numbers = []
    last = fit(
        network, batches(), loss_of(network), torch.optim.SGD(network.parameters(), 0.1), title="a", after=numbers.append
    )
    first = 0.1 * 2.0 * 2.0  # the derivative of (w x - 2 x)^2 is 2 x^2 (w - 2)
    assert seen == pytest.approx([0.0, first]) and numbers == [0, 1]
    assert last == pytest.approx(9.0 * (first - 2.0) ** 2)
    assert float(network.weight.detach()) == pytest.approx(first - 0.1 * 2.0 * 9.0 * (first - 2.0))


def test_large_gradients_are_scaled():
    network = line()
    optimizer = torch.optim.SGD(network.parameters(), 1.0)
    fit(network, [torch.tensor([100.0])], loss_of(network), optimizer, title="a", largest_norm=0.5)
    assert float(network.weight.detach()) == pytest.approx(0.5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_refused_before_the_step(bad):
    network = line(slope=1.0)
    batches = [torch.tensor([2.0]), torch.tensor([bad]), torch.tensor([2.0])]
    optimizer = torch.optim.SGD(network.parameters(), 0.0)
    with pytest.raises(NonFiniteUpdate, match=r"(nan|inf) in update 1 of 'users'(.|\n)*do:.*learning rate"):
        fit(network, batches, loss_of(network), optimizer, title="users")
    assert float(network.weight.detach()) == 1.0


def test_without_batches_there_is_no_loss():
    network = line()
    assert math.isnan(fit(network, [], loss_of(network), torch.optim.SGD(network.parameters(), 0.1), title="a"))


@pytest.mark.parametrize(("wanted", "expected"), [("", 1), ("2", 2), ("many", 1), ("0", 1)])
def test_threads_are_one_or_those_of_the_variable(wanted, expected, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    before, seen, network = threads_in_use(), [], line()
    torch.set_num_threads(3)
    try:
        optimizer = torch.optim.SGD(network.parameters(), 0.1)
        fit(network, [torch.ones(1)], loss_of(network), optimizer, title="a", after=lambda _: seen.append(threads_in_use()))
        assert (seen, threads_in_use()) == ([expected], 3)
    finally:
        torch.set_num_threads(before)


def test_best_keeps_copies_of_the_least_loss():
    network = line(slope=1.0)
    best = Best(network)
    for slope, loss in ((2.0, 0.5), (3.0, 0.5), (4.0, math.nan), (5.0, 0.7)):
        torch.nn.init.constant_(network.weight, slope)
        best.look(loss)
    best.restore()
    assert float(network.weight.detach()) == 2.0 and best.loss == 0.5


def test_no_network_is_fitted_by_a_loop_of_its_own():
    """Losses are minimised here and by the optimisers of learners."""
    own = {"robo_rl/fitting.py"}
    modules = [
        path for folder in ("robo_rl", "policies", "sims", "datasets", "real_robot") for path in (ROOT / folder).rglob("*.py")
    ]
    learners = [ROOT / "policies/robo_policies" / name for name in ("learners", "networks/accelerated")]
    kept = [path for path in modules if path.name != "study.py"]  # a paper's measurements, as benches are
    others = [path for path in kept if not any(path.is_relative_to(folder) for folder in learners)]
    found = {str(path.relative_to(ROOT)) for path in others if re.search(r"\.backward\(|optimizer\.step\(", path.read_text())}
    assert len(others) > 300 and found == own
