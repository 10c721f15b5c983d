"""Constrained policy optimisation: Achiam, Held, Tamar and Abbeel 2017, arXiv:1705.10528.

Equation numbers are those of the paper; g, b, H, c and delta as there, for the gain g that is climbed. T steps, N environments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.constrained import ConstrainedConfig, ConstrainedPPO
from robo_policies.learners.ppo import Pictures, Rows, Step, divergence, minibatches
from robo_rl.errors import require_allowed
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Metrics

SMALLEST = 1e-8
"""Squared norms below it count as no gradient."""


@dataclass(frozen=True)
class CPOConfig(ConstrainedConfig):
    """Settings of CPO; lr, epochs and batch_size are those of the critics."""

    max_kl: float = 0.01
    """[nat] delta, size of the trust region."""
    damping: float = 0.1
    """Added to the diagonal of H."""
    conjugate_steps: int = 15
    """Steps of the conjugate gradient method."""
    backtracks: int = 20
    """Shorter steps that are tried."""
    shrink: float = 0.8
    """Share of the step that is left after each of them."""
    standard_errors: float = 0.0
    """Added to J_C, the mean over the episodes of a rollout: a mean that is low by chance then loosens nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {name: (getattr(self, name) > 0, "above 0") for name in ("max_kl", "conjugate_steps", "backtracks")}
        allowed |= {name: (getattr(self, name) >= 0, "0 or more") for name in ("damping", "standard_errors")}
        allowed |= {"shrink": (0 < self.shrink < 1, "between 0 and 1")}
        require_allowed(self, allowed)

    @override
    def build(self, spec: EnvironmentSpec, seed: int, *, steps: int = 0) -> CPO:
        return CPO(spec, self, seed, rollouts=math.ceil(steps / self.rollout_size))


class CPO(ConstrainedPPO):
    """One step of the policy per rollout, in a trust region and inside the linearised constraint.

    With several costs the step respects the one with the largest relative violation.
    """

    config: CPOConfig

    def __init__(self, spec: EnvironmentSpec, config: CPOConfig, seed: int, *, rollouts: int = 0) -> None:
        super().__init__(spec, config, seed, rollouts=rollouts)
        self.bounds = np.array([self.limits[name] for name in self.names])
        networks, names = self.networks, ("actor_trunk", "actor_weight", "actor_bias", "distribution", "encoder")
        self._actor = [value for name, value in networks.named_parameters() if name.partition(".")[0] in names]
        self._cost_gains = torch.zeros(0)
        self._newest: Metrics = {}

    @override
    def constrain(self) -> None:
        finished, count = self.buffer.finished, len(self.buffer.finished)
        deviations = finished.std(0, ddof=1) if count > 1 else np.zeros(len(self.names))
        self.episode_costs = self.episode_costs + self.config.standard_errors * deviations / math.sqrt(count)

    @override
    def weigh(self, advantages: Tensor, cost_advantages: Tensor) -> Tensor:
        number = int(np.argmax(self._violations / np.maximum(self.bounds, 1.0)))
        # b is the gradient of a mean over steps and c a sum over an episode: with the steps of an episode both have one unit
        scale = float(self.buffer.deviations[number] * self.buffer.steps_per_episode)
        self._cost_gains, self._violation = scale * cost_advantages[:, number], float(self._violations[number])
        return advantages

    @property
    def _violations(self) -> npt.NDArray[np.float64]:
        """(C,) c = J_C - d; far inside before the first episode has ended."""
        return np.where(np.isfinite(self.episode_costs), self.episode_costs - self.bounds, -np.inf)

    @override
    def _descend(self, pictures: Pictures, rows: Rows, learnt: npt.NDArray[np.int64]) -> list[list[Step]]:
        ratio = self._climb(rows)
        optimizer = self._optimizer
        optimizer.lr, optimizer.norms = self.learning_rate, []
        for _ in range(self.config.epochs):
            order = learnt[self._shuffling.permutation(len(learnt))]
            for _, vectors, *_, returns, _ in minibatches(rows, order, self.config.batch_size):
                values = self.networks.heads(self.networks.encoded(vectors, {}))[1]
                optimizer.gradient.zero_()
                (values - returns).square().mean().backward()
                optimizer.step(optimizer.gradient)  # the actor's gradient is 0, and so is its step
            self.updates += 1
        with torch.no_grad():
            values = self.networks.heads(self.networks.encoded(rows[1], {}))[1]
        return [[(ratio, rows[5], (values - rows[4]).square())]]

    def _climb(self, rows: Rows) -> Tensor:
        """Take the step of the policy, algorithm 1; returns the ratios of all rows (T N,)."""
        _, vectors, actions, old, _, gains = rows
        distribution, config, violation = self.networks.distribution, self.config, self._violation
        inputs = self.networks.encoded(vectors, {})

        def ratios() -> Tensor:
            return self.ratio(distribution.log_density(self.networks.act(inputs[:, : self.networks.seen]), actions), old)

        def kl() -> Tensor:
            return divergence(ratios())

        ratio = ratios()
        g = flat_gradient((ratio * (gains - gains.mean()) / (gains.std() + 1e-8)).mean(), self._actor)
        b = flat_gradient((ratio * self._cost_gains).mean(), self._actor)

        def product(vector: Tensor) -> Tensor:
            gradient = flat_gradient(kl(), self._actor, keeps=True)
            return flat_gradient(gradient @ vector, self._actor) + config.damping * vector

        found = step_within(g, b, violation, config.max_kl, lambda v: solve(product, v, config.conjugate_steps))
        before = torch.cat([each.detach().reshape(-1) for each in self._actor])
        reward_before, accepted, step = float((ratio.detach() * gains).mean()), 0.0, found.step
        for number in range(config.backtracks):
            share = config.shrink**number
            self._set_actor(before + share * step)
            with torch.no_grad():
                ratio = ratios()
                cost_change = float(((ratio - 1.0) * self._cost_gains).mean())
                gain = float((ratio * gains).mean()) - reward_before
                is_near = float(divergence(ratio)) <= config.max_kl
            if is_near and cost_change <= max(-violation, 0.0) and (violation >= 0.0 or gain >= 0.0):
                accepted = share
                break
        if not accepted:
            self._set_actor(before)
            with torch.no_grad():
                ratio = ratios()
        self._let_act()
        self._newest = {"train/step_share": accepted, "train/recovery": float(found.kind == "recovery")}
        return ratio

    def _set_actor(self, flat: Tensor) -> None:
        for each, values in zip(self._actor, flat.split([each.numel() for each in self._actor]), strict=True):
            each.data.copy_(values.view(each.shape))

    @override
    def constraint_metrics(self) -> Metrics:
        """Return the share of the last step that was taken, and 1 if it only lowered the cost."""
        return self._newest


