"""After a step that was not the policy's the rest of its plan is dropped: the next action comes of the newest observation."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from factories import axes, make_spec
from robo_papers.bresa.learner import BresaConfig, BresaTraining
from robo_papers.sac_prior.environment import PriorEnv
from robo_papers.spo.mixture import MixturePolicy
from robo_policies.learners.act import ACTConfig
from robo_policies.learners.diffusion_bc import DiffusionBCConfig
from robo_policies.learners.flow_bc import FlowBCConfig
from robo_policies.learners.residual import ResidualEnv
from robo_policies.networks.settings import Network
from robo_rl.conformance.learners import check_policy
from robo_rl.errors import ConformanceFailure
from robo_rl.rollout.episode import Rollout
from robo_rl.settings import updated
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ArraySpec
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.step_sources import Explorer
from robo_rl.types import ActionSource, Array

SPEC = make_spec("test/Walk", ArraySpec("position", (2,)), action=axes("x", "y"), max_steps=20)
SMALL: dict[str, Any] = {"network": {"hidden": (8,)}, "batch_size": 8, "chunk": 8}
PLANNERS = {
    "flow-bc": updated(FlowBCConfig(), SMALL, executed=8, integration_steps=2),
    "diffusion-bc": updated(DiffusionBCConfig(), SMALL, executed=8, noise_levels=2),
    "act": updated(ACTConfig(), SMALL, network={"token_size": 8, "heads": 2, "latent": 3, "encoder_layers": 1}),
    "act-whole-chunks": updated(
        ACTConfig(), SMALL, executed=8, network={"token_size": 8, "heads": 2, "latent": 3, "encoder_layers": 1}
    ),
}
OTHERS = range(2, 6)
"""Steps, from 0 on, whose action is not the policy's."""


