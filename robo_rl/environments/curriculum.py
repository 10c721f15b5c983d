"""Training episodes on the tasks of a curriculum: levels, variants of the environment, or partly solved episodes (hints).

A hint is the first part of a teacher's episode (Salimans and Chen 2018, arXiv:1812.03381; Uchendu et al. 2023,
arXiv:2204.02372; Zhao et al. 2024, arXiv:2403.00673): the training episode starts where the hint ends, and the hint's steps
count for the time limit. Evaluations use neither curriculum nor hints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_rl.environments.lasting import LastingWrapper
from robo_rl.environments.levels import level_seed, require_training_seeds, training_levels
from robo_rl.environments.restored_states import require_teacher, restored
from robo_rl.environments.task_samplers import SamplerRule, TaskSampler, sampler_of
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.types import METADATA, Episode, Metrics, StateDict


@dataclass(frozen=True)
class CurriculumRule(SamplerRule):
    """Settings of a curriculum: which tasks the training episodes have, and which sampler draws them."""

    levels: int = 0
    """Number of training levels, each of which is one reset seed; 0 for a new seed in every episode."""
    hints: tuple[float, ...] = ()
    """Shares of a teacher's episode that are already done when a training episode starts. They fall from below 1 to 0, the
    whole task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        falls = all(first > second for first, second in zip(self.hints, self.hints[1:], strict=False))
        fits = not self.hints or (falls and self.hints[-1] == 0.0 and self.hints[0] < 1.0)
        hints = (fits, "falling numbers below 1, the last one 0")
        require_allowed(self, {"levels": (self.levels >= 0, "0 or more"), "hints": hints})


class CurriculumTasks:
    """Tasks of a curriculum and the sampler that draws them, shared by all environments of a training."""

    def __init__(
        self, rule: CurriculumRule, variants: int, teacher: Sequence[Episode], recorded: EnvironmentSpec | None
    ) -> None:
        """Make the tasks and their sampler.

        Args:
            rule: Settings of the curriculum.
            variants: Number of environments, ordered from easy to hard.
            teacher: Recorded episodes, for hints.
            recorded: Spec of these episodes.

        Raises:
            InvalidSetting: There is no task, or more than one kind of task; or the teacher has no successful episode with a
                seed.
        """
        kinds = {"levels": rule.levels, "variants": variants if variants > 1 else 0, "hints": len(rule.hints)}
        others = [kind for kind in ("variants", "hints") if kinds[kind]]
        if len(others) > 1 or not any(kinds.values()):
            got = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            raise InvalidSetting("A curriculum has tasks of one kind.", got=got, allowed="levels, variants or hints")
        self.rule, self.recorded = rule, recorded
        self.kind = others[0] if others else "levels"
        self.sampler: TaskSampler = sampler_of(kinds[self.kind], rule)
        if self.sampler.is_ordered and self.kind == "levels":
            fix = "take uniform, or name variants or hints"
            got = f"the sampler {rule.sampler}"
            raise InvalidSetting("Levels have no order of difficulty.", got=got, fix=fix)
        require_training_seeds((each.seed for each in teacher), "Hints")
        self._levels: list[int] | None = None
        self.teacher = [each for each in teacher if each.seed is not None and each.success is not False and len(each) > 1]
        if rule.hints and not self.teacher:
            fix = "record a teacher that succeeds, in simulation: robo-rl record"
            raise InvalidSetting(
                "Hints need successful episodes with seeds.", got=f"{len(teacher)} episodes, none fits", fix=fix
            )

    def levels_of(self, environment: gymnasium.Env[Any, Any]) -> list[int]:
        """Return the numbers of the training levels, all with different layouts.

        Raises InvalidSetting if there are too few of them.
        """
        if self._levels is None:
            self._levels = training_levels(environment, self.rule.levels)
        return self._levels


class CurriculumEnv(LastingWrapper):
    """Wrapper that begins each episode with the next task of a curriculum; the sampler's state is saved with a training."""

    def __init__(self, environments: Sequence[gymnasium.Env[Any, Any]], tasks: CurriculumTasks) -> None:
        """Wrap the variants of a task; raises SpecMismatch if their observations or actions differ.

        environments: from the easiest to the task itself.
        """
        super().__init__(environments[-1])
        self.variants, self.curriculum = tuple(environments), tasks
        self.environment_spec = spec = specification(environments[-1])
        """Spec of the task itself, also while a variant runs."""
        for each in environments[:-1]:
            specification(each).require_interface(spec, what="A variant of the curriculum differs from the task")
        if tasks.rule.hints and tasks.recorded is not None:
            require_teacher(environments[-1], tasks.recorded)
        self._levels = tasks.levels_of(environments[-1])
        self._random = np.random.default_rng(0)
        self._task: int | None = None
        self._return, self._success = 0.0, False

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        if seed is not None:
            self._random = np.random.default_rng([seed, 2])
        tasks, random = self.curriculum, self._random
        self._task = task = tasks.sampler.sample(random)
        self._return, self._success = 0.0, False
        drawn = int(random.integers(2**31)) if seed is None else seed
        facts: dict[str, Any] = {}
        share = tasks.rule.hints[task] if tasks.kind == "hints" else 0.0
        if tasks.rule.levels and not share:
            level = task if tasks.kind == "levels" else int(random.integers(tasks.rule.levels))
            drawn, facts = level_seed("train", self._levels[level]), {"level": level, "split": "train"}
        if tasks.kind == "variants":
            self.env, facts = self.variants[task], {**facts, "variant": task}
        if share:
            episode = tasks.teacher[random.integers(len(tasks.teacher))]
            facts = {"hint": int(share * len(episode)), "teacher_seed": episode.seed}
            observation, info = restored(self.env, episode, facts["hint"], options)
        else:
            observation, info = self.env.reset(seed=drawn, options=options)
        return observation, {**info, METADATA: {**info.get(METADATA, {}), **facts}}

    @override
    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        self._success |= bool(info.get("success", False))
        if (terminated or truncated) and self._task is not None:
            self.curriculum.sampler.report(self._task, success=self._success, score=self._return)
            self._task = None
        return observation, reward, terminated, truncated, info

    @property
    @override
    def lasting_metrics(self) -> Metrics:
        return self.curriculum.sampler.metrics

    @override
    def close(self) -> None:
        for each in self.variants:
            each.close()

    @override
    def state_dict(self) -> StateDict:
        """Return the state of the sampler.

        After a resume the task of the running episode is drawn again, from the episode's seed.
        """
        return self.curriculum.sampler.state_dict()

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.curriculum.sampler.load_state_dict(state)
