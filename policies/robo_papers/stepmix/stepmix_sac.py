"""StepMix for continuous spaces: SAC takes over from a baseline late in an episode, and earlier once its returns allow.

After Li, Li, Yang, Shen and Shi 2023, "Near-optimal conservative exploration in reinforcement learning under episode-wise
constraints", arXiv:2306.06265. The paper computes bounds from a tabular model. Here they are computed from observed returns, so
that the guarantee is measured, not proven. H is the mean length of the baseline's episodes. Candidate k of K follows the
baseline before step H (1 - k / K), and SAC from then on.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_policies.learners.own_loop import OwnLoop
from robo_policies.learners.sac import SAC, SACSettings
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.protocols.components import Policy
from robo_rl.protocols.contract import OWN, Feature, Needs
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.training.episode_loop import EpisodeLoop
from robo_rl.types import DIVERGED, Array, Episode, Metrics, StateDict, Transition


@dataclass(frozen=True)
class StepMixSACConfig(SACSettings, OwnLoop):
    """Settings of StepMix with SAC (after Li et al. 2023, arXiv:2306.06265); the baseline is the scripted policy.

    They set the allowed loss, the candidates of when SAC takes over, and how their returns are bounded.
    """

    needs = Needs((OWN,), frozenset({Feature.CONTINUOUS}), {Feature.REWARD: "leave reward out", Feature.DEMONSTRATIONS: "none"})

    alpha: float = 0.2
    """Share of the baseline's mean return that an episode may lose in expectation."""
    worst_return: float | None = None
    """Lower bound of any episode's return, for candidates that were not tried often; must be set."""
    candidates: int = 8
    """K; candidate 0 is the baseline alone, candidate K is SAC alone."""
    window: int = 20
    """Newest episodes of a candidate whose returns its bound is computed from; older ones are of an older SAC."""
    least_episodes: int = 5
    """Episodes of a candidate before its bound counts."""
    deviations: float = 1.64
    """Standard errors by which a bound lies below the mean return; 1.64 is 95 % confidence for normal returns."""
    baseline_episodes: int = 20
    """Number of episodes that the baseline plays alone at the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {name: getattr(self, name) for name in ("candidates", "window", "baseline_episodes")}
        allowed = {name: (value >= 1, "1 or more") for name, value in counts.items()}
        allowed |= {"alpha": (0.0 <= self.alpha <= 1.0, "0 to 1"), "deviations": (self.deviations >= 0.0, "0 or more")}
        allowed |= {"least_episodes": (2 <= self.least_episodes <= self.window, "2 to window")}
        require_allowed(self, allowed)

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> SAC:
        return SAC(spec, self, seed)

    @override
    def loop(self) -> type[StepMixTraining]:
        return StepMixTraining


class Bounds:
    """Returns of each candidate's episodes, and the mixture of two neighbouring candidates that their bounds allow."""

    def __init__(self, config: StepMixSACConfig, worst: float) -> None:
        self._config, self._worst = config, worst
        self.returns = [deque[float](maxlen=config.window) for _ in range(config.candidates + 1)]
        self.baseline = list[float]()
        """All returns of the baseline alone."""

    @property
    def threshold(self) -> float:
        """Mean return that the training must keep in expectation.

        It is the baseline's mean, plus its error, minus alpha times the size of the mean.
        """
        mean = float(np.mean(self.baseline))
        error = self._config.deviations * float(np.std(self.baseline, ddof=1)) / float(np.sqrt(len(self.baseline)))
        return mean + error - self._config.alpha * abs(mean)

    def lower(self, candidate: int) -> float:
        """Return the lower bound of a candidate's mean return; the worst return while it has too few episodes."""
        found = self.baseline if candidate == 0 else self.returns[candidate]
        if len(found) < self._config.least_episodes:
            return self._worst
        bound = float(np.mean(found)) - self._config.deviations * float(np.std(found, ddof=1)) / float(np.sqrt(len(found)))
        return max(self._worst, bound)

    def mixture(self) -> tuple[int, int, float]:
        """Return the mixture of candidates that takes over earliest and still keeps the threshold.

        Returns:
            Two neighbouring candidates, and the probability of the second; (0, 0, 0.0), the baseline alone, until the
            baseline has enough episodes.
        """
        if len(self.baseline) < self._config.baseline_episodes or self.lower(0) < self.threshold:
            return 0, 0, 0.0
        threshold, late = self.threshold, 0
        for early in range(1, len(self.returns)):
            if (bound := self.lower(early)) < threshold:
                above = self.lower(late)
                return late, early, (above - threshold) / (above - bound)
            late = early
        return late, late, 0.0

    def add(self, candidate: int, value: float) -> None:
        """Store the return of an episode of a candidate."""
        (self.baseline if candidate == 0 else self.returns[candidate]).append(value)

    def state_dict(self) -> StateDict:
        """Return the returns of all candidates, to save them."""
        return {"baseline": list(self.baseline), "returns": [list(each) for each in self.returns]}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
        self.baseline = [float(value) for value in state["baseline"]]
        for own, saved in zip(self.returns, state["returns"], strict=True):
            own.clear()
            own.extend(float(value) for value in saved)


