"""CPO, constrained policy optimisation: Achiam, Held, Tamar and Abbeel 2017, arXiv:1705.10528.

Equation numbers are those of the paper, and so are g, b, H, c and delta, with g the gradient of the gain. T steps, N
environments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.clipped_step import divergence, probability_ratio
from robo_policies.learners.constrained import ConstrainedSettings, Costs
from robo_policies.learners.ppo import PPO, Constraint, Numbers, Passes, Pictures, Rows
from robo_policies.networks.policy_value import PolicyValue
from robo_rl.errors import require_allowed
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.on_policy import VectorStep
from robo_rl.training.rollout_buffer import RolloutBuffer
from robo_rl.types import Metrics, StateDict

SMALLEST = 1e-8
"""Squared norm below which a gradient counts as zero."""


@dataclass(frozen=True)
class TrustRegionSettings:
    """Settings group `trust_region` of CPO: size of the policy's step, and how it is computed."""

    max_kl: float = 0.01
    """[nat] size delta of the trust region: largest KL divergence of a step."""
    damping: float = 0.1
    """Number added to the diagonal of H, the Hessian of the KL divergence."""
    conjugate_steps: int = 15
    """Steps of the conjugate gradient method."""
    backtracks: int = 20
    """Largest number of shorter steps that are tried if a step breaks a condition."""
    shrink: float = 0.8
    """Factor by which each further try is shorter."""

    def __post_init__(self) -> None:
        allowed = {name: (getattr(self, name) > 0, "above 0") for name in ("max_kl", "conjugate_steps", "backtracks")}
        allowed |= {"damping": (self.damping >= 0, "0 or more"), "shrink": (0 < self.shrink < 1, "between 0 and 1")}
        require_allowed(self, allowed, group="trust_region")


