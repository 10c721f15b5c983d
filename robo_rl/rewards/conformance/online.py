"""Checks of rewards that are computed while a policy acts."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from robo_rl.protocols.rewards import DelayedRewards, OnlineRewards, RewardModel
from robo_rl.rewards.conformance.rule import require_rule
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Episode, Labels, StepRewards

OnlineCheck = Callable[[OnlineRewards, Sequence[Episode]], None]
ROOM = 1000
"""Number of steps for which a reward that is changed later gets room in these checks."""


def check_online_reward(model: RewardModel, spec: EnvironmentSpec, episodes: Sequence[Episode]) -> None:
    """Run all checks; raise ConformanceFailure if one fails.

    spec: of the environment; episodes: two or more that could come from it.
    """
    for check in ONLINE_CHECKS:
        check(model.online(spec, weight=0.5, discount=0.9), copy.deepcopy(episodes))


def each_step_has_one_label(reward: OnlineRewards, episodes: Sequence[Episode]) -> None:
    """Check that there are as many float32 labels as steps, however the steps are divided into calls."""
    running, steps = _running(reward, 1), 0
    _require(len(running.score().labels) == 0, reward, "each step has one label", "there is a label without a step")
    for episode in episodes:
        steps += len(episode)
        found = _played(running, [episode])
        kinds = (len(found.labels), len(found.ends), found.labels.values.dtype)
        wanted = (len(episode), len(episode), np.dtype(np.float32))
        _require(kinds == wanted, reward, "each step has one label", "the arrays differ", kinds, wanted)
    found_metrics = running.metrics
    is_finite = all(map(np.isfinite, found_metrics.values()))
    _require(is_finite, reward, "each step has one label", "a metric is not finite", found_metrics)


def ends_have_labels_and_what_follows_has_none(reward: OnlineRewards, episodes: Sequence[Episode]) -> None:
    """Check that the step that ends a task has a valid label, and no later step of the episode has one."""
    for episode in episodes:
        found = _played(_running(reward, 1), [episode])
        ends = np.flatnonzero(found.ends)
        holds = found.labels.valid[ends].all() and not (len(ends) and found.labels.valid[ends[0] + 1 :].any())
        _require(bool(holds), reward, "ends have labels", "a step after the end of the task is paid", found)


def environments_are_apart(reward: OnlineRewards, episodes: Sequence[Episode]) -> None:
    """Check that episodes of several environments get the labels that each gets alone.

    Steps are added one by one and all together.
    """
    if not _may_be_several(reward):
        return
    length = min(map(len, episodes))
    cut = [_cut(episode, length) for episode in episodes]
    alone = np.stack([_played(_running(reward, 1), [episode]).labels.or_nan for episode in cut], axis=1)
    for at_once in (False, True):
        running = _running(reward, len(cut))
        together = _played(running, cut, at_once=at_once).labels.or_nan.reshape(length, len(cut))
        same = np.allclose(together, alone, rtol=1e-5, atol=1e-6, equal_nan=True)
        _require(same, reward, "environments are apart", "labels depend on other environments", together, alone)


def observations_may_be_written_over(reward: OnlineRewards, episodes: Sequence[Episode]) -> None:
    """Check that observations are copied: an environment may write the next observation into the same arrays."""
    if _may_be_several(reward):
        kept, spoilt = (_played(_running(reward, 1), episodes[:1], spoils=spoils) for spoils in (False, True))
        same = _are_equal(kept, spoilt)
        _require(same, reward, "observations may be written over", "labels follow from arrays that changed", spoilt, kept)


def restored_rewards_go_on(reward: OnlineRewards, episodes: Sequence[Episode]) -> None:
    """Check that rewards saved in an episode and restored label the remaining steps alike, exactly if they are repeatable."""
    for after in (1, len(episodes[0]) - 1):
        whole, cut, resumed = (_running(reward, 1) for _ in range(3))
        expected = _played(whole, episodes)
        steps = _steps(cut, episodes, 0)
        for _ in range(after):
            next(steps)
        with tempfile.TemporaryDirectory() as folder:
            save_checkpoint(Path(folder), Checkpoint(1, {"rewards": cut.state_dict()}))
            resumed.load_state_dict(load_checkpoint(Path(folder)).parts["rewards"])
        for _ in _steps(resumed, episodes, 0, after):
            pass
        found = resumed.score()
        if whole.repeats_itself:
            _require(_are_equal(found, expected), reward, "restored rewards go on", "labels differ", found, expected)
        _require(len(found.labels) == len(expected.labels), reward, "restored rewards go on", "steps are lost", found)


def a_restart_forgets_what_waits(reward: OnlineRewards, episodes: Sequence[Episode]) -> None:
    """Check that after `restart` no steps wait, and the next episode gets the labels that new rewards give."""
    running, fresh = _running(reward, 1), _running(reward, 1)
    next(_steps(running, episodes, 0))
    running.restart()
    found, expected = _played(running, episodes[1:2]), _played(fresh, episodes[1:2])
    same = len(found.labels) == len(expected.labels) and (not running.repeats_itself or _are_equal(found, expected))
    _require(same, reward, "a restart forgets what waits", "the next episode has other labels", found, expected)


def what_is_not_finite_is_missing(reward: OnlineRewards, episodes: Sequence[Episode]) -> None:
    """Check that NaN as the environment's own reward makes no label NaN: the label is missing, or independent of it."""
    for episode in episodes:
        own, episode.rewards[:] = episode.rewards.copy(), np.nan
        poisoned = _played(_running(reward, 1), [episode]).labels
        episode.rewards[:] = np.nan_to_num(own)
        clean = _played(_running(reward, 1), [episode]).labels
        holds = np.isfinite(poisoned.values).all() and (not poisoned.valid.any() or _reads_no_rewards(poisoned, clean))
        _require(bool(holds), reward, "what is not finite is missing", "a label follows from NaN", poisoned, clean)