class TakeOver:
    """Policy of one episode of StepMix: the baseline acts at first, then SAC to the end."""

    def __init__(self, baseline: Policy, later: Policy, begin: int) -> None:
        """Join two policies. baseline: acts before step `begin`. later: acts from that step on."""
        self.environment_spec, self._policies, self._begin, self._step = later.environment_spec, (baseline, later), begin, 0

    def reset(self) -> None:
        """Start an episode, with the baseline."""
        self._step = 0
        for policy in self._policies:
            policy.reset()

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the baseline's or SAC's action (A,) float32, depending on the step of the episode."""
        acting = self._policies[self._step >= self._begin]
        self._step += 1
        return np.asarray(acting.act(observation, deterministic=deterministic), np.float32)


class StepMixTraining(EpisodeLoop):
    """Training loop of StepMix with SAC.

    In each episode the baseline acts first, and SAC takes over at the step that the bounds allow. SAC learns from all steps.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], config: StepMixSACConfig, *, steps: int, seed: int) -> None:
        super().__init__(environment, steps=steps, seed=seed)
        spec, self.config = self.environment_spec, config
        if not environment.has_wrapper_attr("scripted_policy"):
            raise InvalidSetting(f"{spec.name} has no scripted policy.", got="none", allowed="a baseline policy")
        if config.worst_return is None:
            fix = "set learner.worst_return to the least that an episode can return"
            raise InvalidSetting("The worst return is not known.", got="none", allowed="a number", fix=fix)
        self.baseline: Policy = environment.get_wrapper_attr("scripted_policy")(seed)
        self.learner = SAC(spec, config, seed)
        self.replay = ReplayBuffer(spec, config.replay.capacity, seed)
        self.bounds = Bounds(config, float(config.worst_return))
        self.lengths = list[int]()
        """[steps] length of each episode of the baseline alone."""
        self._random = np.random.default_rng(seed)
        self._candidate, self._figures = 0, dict[str, float]()

    @property
    @override
    def policy(self) -> Policy:
        """SAC's policy alone, without the baseline."""
        return self.learner.policy

    @override
    def choose(self) -> Policy:
        late, early, share = self.bounds.mixture()
        self._candidate = early if self._random.random() < share else late
        self._figures = {
            "train/candidate": float(late),
            "train/candidate_share": share,
            "train/lower_bound": self.bounds.lower(late),
        }
        return TakeOver(self.baseline, self.learner.policy, self.takes_over(self._candidate))

    def takes_over(self, candidate: int) -> int:
        """Return the step of an episode from which on SAC acts instead of the baseline, for a candidate.

        Candidate 0 is the baseline alone: its step is reached by no episode.
        """
        if candidate == 0:
            return sys.maxsize
        return round(float(np.mean(self.lengths)) * (1.0 - candidate / self.config.candidates))

    @override
    def begin(self, observation: Observation) -> None:
        self.replay.begin(observation)

    @override
    def see(self, transition: Transition) -> Metrics:
        if transition.info.get("stop_reason") == DIVERGED:  # such a step teaches nothing
            self.replay.cut()
        else:
            self.replay.add(transition)
        return self.stopwatch.time("update", self._learn)

    @override
    def finish(self, episode: Episode) -> Metrics:
        if episode.stop_reason != DIVERGED:
            self.bounds.add(self._candidate, episode.undiscounted_return)
            self.lengths += [len(episode)] if self._candidate == 0 else []
        return self._figures

    def _learn(self) -> Metrics:
        config = self.config
        if self.step < config.replay.learning_starts or not len(self.replay):
            return {}
        return self.learner.update(self.replay.sample(config.batch_size, config.replay.n_step, config.discount))

    @override
    def state_dict(self) -> StateDict:
        """Return the learner, its memory, the returns and the counters."""
        own = {"lengths": list(self.lengths), "random": self._random.bit_generator.state, "bounds": self.bounds.state_dict()}
        memories = {"learner": self.learner.state_dict(), "replay": self.replay.state_dict()}
        return memories | {"training": self.counters() | own}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`; the next episode is a new one."""
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        training = state["training"]
        self.load_counters(training)
        self._random.bit_generator.state = training["random"]
        self.bounds.load_state_dict(training["bounds"])
        self.lengths = [int(length) for length in training["lengths"]]
