"""Measure SAC and RLPD against Stable-Baselines3's SAC, SBX's if it is installed, and a loop over critics.

Whole training loops on HalfCheetah: simulation, acting, replay and one update a step, batch 256, two layers of 256, two
critics. Every contestant runs in its own process, as users start it, and is past its random steps and its compiler
before it is measured.
"""

from __future__ import annotations

import copy
import importlib.util
from contextlib import ExitStack
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from robo_bench.contestant import contestant
from robo_bench.measurement import Case, Contestants, Effort, Trial, each, rate
from robo_bench.trainings import advancing
from robo_bench.updates import SPEC
from robo_policies.learners.rlpd import RLPDConfig, RLPDReplay
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.settings import Network
from robo_rl.conformance.learners import random_batch
from robo_rl.environments.make import make_environment
from robo_rl.protocols.sampling import Replay
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import specification
from robo_rl.system.threads import use_threads
from robo_rl.training.off_policy import online_training

TASK = "HalfCheetah-v5"
RANDOM_STEPS, CHUNK = 100, 20  # [steps] before learning, as in Stable-Baselines3; between two looks at the clock
CRITICS, UPDATES_PER_STEP, BATCH = 10, 20, 256  # of the paper of RLPD


def cases(effort: Effort) -> list[Case]:
    """Return SAC and RLPD in whole training loops, and RLPD's updates with the paper's ensemble."""
    setting = f"{TASK}, batch 256, 2x256, one update a step, ours with {_threads(effort.threads or 1)}"
    many = f"rlpd, {CRITICS} critics, {UPDATES_PER_STEP} updates a step, ours with {_threads(effort.threads or 1)}"
    rate = unit(effort)
    found = [
        Case(f"sac {setting}", rate, partial(whole_loops, "sac")),
        Case(f"rlpd, two critics, {setting}", rate, partial(whole_loops, "rlpd")),
        Case(many, rate, updates_alone),
    ]
    if has_fast_bfloat16():
        found.append(Case(f"sac in bfloat16 (peers in float32) {setting}", rate, partial(whole_loops, "sac-bfloat16")))
    return found


def has_fast_bfloat16() -> bool:
    """Return True if this processor computes products in bfloat16 itself."""
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


LEARNERS: dict[str, SACConfig | RLPDConfig] = {
    "sac": SACConfig(replay=Replay(learning_starts=RANDOM_STEPS)),
    "sac-bfloat16": SACConfig(replay=Replay(learning_starts=RANDOM_STEPS), network=Network(precision="bfloat16")),
    "rlpd": RLPDConfig(critics=2, updates_per_step=1, replay=RLPDReplay(learning_starts=RANDOM_STEPS)),
}
MANY_CRITICS = RLPDConfig(critics=CRITICS, updates_per_step=UPDATES_PER_STEP)


def whole_loops(learner: str, effort: Effort, _: ExitStack) -> Contestants:
    """Return ours and the peers' SAC, each in its own process as users start it."""
    own = {"learner": learner, "threads": effort.threads or 1}  # one is the default of `robo-rl train`
    peers = {
        f"{name} sac, {_threads(effort.cores)}": contestant(f"{__name__}:peer", {"module": module}, effort)
        for name, module in (("sb3", "stable_baselines3"), ("sbx", "sbx"))
        if importlib.util.find_spec(module) is not None
    }
    return {"ours": contestant(f"{__name__}:ours", own, effort)} | peers


def updates_alone(effort: Effort, _: ExitStack) -> Contestants:
    """Return training steps without an environment: ours and a loop over critics."""
    loop = contestant(f"{__name__}:loop_over_critics", effort=effort)
    own = contestant(f"{__name__}:updates", {"threads": effort.threads or 1}, effort)
    return {"ours": own, f"loop over critics, {_threads(effort.cores)}": loop}


def unit(effort: Effort) -> str:
    """Return the unit of rates: steps by the clock, or by processor time."""
    return "steps per processor second" if effort.processor_time else "steps/s"


def _threads(count: int) -> str:
    return f"{count} threads" if count > 1 else "1 thread"


def ours(learner: str, threads: int) -> Trial:
    """Return a trial of one of our learners: environment steps per second of its training loop, after the random first steps.

    Args:
        learner: Name of the learner, a key of LEARNERS.
        threads: Number of threads of torch.
    """
    use_threads(threads)
    config = LEARNERS[learner]
    environment = make_environment(f"gymnasium/{TASK}")
    spec = specification(environment)
    demonstrations = [rollout(environment, RandomPolicy(spec, 0), seed=0)] if config.sampling.offline_fraction else []
    training = online_training(
        environment, config.build(spec, 0), config.sampling, steps=0, seed=0, demonstrations=demonstrations
    )
    advancing(training, 2 * RANDOM_STEPS)()
    return rate(advancing(training, CHUNK))


