"""Fit of a world model: passes through the data with early stopping on held-out rows, resumable after each pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.fitting import fit, resolve_device
from robo_rl.protocols.components import Stateful
from robo_rl.types import StateDict
from robo_rl.worlds.dynamics import Dynamics, DynamicsConfig, flags_of, inputs_of, member_parameters, targets_of
from robo_rl.worlds.steps import Steps

LEAST_STEPS = 2
"""Number of steps below which nothing can be held out."""
MOST_HELD_OUT = 5000
IMPROVEMENT = 0.01
"""Share by which the held-out error of a member must fall to count as improved."""
Passes = Callable[[Sequence[int], str], Iterable[int]]
"""Function that passes numbers on, and may show progress under a title."""


def quiet(numbers: Sequence[int], title: str) -> Iterable[int]:
    """Pass numbers on without showing them."""
    return numbers


class DynamicsFit(Stateful):
    """Fit of a world model that can be saved between its passes; each network sees the rows in an order of its own."""

    def __init__(self, steps: Steps, config: DynamicsConfig, dynamics: Dynamics | None = None) -> None:
        """Standardise the dynamics by the steps, or make new ones; raises InvalidSetting for too few steps."""
        if len(steps) < LEAST_STEPS:
            what, fix = "There are too few steps to learn a world from.", "record more episodes"
            raise InvalidSetting(what, got=len(steps), allowed=f"{LEAST_STEPS} or more", fix=fix)
        self.config, self.epoch, self.stale = config, 0, 0
        device = resolve_device(config.device)
        self.dynamics = dynamics or Dynamics(steps.states.shape[1], steps.actions.shape[1], config)
        self.dynamics.cpu().standardise(steps)
        self._random = np.random.default_rng(config.seed)
        order = torch.from_numpy(self._random.permutation(len(steps)))
        count = min(max(1, int(config.held_out * len(steps))), MOST_HELD_OUT)
        inputs, targets, flags = inputs_of(steps), self.dynamics.standardised(targets_of(steps)), flags_of(steps)
        self._held_out, self._rows = (
            [each[rows].to(device) for each in (inputs, targets, flags)] for rows in (order[:count], order[count:])
        )
        self.dynamics.to(device)
        self._optimizer = torch.optim.AdamW(self.dynamics.parameters(), config.lr, weight_decay=config.weight_decay, fused=True)
        self.errors = torch.full((config.members,), math.inf)
        """(K,) least held-out error of each member so far"""
        self._best = [each.detach().clone() for each in member_parameters(self.dynamics)]

    @property
    def is_over(self) -> bool:
        """True after the last pass, or if held-out rows have not been predicted better for some passes."""
        return self.epoch >= self.config.epochs or self.stale >= self.config.patience

    def run(self, passes: Passes = quiet, after: Callable[[], None] = lambda: None, most_updates: int = 0) -> Dynamics:
        """Fit until the held-out error no longer falls, and return the model with the best parameters of each network.

        Args:
            passes: Shows progress.
            after: Called after each pass, when the state may be saved.
            most_updates: Updates after which no further pass begins; 0 for no such limit.

        Raises:
            NonFiniteUpdate: The loss is not finite.
        """
        done, each = 0, -(-len(self._rows[0]) // self.config.batch_size)
        for _ in passes(range(self.epoch, self.config.epochs), "dynamics"):
            if self.is_over or (most_updates and done + each > max(most_updates, each)):
                break
            fit(self.dynamics, self._batches(), lambda rows: self.dynamics.loss(*rows), self._optimizer, title="dynamics")
            done += each
            self.epoch += 1
            self._look()
            after()
        return self._finish()

    def _batches(self) -> Iterator[list[Tensor]]:
        """Yield the batches of one pass, (K, B, ...) each."""
        members, total = self.config.members, len(self._rows[0])
        orders = torch.from_numpy(self._random.permuted(np.tile(np.arange(total), (members, 1)), axis=1))
        for begin in range(0, total, self.config.batch_size):
            rows = orders[:, begin : begin + self.config.batch_size].to(self._rows[0].device)
            yield [values[rows] for values in self._rows]

    def _look(self) -> None:
        """Keep the parameters of members that predict held-out rows better than before."""
        errors = self.dynamics.errors(*self._held_out).cpu()
        better = errors < self.errors
        self.stale = 0 if bool((errors < (1 - IMPROVEMENT) * self.errors).any()) else self.stale + 1
        for best, parameter in zip(self._best, member_parameters(self.dynamics), strict=True):
            best[better] = parameter.detach()[better]
        self.errors = torch.where(better, errors, self.errors)

    def _finish(self) -> Dynamics:
        with torch.no_grad():
            for best, parameter in zip(self._best, member_parameters(self.dynamics), strict=True):
                parameter.copy_(best)
        self.dynamics.elites.copy_(self.errors.argsort(stable=True)[: self.config.elites])
        return self.dynamics

    @override
    def state_dict(self) -> StateDict:
        moments = self._optimizer.state_dict()["state"]
        return {
            "dynamics": {name: values.detach().cpu().clone() for name, values in self.dynamics.state_dict().items()},
            "moments": {str(index): {name: each.clone() for name, each in state.items()} for index, state in moments.items()},
            "best": {str(index): each.cpu().clone() for index, each in enumerate(self._best)},
            "errors": self.errors.clone(),
            "random": self._random.bit_generator.state,
            "epoch": self.epoch,
            "stale": self.stale,
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        load_arrays(self.dynamics, state["dynamics"])
        own: dict[str, Any] = self._optimizer.state_dict()
        moments = {int(index): {name: copied(each) for name, each in kept.items()} for index, kept in state["moments"].items()}
        self._optimizer.load_state_dict({**own, "state": moments})
        for index, best in enumerate(self._best):
            best.copy_(copied(state["best"][str(index)]))
        self.errors = copied(state["errors"])
        self._random.bit_generator.state = state["random"]
        self.epoch, self.stale = int(state["epoch"]), int(state["stale"])


def copied(values: Any) -> Tensor:
    """Return a copy of a saved array, as a tensor."""
    return values.clone() if isinstance(values, Tensor) else torch.as_tensor(np.array(values))


def load_arrays(module: torch.nn.Module, arrays: StateDict) -> None:
    """Restore the parameters and buffers of a module from saved arrays."""
    module.load_state_dict({name: copied(values) for name, values in arrays.items()})
