"""Plausibility of transitions: a game of a transition model and a judge, of which earlier judges are kept.

Luo et al. 2024, "Reward-Consistent Dynamics Models are Strongly Generalizable for Offline Reinforcement Learning",
arXiv:2310.05422. N rows, S elements of a state, A of an action, J judges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_rl.ensemble import Ensemble
from robo_rl.fitting import fit
from robo_rl.worlds.dynamics import Dynamics, DynamicsConfig, inputs_of, targets_of
from robo_rl.worlds.steps import Steps

Floats = npt.NDArray[np.float32]

LARGEST_LOGIT = 6.0
"""Logits of judges are clipped there, so that no transition is certain."""


@dataclass(frozen=True)
class GameConfig:
    """Settings of the game between model and judge."""

    hidden: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of both."""
    judges: int = 10
    """Judges that are kept, at equal distances from the whole of the game; the paper has 10 and 40."""
    updates: int = 3000
    """Updates of each."""
    batch_size: int = 256
    """Recorded steps of one update."""
    lr: float = 1e-3
    """Learning rate of both."""
    fooling: float = 0.1
    """Weight of the judge in the loss of the model, beside the likelihood of the recorded steps."""


class Plausibility(nn.Module):
    """Judges of transitions (s, a, s'), kept from a game: the dynamics reward."""

    scale: Tensor
    centre: Tensor

    def __init__(self, states: int, actions: int, config: GameConfig, seed: int) -> None:
        """states: S. actions: A. It judges nothing before `fit`."""
        super().__init__()
        self.config, self.seed = config, seed
        self.judges = Ensemble((2 * states + actions, *config.hidden, 1), config.judges, seed)
        self.register_buffer("scale", torch.ones(states))
        self.register_buffer("centre", torch.zeros(states))

    def fit(self, steps: Steps) -> Plausibility:
        """Play the game on recorded steps, keep judges, and return self; raises NonFiniteUpdate."""
        config, count = self.config, len(self.scale)
        shape = DynamicsConfig(hidden=config.hidden, members=1, elites=1, seed=self.seed)
        model = Dynamics(count, steps.actions.shape[1], shape)
        model.standardise(steps)
        self.scale.copy_(model.scale[:-1])
        self.centre.copy_(model.centre[:-1])
        changes, inputs = model.standardised(targets_of(steps))[:, :-1], inputs_of(steps)
        judge = Ensemble((inputs.shape[1] + count, *config.hidden, 1), 1, self.seed + 1)
        for each in (judge, self.judges):
            each.mean.copy_(torch.cat([model.network.mean, torch.zeros(count)]))
            each.deviation.copy_(torch.cat([model.network.deviation, torch.ones(count)]))
        optimizers = [torch.optim.AdamW(each.parameters(), config.lr, fused=True) for each in (judge, model)]
        generator = torch.Generator().manual_seed(self.seed)
        for update in range(config.updates):
            rows = torch.randint(len(steps), (config.batch_size,), generator=generator)
            asked, real = inputs[rows], changes[rows]
            means, logs, _ = model(asked)
            mean, log = means[0, :, :-1], logs[0, :, :-1]
            made = mean + torch.exp(0.5 * log) * torch.randn(mean.shape, generator=generator)
            told, fooled = (_logits(judge, asked, each)[0] for each in (real, made.detach()))
            _descend(judge, optimizers[0], functional.softplus(-told).mean() + functional.softplus(fooled).mean())
            likelihood = ((mean - real).square() * torch.exp(-log) + log).mean()
            fooling = functional.softplus(-_logits(judge, asked, made)[0]).mean()
            _descend(model, optimizers[1], likelihood + config.fooling * fooling)
            if (update + 1) * config.judges // config.updates > update * config.judges // config.updates:
                self._keep(judge, update * config.judges // config.updates)
        return self

    @torch.no_grad()
    def _keep(self, judge: Ensemble, place: int) -> None:
        for kept, now in zip(self.judges.parameters(), judge.parameters(), strict=True):
            kept[place] = now[0]

    @torch.no_grad()
    def scores(self, states: Floats, actions: Floats, following: Floats) -> Floats:
        """Return -log(1 - mean of the judges' chances that a transition is real), (N,); rows that are not finite get 0."""
        known = self.scale > 0
        changes = (torch.from_numpy(following - states) - self.centre) / torch.where(known, self.scale, 1.0)
        asked = torch.from_numpy(np.concatenate([states, actions], 1))
        logits = _logits(self.judges, asked, torch.where(known, changes, 0.0))
        found: Floats = (-torch.log1p(-logits.sigmoid().mean(0))).numpy()
        return np.where(np.isfinite(found), found, np.float32(0.0))


def _logits(judges: Ensemble, asked: Tensor, changes: Tensor) -> Tensor:
    """Return the logits (J, N) that transitions are real, given states and actions, and standardised changes."""
    return judges.outputs(torch.cat([asked, changes], 1))[..., 0].clamp(-LARGEST_LOGIT, LARGEST_LOGIT)


def _descend(network: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    fit(network, [loss], lambda whole: whole, optimizer, title="game of model and judge")