@dataclass(frozen=True)
class CPOConfig(ConstrainedSettings):
    """Settings of CPO (Achiam et al. 2017, arXiv:1705.10528): policy steps in a trust region, within limits of costs.

    Its own fields set the trust region and a safety margin of the costs. lr, epochs and batch_size are those of the critics.
    """

    trust_region: TrustRegionSettings = TrustRegionSettings()
    """Size and computation of the policy's steps."""
    standard_errors: float = 0.0
    """Number of standard errors that are added to J_C, the mean over the episodes of a rollout, 0 or more: a mean that is low
    by chance then loosens nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"standard_errors": (self.standard_errors >= 0, "0 or more")})

    @override
    def constraint(self, spec: EnvironmentSpec, seed: int) -> TrustRegion:
        return TrustRegion(Costs(spec, self, seed), self)


class TrustRegion(Constraint):
    """Hooks that make PPO take CPO's step: one step of the policy per rollout, within trust region and linearised limits.

    Costs count relative to their limits, so that the step is the same in any unit; a limit of 0 leaves the unit as it is. With
    several costs the step respects the one with the largest relative violation.
    """

    def __init__(self, costs: Costs, config: CPOConfig) -> None:
        self.costs, self.config = costs, config
        self._cost_gains, self._violation = torch.zeros(0), 0.0
        self.newest: Metrics = {}
        """Share of the last step that was taken, and 1 if it only lowered the cost."""

    @override
    def begin(self) -> None:
        self.costs.rollout.begin()

    @override
    def observe(self, step: VectorStep, buffer: RolloutBuffer) -> None:
        self.costs.observe(step, buffer)

    @override
    def adapt(self) -> None:
        if count := len(finished := self.costs.count()):
            deviations = finished.std(0, ddof=1) if count > 1 else np.zeros(len(self.costs.names))
            self.costs.per_episode = self.costs.per_episode + self.config.standard_errors * deviations / math.sqrt(count)

    @override
    def judge(self, advantages: Tensor, vectors: Tensor, buffer: RolloutBuffer) -> Tensor:
        cost_advantages, rollout = self.costs.advantages(vectors, buffer), self.costs.rollout
        unit = np.where(self.costs.bounds > 0.0, self.costs.bounds, 1.0)
        relative = self.violations / unit
        number = int(np.argmax(relative))
        # b is the gradient of a mean over steps and c a sum over an episode: with the steps of an episode both have one unit
        scale = float(rollout.deviations[number] * rollout.steps_per_episode / unit[number])
        self._cost_gains, self._violation = scale * cost_advantages[:, number], float(relative[number])
        return advantages

    @property
    def violations(self) -> npt.NDArray[np.float64]:
        """(C,) violations c = J_C - d of the limits; far below 0 before the first episode has ended."""
        found = self.costs.per_episode
        return np.where(np.isfinite(found), found - self.costs.bounds, -np.inf)

    @override
    def improve(self, learner: PPO, pictures: Pictures, rows: Rows, learnt: Numbers) -> Passes:
        ratio, networks = self.climb(learner.networks, rows), learner.networks
        for batches in learner.passes(rows, learnt):
            for _, vectors, *_, returns, _ in batches:
                values = networks.heads(networks.encoded(vectors, {}))[1]
                learner.optimizer.descend((values - returns).square().mean())  # the actor's gradient is 0, and so is its step
        with torch.no_grad():
            values = networks.heads(networks.encoded(rows[1], {}))[1]
        return [[(ratio, rows[5], (values - rows[4]).square())]]

    def climb(self, networks: PolicyValue, rows: Rows) -> Tensor:
        """Take the policy's step on a rollout (algorithm 1); return the probability ratios of all rows (T N,)."""
        _, vectors, actions, old, _, gains = rows
        distribution, config, violation = networks.distribution, self.config.trust_region, self._violation
        actor = actor_of(networks)
        inputs = networks.encoded(vectors, {})

        def ratios() -> Tensor:
            return probability_ratio(distribution.log_density(networks.act(inputs[:, : networks.seen]), actions), old)

        def kl() -> Tensor:
            return divergence(ratios())

        ratio = ratios()
        g = flat_gradient((ratio * (gains - gains.mean()) / (gains.std() + 1e-8)).mean(), actor)
        b = flat_gradient((ratio * self._cost_gains).mean(), actor)

        def product(vector: Tensor) -> Tensor:
            gradient = flat_gradient(kl(), actor, keeps=True)
            return flat_gradient(gradient @ vector, actor) + config.damping * vector

        found = step_within(g, b, violation, config.max_kl, lambda v: solve(product, v, config.conjugate_steps))
        before = torch.cat([each.detach().reshape(-1) for each in actor])
        reward_before, accepted, step = float((ratio.detach() * gains).mean()), 0.0, found.step
        for number in range(config.backtracks):
            share = config.shrink**number
            set_parameters(actor, before + share * step)
            with torch.no_grad():
                ratio = ratios()
                cost_change = float(((ratio - 1.0) * self._cost_gains).mean())
                gain = float((ratio * gains).mean()) - reward_before
                is_near = float(divergence(ratio)) <= config.max_kl
            if is_near and cost_change <= max(-violation, 0.0) and (violation >= 0.0 or gain >= 0.0):
                accepted = share
                break
        if not accepted:
            set_parameters(actor, before)
            with torch.no_grad():
                ratio = ratios()
        self.newest = {"train/step_share": accepted, "train/recovery": float(found.kind == "recovery")}
        return ratio

    @override
    def metrics(self, buffer: RolloutBuffer) -> Metrics:
        """Return mean costs per step, the share of the last step that was taken, and 1 if it only lowered the cost."""
        return self.costs.metrics() | self.newest

    @override
    def state_dict(self) -> StateDict:
        return {"costs": self.costs.state_dict()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.costs.load_state_dict(state["costs"])


def actor_of(networks: PolicyValue) -> list[torch.nn.Parameter]:
    """Return the parameters of the policy, without those of the value function."""
    names = ("actor_trunk", "actor_weight", "actor_bias", "distribution", "encoder")
    return [value for name, value in networks.named_parameters() if name.partition(".")[0] in names]


def set_parameters(parameters: Sequence[torch.nn.Parameter], flat: Tensor) -> None:
    """Write the values of one flat tensor into parameters, in order."""
    for each, values in zip(parameters, flat.split([each.numel() for each in parameters]), strict=True):
        each.data.copy_(values.view(each.shape))


class PolicyStep(NamedTuple):
    """Step of a policy's parameters, and which of CPO's three cases it is."""

    step: Tensor
    kind: str
    """"free" (no constraint in the trust region), "constrained" or "recovery"."""


def step_within(g: Tensor, b: Tensor, c: float, delta: float, inverse: Callable[[Tensor], Tensor]) -> PolicyStep:
    """Return the parameters' step x that maximises g x within trust region and limit (eq. 10 to 13).

    The conditions are b x + c <= 0 and x H x / 2 <= delta. If no x fulfils both, the step only lowers the cost.

    Args:
        g: Gradient of the gain.
        b: Gradient of the cost.
        c: Violation of the limit.
        delta: Size of the trust region [nat].
        inverse: Function v -> H^-1 v.
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
    """Solve H x = wanted by conjugate gradients (Hestenes and Stiefel 1952).

    Args:
        product: Function v -> H v.
        wanted: Right-hand side.
        steps: Number of iterations.
    """
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
    """Return the gradient of a scalar by all parameters as one vector; keeps: True if it shall be differentiated again."""
    found = torch.autograd.grad(value, parameters, create_graph=keeps, retain_graph=True, allow_unused=True)
    pairs = zip(found, parameters, strict=True)
    return torch.cat([torch.zeros(each.numel()) if part is None else part.reshape(-1) for part, each in pairs])