def peer(module: str) -> Trial:
    """Return a trial of the SAC of Stable-Baselines3, or of SBX, in its own training loop at its own settings."""
    algorithm: Any = importlib.import_module(module).SAC
    model = algorithm("MlpPolicy", gymnasium.make(TASK), learning_starts=RANDOM_STEPS, seed=0, device="cpu")
    learn = partial(model.learn, reset_num_timesteps=False)
    learn(2 * RANDOM_STEPS)
    return rate(each(lambda: learn(CHUNK), CHUNK))


def updates(threads: int) -> Trial:
    """Return a trial that only learns, from one batch."""
    use_threads(threads)
    learner, batch = MANY_CRITICS.build(SPEC, 0), random_batch(SPEC, BATCH * UPDATES_PER_STEP, seed=0)
    return rate(each(lambda: learner.update(batch)))


def loop_over_critics() -> Trial:
    """Return a trial of RLPD's updates as an ordinary program: a torch module per critic, autograd, torch.optim."""
    loop = CriticLoop(MANY_CRITICS)
    batch = random_batch(SPEC, BATCH * UPDATES_PER_STEP, seed=0)
    arrays = (batch.observations["state"], batch.actions, batch.rewards, batch.masks, batch.next_observations["state"])
    tensors = [torch.from_numpy(array) for array in arrays]
    return rate(each(lambda: loop.update(tensors)))


class CriticLoop:
    """RLPD with its critics one after the other."""

    def __init__(self, config: RLPDConfig) -> None:
        self._config = config
        self.actor = _network(17, 2 * 6, config.network.hidden, layer_norm=False)
        critics = [_network(17 + 6, 1, config.network.hidden, config.network.layer_norm) for _ in range(config.critics)]
        self.critics, self.targets = nn.ModuleList(critics), nn.ModuleList(copy.deepcopy(critics))
        self.log_alpha = nn.Parameter(torch.zeros(()))
        groups = {"actor": self.actor.parameters(), "critics": self.critics.parameters(), "alpha": [self.log_alpha]}
        self._adams = {name: torch.optim.Adam(group, config.lr) for name, group in groups.items()}

    def update(self, tensors: list[Tensor]) -> None:
        """Take the critic steps and one step of actor and temperature."""
        config, alpha = self._config, self.log_alpha.exp().detach()
        for part in zip(*(tensor.chunk(config.updates_per_step) for tensor in tensors), strict=True):
            observations, actions, rewards, masks, following = part
            with torch.no_grad():
                next_actions, _ = self._sample(following)
                subset = torch.randperm(config.critics)[: config.target_critics].tolist()
                next_q = self._q([self.targets[index] for index in subset], following, next_actions).amin(0)
                targets = rewards + config.discount * masks * next_q
            self._step("critics", ((self._q(self.critics, observations, actions) - targets) ** 2).mean())
            with torch.no_grad():
                for target, online in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                    target.lerp_(online, config.tau)
        drawn, log_densities = self._sample(observations)
        self._step("actor", (alpha * log_densities - self._q(self.critics, observations, drawn).mean(0)).mean())
        self._step("alpha", -(self.log_alpha * (log_densities.detach() - 3.0)).mean())

    def _sample(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(observations).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp(), validate_args=False)
        unbounded = normal.rsample()
        squash = 2.0 * (np.log(2.0) - unbounded - nn.functional.softplus(-2.0 * unbounded))
        return unbounded.tanh(), (normal.log_prob(unbounded) - squash).sum(-1)

    def _q(self, networks: Any, observations: Tensor, actions: Tensor) -> Tensor:
        pairs = torch.cat((observations, actions), -1)
        return torch.stack([network(pairs)[:, 0] for network in networks])

    def _step(self, name: str, loss: Tensor) -> None:
        self._adams[name].zero_grad()
        loss.backward()
        self._adams[name].step()


def _network(inputs: int, outputs: int, hidden: tuple[int, ...], layer_norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for units in hidden:
        layers += [nn.Linear(inputs, units), *([nn.LayerNorm(units)] if layer_norm else []), nn.ReLU()]
        inputs = units
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))