ONLINE_CHECKS: Sequence[OnlineCheck] = (
    each_step_has_one_label,
    ends_have_labels_and_what_follows_has_none,
    environments_are_apart,
    observations_may_be_written_over,
    restored_rewards_go_on,
    a_restart_forgets_what_waits,
    what_is_not_finite_is_missing,
)


def _running(reward: OnlineRewards, environments: int) -> DelayedRewards:
    running = reward.running(environments)
    if running.relabelling is not None:
        running.relabelling.reserve(ROOM)
    return running


def _may_be_several(reward: OnlineRewards) -> bool:
    """Return False for rewards that are learned or annotated in the run, since they depend on earlier steps."""
    running = reward.running(1)
    return running.relabelling is None and running.repeats_itself


def _played(
    running: DelayedRewards, episodes: Sequence[Episode], *, at_once: bool | None = None, spoils: bool = False
) -> StepRewards:
    """Return the rewards of episodes, one after the other, or, if `at_once` is given, each in its own environment."""
    if at_once is None:
        for _ in _steps(running, episodes, 0, spoils=spoils):
            pass
        return running.score()
    for index, episode in enumerate(episodes):
        running.begin(index, _at(episode, 0), episode.instruction)
    for step in range(1, len(episodes[0]) + 1):
        if at_once:
            shown = {name: np.stack([each.observations[name][step] for each in episodes]) for name in episodes[0].observations}
            own, actions = (np.stack([getattr(each, name)[step - 1] for each in episodes]) for name in ("rewards", "actions"))
            flags = np.array([_flags(each, step) for each in episodes]).T
            running.add_all(shown, actions=actions, rewards=own, terminated=flags[0], truncated=flags[1])
        for index, episode in enumerate([] if at_once else episodes):
            _add(running, index, episode, step, _at(episode, step))
    return running.score()


def _steps(
    running: DelayedRewards, episodes: Sequence[Episode], index: int, behind: int = 0, *, spoils: bool = False
) -> Iterator[None]:
    """Add the steps of episodes one at a time, without the first `behind` steps of the first episode."""
    for episode in episodes:
        if not behind:
            running.begin(index, _at(episode, 0), episode.instruction)
        for step in range(behind + 1, len(episode) + 1):
            shown = copy.deepcopy(_at(episode, step))
            _add(running, index, episode, step, shown)
            for values in shown.values() if spoils else ():
                values[...] = 0
            yield
        behind = 0


def _add(running: DelayedRewards, index: int, episode: Episode, step: int, shown: dict[str, Array]) -> None:
    terminated, truncated = _flags(episode, step)
    own, action = float(episode.rewards[step - 1]), episode.actions[step - 1]
    running.add(index, shown, action=action, reward=own, terminated=terminated, truncated=truncated)


def _flags(episode: Episode, step: int) -> tuple[bool, bool]:
    is_last = step == len(episode)
    return is_last and episode.terminated, is_last and not episode.terminated


def _at(episode: Episode, step: int) -> dict[str, Array]:
    return {name: values[step] for name, values in episode.observations.items()}


def _cut(episode: Episode, length: int) -> Episode:
    parts = {name: getattr(episode, name)[:length] for name in ("actions", "policy_actions", "rewards", "sources")}
    observations = {name: values[: length + 1] for name, values in episode.observations.items()}
    facts = {name: getattr(episode, name) for name in ("terminated", "truncated", "stop_reason", "success", "seed")}
    facts |= {"spec_fingerprint": episode.spec_fingerprint, "instruction": episode.instruction}
    return Episode(observations=observations, timestamps=episode.timestamps[: length + 1], **parts, **facts)


def _are_equal(one: StepRewards, other: StepRewards) -> bool:
    pairs = ((one.labels.values, other.labels.values), (one.labels.valid, other.labels.valid), (one.ends, other.ends))
    return all(first.tobytes() == second.tobytes() for first, second in pairs)


def _reads_no_rewards(poisoned: Labels, clean: Labels) -> bool:
    """Return True if the labels that are valid in both are equal."""
    valid = poisoned.valid & clean.valid
    return bool((poisoned.values[valid] == clean.values[valid]).all())


def _require(holds: bool, reward: OnlineRewards, rule: str, failure: str, got: object = None, allowed: object = None) -> None:
    require_rule(holds, str(reward.identity["model"]), rule, failure, got, allowed)