class Walk(gymnasium.Env[Any, Any]):
    """Adds actions up; `info` is that of the steps in OTHERS."""

    environment_spec = SPEC
    observation_space, action_space = SPEC.observation.space, SPEC.action.space

    def __init__(self, info: dict[str, Any] | None = None) -> None:
        self.info = info or {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.position, self.count = np.zeros(2, np.float32), 0
        return {"position": self.position.copy()}, {}

    def step(self, action: Any) -> Any:
        info = self.info if self.count in OTHERS else {}
        self.position = self.position + np.asarray(action, np.float32)
        self.count += 1
        return {"position": self.position.copy()}, 0.0, False, self.count == 20, dict(info)


class Takeover:
    """A person acts in the steps of OTHERS."""

    def reset(self) -> None:
        self.count = -1

    def override(self, observation: Any, proposed: Array) -> tuple[Array, ActionSource]:
        self.count += 1
        acts = self.count in OTHERS
        return (np.float32([0.5, -0.5]), ActionSource.HUMAN) if acts else (proposed, ActionSource.POLICY)


def planner(name: str) -> tuple[Any, list[tuple[Array, Array]]]:
    """Return a policy, and what it plans: pairs of the position that was seen and the chunk."""
    policy = PLANNERS[name].build(SPEC, 0).policy
    plans: list[tuple[Array, Array]] = []
    propose = policy.proposed

    def proposed(observation: Any, generator: Any) -> Array:
        chunk = propose(observation, generator)
        plans.append((np.array(observation["position"]), chunk.copy()))
        return chunk

    policy.proposed = proposed
    return policy, plans


def require_age_0(proposed: Array, position: Array, plans: list[tuple[Array, Array]]) -> None:
    """The action is the first one of a chunk that was planned for this position."""
    seen, chunk = plans[-1]
    np.testing.assert_array_equal(seen, position)
    np.testing.assert_allclose(proposed, np.clip(chunk[0], -1.0, 1.0), atol=1e-6)


OVERRIDES: dict[str, tuple[dict[str, Any], Any]] = {
    "person": ({}, Takeover()),
    "guard": ({"executed_action": np.zeros(2, np.float32), "guard": ["speed"]}, None),
    "script": ({"action_source": ActionSource.SCRIPT}, None),
}


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("override", OVERRIDES)
@pytest.mark.parametrize("name", PLANNERS)
def test_first_action_after_an_override_has_age_0(name: str, override: str, deterministic: bool) -> None:
    info, supervisor = OVERRIDES[override]
    policy, plans = planner(name)
    rollout = Rollout(Walk(info), policy, seed=0, supervisor=supervisor, deterministic=deterministic)
    for step in range(8):
        before = rollout.observation["position"]
        transition = rollout.step()
        assert (transition.source is ActionSource.POLICY) == (step not in OTHERS)
        if step - 1 in OTHERS:
            require_age_0(transition.policy_action, before, plans)
    if PLANNERS[name].executed == 8:
        assert len(plans) == 1 + len(OTHERS)  # a plan that is followed is not made again


def wrapped(kind: str, policy: Any) -> Any:
    if kind == "mixture":
        return MixturePolicy([policy])
    return Explorer(policy, seed=0, random_steps=0, stopwatch=Stopwatch())


@pytest.mark.parametrize("kind", ["mixture", "explorer"])
def test_policies_that_wrap_another_pass_it_on(kind: str) -> None:
    policy, plans = planner("flow-bc")
    rollout = Rollout(Walk(), wrapped(kind, policy), seed=0, supervisor=Takeover(), deterministic=True)
    for _ in range(6):
        rollout.step()
    before = rollout.observation["position"]
    require_age_0(rollout.step().policy_action, before, plans)


@pytest.mark.parametrize("name", PLANNERS)
def test_resumed_in_an_intervention_it_plans_as_before(name: str) -> None:
    policy, _ = planner(name)
    whole = Rollout(Walk(), policy, seed=0, supervisor=Takeover())
    for _ in range(4):
        whole.step()
    again, plans = planner(name)
    again.load_state_dict(policy.state_dict())
    supervisor = Takeover()
    supervisor.count = 3
    resumed = Rollout.resume(Walk(), again, whole.state_dict(), supervisor=supervisor)
    assert resumed.exact
    for _ in range(4):
        before = resumed.observation["position"]
        one, other = whole.step(), resumed.step()
        np.testing.assert_array_equal(one.policy_action, other.policy_action)
        if len(resumed) <= OTHERS.stop + 1:
            require_age_0(other.policy_action, before, plans)


def test_base_of_a_residual_plans_anew_after_its_guard() -> None:
    policy, plans = planner("flow-bc")
    environment = ResidualEnv(Walk({"guard": ["speed"]}), lambda seed: policy)
    environment.reset(seed=0)
    for _ in range(6):
        observation, *_ = environment.step(np.zeros(2, np.float32))
    require_age_0(observation["base_action"], observation["position"], plans)
    assert len(plans) == 1 + len(OTHERS)


def test_prior_has_age_0_at_every_step() -> None:
    policy, plans = planner("flow-bc")
    environment = PriorEnv(Walk(), lambda seed: policy, std=0.5)
    observation, _ = environment.reset(seed=0)
    for _ in range(6):
        require_age_0(observation["prior_action"], observation["position"], plans)
        observation, *_ = environment.step(np.ones(2, np.float32))


def test_held_action_of_a_reflex_is_dropped() -> None:
    spec = make_spec("test/Costly", ArraySpec("position", (2,)), action=axes("x", "y"), costs=(CostSpec("hazard", 1.0),))
    environment = Walk()
    environment.environment_spec = spec
    config = BresaConfig(network=Network(hidden=(8,)), batch_size=8, hold=5, risk_threshold=1.0)
    check_policy(BresaTraining(environment, config, steps=8, seed=0).policy, spec)


def test_plan_without_replan_is_found() -> None:
    class Stubborn:
        environment_spec = SPEC

        def __init__(self) -> None:
            self._inner = PLANNERS["flow-bc"].build(SPEC, 0).policy
            self.reset, self.act = self._inner.reset, self._inner.act

    with pytest.raises(ConformanceFailure, match="needs a method `replan`"):
        check_policy(Stubborn(), SPEC)