class PolicyStep(NamedTuple):
    """Step of a policy's parameters, and the case that it comes from."""

    step: Tensor
    kind: str
    """"free" (no constraint in the trust region), "constrained" or "recovery"."""


def step_within(g: Tensor, b: Tensor, c: float, delta: float, inverse: Callable[[Tensor], Tensor]) -> PolicyStep:
    """Return x that maximises g x with b x + c <= 0 and x H x / 2 <= delta, eq. 10 to 13; a pure descent of b if none exists.

    inverse: v -> H^-1 v.
    """
    up = inverse(g)
    q = float(g @ up)
    free = PolicyStep(math.sqrt(2.0 * delta / max(q, SMALLEST)) * up, "free")
    down = inverse(b)
    r, s = float(g @ down), float(b @ down)
    if s < SMALLEST or not math.isfinite(c):
        return free
    in_reach = 2.0 * delta - c * c / s
    if in_reach < 0.0:
        return free if c < 0.0 else PolicyStep(-math.sqrt(2.0 * delta / s) * down, "recovery")
    # Dual: minimise over lambda > 0 the branch in which nu = (r + lambda c) / s is positive, and the one in which nu is 0.
    left = max(q - r * r / s, 0.0)
    low, high = _positive(r, c)
    active = _project(math.sqrt(left / max(in_reach, SMALLEST)), low, high)
    slack = [_project(math.sqrt(q / (2.0 * delta)), *side) for side in _others(low, high)]
    duals = [(left / (2.0 * active) + active * in_reach / 2.0 - r * c / s, active)] if active else []
    duals += [(q / (2.0 * each) + each * delta, each) for each in slack if each]
    multiplier = min(duals)[1]
    nu = max(0.0, (r + multiplier * c) / s)
    return PolicyStep((up - nu * down) / multiplier, "constrained" if nu > 0.0 else "free")


def _positive(r: float, c: float) -> tuple[float, float]:
    """Return the open interval of lambda > 0 in which r + lambda c > 0; empty if the ends are equal."""
    if c == 0.0:
        return (0.0, math.inf) if r > 0.0 else (0.0, 0.0)
    edge = max(-r / c, 0.0)
    return (edge, math.inf) if c > 0.0 else (0.0, edge)


def _others(low: float, high: float) -> list[tuple[float, float]]:
    """Return the rest of lambda > 0."""
    return [(a, b) for a, b in ((0.0, low), (high, math.inf)) if b > a]


def _project(value: float, low: float, high: float) -> float:
    """Return the value nearest to `value` in the interval, at least SMALLEST; 0 for an empty one."""
    return 0.0 if high <= low else min(max(value, low, SMALLEST), max(high, SMALLEST))


def solve(product: Callable[[Tensor], Tensor], wanted: Tensor, steps: int) -> Tensor:
    """Return x with H x = wanted, by conjugate gradients (Hestenes and Stiefel 1952)."""
    x, residual = torch.zeros_like(wanted), wanted.clone()
    direction, square = residual.clone(), residual @ residual
    for _ in range(steps):
        if float(square) < 1e-20:
            break
        image = product(direction)
        length = square / (direction @ image)
        x, residual = x + length * direction, residual - length * image
        before, square = square, residual @ residual
        direction = residual + square / before * direction
    return x


def flat_gradient(value: Tensor, parameters: list[torch.nn.Parameter], *, keeps: bool = False) -> Tensor:
    """Return the gradient in one tensor; keeps: it can be differentiated again."""
    found = torch.autograd.grad(value, parameters, create_graph=keeps, retain_graph=True, allow_unused=True)
    pairs = zip(found, parameters, strict=True)
    return torch.cat([torch.zeros(each.numel()) if part is None else part.reshape(-1) for part, each in pairs])
