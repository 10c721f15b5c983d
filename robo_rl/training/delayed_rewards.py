"""Delayed rewards of a model: steps wait for their rewards before they enter a replay memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.rewards import DelayedRewards, Relabelling
from robo_rl.protocols.sampling import Sampling, StepMemory
from robo_rl.spec.environment import Observation
from robo_rl.types import StateDict, Transition


def relabelling(rewards: DelayedRewards | None, sampling: Sampling) -> Relabelling | None:
    """Return the object that replaces the rewards of each batch, with room for all steps of the replay memory.

    Args:
        rewards: Rewards of a model; None without a reward model.
        sampling: Settings of the replay memory and batches.

    Returns:
        None if there is no reward model, or if its rewards do not change after they were given.

    Raises:
        InvalidSetting: The batches would not consist of single steps of the environment.
    """
    relabels = None if rewards is None else rewards.relabelling
    if relabels is None:
        return None
    usual = {"n_step": 1, "offline_fraction": 0.0, "extras": "none that follow from rewards"}
    if others := unlike_single_steps(sampling):
        raise InvalidSetting(
            "A reward that changes as it is learned is given to single steps of the environment, when they are sampled.",
            got=", ".join(f"{name} {getattr(sampling, name)}" for name in others),
            allowed=", ".join(f"{name} {usual[name]}" for name in others),
            fix="use sac with learner.replay.n_step 1",
        )
    relabels.reserve(sampling.capacity)
    return relabels


def unlike_single_steps(sampling: Sampling) -> list[str]:
    """Return the names of settings that make a batch something else than single steps; rewards then cannot be replaced."""
    extras_follow = any(extra.uses_rewards for extra in sampling.extras)
    unlike = {"n_step": sampling.n_step != 1, "offline_fraction": sampling.offline_fraction > 0, "extras": extras_follow}
    unlike |= {"worlds.share": sampling.worlds.share > 0}
    return [name for name, is_unlike in unlike.items() if is_unlike]


def require_unchanging(rewards: DelayedRewards) -> None:
    """Raise InvalidSetting if rewards change while they are learned, because this training loop cannot use such rewards."""
    if rewards.relabelling is not None:
        raise InvalidSetting(
            "A reward that changes as it is learned cannot be given once and for all.",
            got=type(rewards.relabelling).__name__,
            allowed="a learner that keeps single steps and has them relabelled: sac",
            fix="set algorithm to sac, or choose a reward that does not change",
        )


class EpisodeUnderWay(Protocol):
    """Interface of a running episode, as rewards need it: a Rollout, or the record of a Rollout in another process."""

    @property
    def observation(self) -> Observation:
        """Newest observation."""

    @property
    def instruction(self) -> str | None:
        """Task of this episode in words; None if it has none."""

    def newest(self, count: int) -> list[Transition]:
        """Return the newest `count` steps, in order."""


class WaitingSteps:
    """Steps of running episodes that wait for the rewards of a model before they enter the replay memory.

    They enter in order, with the model's rewards in place of the environment's, once the model has enough steps to score or the
    episode is over. A step with which the model considers the task completed enters as terminated. At a missing reward the
    stored episode is cut, so that no transition and no sum of rewards reaches across it.
    """

    def __init__(self, replay: StepMemory, rewards: DelayedRewards) -> None:
        self.rewards = rewards
        self._replay = replay
        self._steps: list[tuple[Transition, int]] = []
        """(step, place of its environment)"""

    def __len__(self) -> int:
        """Number of waiting steps."""
        return len(self._steps)

    def begin(self, observation: Observation, instruction: str | None, place: int = 0) -> None:
        """Begin an episode in environment `place`: its running episode is first cut at its last step."""
        self._replay.cut(place)
        self.rewards.begin(place, observation, instruction)

    def add(self, transition: Transition, place: int = 0) -> None:
        """Add a step that waits for its reward; steps enter the replay once rewards are due or the episode ends."""
        self.rewards.add(
            place,
            transition.next_observation,
            action=transition.action,
            reward=transition.reward,
            terminated=transition.terminated,
            truncated=transition.truncated,
        )
        self._steps.append((transition, place))
        if self.rewards.is_due or transition.terminated or transition.truncated:
            self._enter()

    def cut(self, place: int = 0) -> None:
        """Move the waiting steps with their rewards into the replay, and cut the running episode of environment `place`."""
        self._enter()
        self._replay.cut(place)

    def _enter(self) -> None:
        found = self.rewards.score()
        scored = zip(self._steps, found.labels.values, found.labels.valid, found.ends, strict=True)
        for (transition, place), value, is_valid, ends in scored:
            if not is_valid:
                self._replay.cut(place)
                continue
            if not self._replay.is_running(place):  # at its first step, and behind one whose reward is missing
                self._replay.begin(transition.observation, place)
            step = replace(transition, reward=float(value))
            self._replay.add(replace(step, terminated=True, truncated=False) if ends else step, place)
        self._steps = []

    def state_dict(self) -> StateDict:
        """Return the number of waiting steps and the state of the rewards; the steps themselves are saved with the rollout."""
        return {"steps": len(self._steps), "rewards": self.rewards.state_dict()}

    def load_state_dict(self, state: StateDict, rollout: EpisodeUnderWay | None) -> None:
        """Restore the waiting steps and the state of the rewards.

        Args:
            state: Value of `state_dict`.
            rollout: The running episode, replayed exactly, which holds the steps. None if it is lost: the waiting steps are
                lost, too, and the rewards restart.
        """
        self.rewards.load_state_dict(state["rewards"])
        self._steps = [] if rollout is None else [(step, 0) for step in rollout.newest(int(state["steps"]))]
        if rollout is None:
            self.rewards.restart()
