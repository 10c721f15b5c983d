"""Assembly of a recipe's parts for train, resume and evaluate: environment, demonstrations, learner, training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium

from robo_app.display.display import counted
from robo_app.recipes.environments import RecipeEnvironments, Specs, drawn_environment, spec_of
from robo_app.recipes.loop_choice import ROBOT, asked_of
from robo_app.recipes.online_reward import labelled
from robo_app.recipes.recipe import DemonstrationSettings, Recipe, RewardSettings, parse_recipe
from robo_app.training.episode_recording import RunEpisodes
from robo_app.training.supervision import beside, person_of
from robo_datasets.cache import CachedEpisodes
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_rl.environments.levels import require_training_seeds
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.evaluation import Evaluation, evaluate
from robo_rl.protocols.components import Learner, Policy, TrainingSupervisor
from robo_rl.protocols.learners import SelfTrainedConfig
from robo_rl.protocols.rewards import OnlineRewards
from robo_rl.rollout.episode import rollout
from robo_rl.runs.run import Run, Step, find_run
from robo_rl.settings import plain
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.training.compatibility import asked_by, needs_of, require_loop
from robo_rl.training.plan import Accompany, Initial, OnlinePhase, TrainingPlan
from robo_rl.types import Episode

if TYPE_CHECKING:
    from robo_real.console.operator import Operator

MOST_TRIES = 5  # per demonstration, before the expert is called unfit


def judged_environment_of(recipe: Recipe[Any], operator: Operator | None = None, **more: Any) -> gymnasium.Env[Any, Any]:
    """Return a new evaluation environment of the recipe, under the operator's control if there is one."""
    environment = make_environment(recipe.environment.name, **judged_arguments(recipe), **more)
    return beside(recipe, environment) if operator is None else operator.evaluation_env(environment)


def judged_arguments(recipe: Recipe[Any]) -> dict[str, Any]:
    """Return the arguments of the environment of evaluations, without the wrappers that only trainings have."""
    return recipe.environment.in_evaluation(recipe.evaluation.arguments, recipe.evaluation.wrappers).everything


def plan_of(
    recipe: Recipe[Any],
    environments: RecipeEnvironments,
    reward: OnlineRewards | None,
    operator: Operator | None = None,
    *,
    collectors: bool = False,
) -> TrainingPlan:
    """Return the plan of a recipe's training, without demonstrations (`demonstrations_of`) and initial learner (`initial_of`).

    reward: reward of the recipe (`reward_of`). operator: operator of its console (`operator_of`). Raises InvalidSetting if no
    loop supports the learner, the environment and the features of the recipe.
    """
    asked = asked_of(recipe, collectors=collectors) | asked_by(environments.seen)
    return TrainingPlan(
        recipe.learner,
        require_loop(recipe.algorithm, recipe.learner, asked),
        environments.drawn,
        environments,
        recipe.steps,
        recipe.seed,
        reward=reward,
        online=OnlinePhase(**plain(recipe.online)),
        person=_accompaniment(recipe, operator),
        recorder=RunEpisodes() if recipe.record_episodes else None,
        reads=recipe.initial.reads,
        acts_at_once=bool(recipe.initial.run),
        count=max(recipe.environments, 1),
    )


def _accompaniment(recipe: Recipe[Any], operator: Operator | None) -> Accompany | None:
    """Return the function that adds the recipe's person to its environment, None without one."""
    if operator is not None:
        return operator.training_env

    def accompany(environment: gymnasium.Env[Any, Any]) -> tuple[gymnasium.Env[Any, Any], TrainingSupervisor]:
        person = person_of(recipe, specification(environment), scripted_expert(environment, recipe.environment.name))
        return beside(recipe, environment), person

    return accompany if recipe.human.kind else None


def initial_of(recipe: Recipe[Any]) -> Initial | None:
    """Return the learner state of the recipe's initial run, None without one."""
    if not recipe.initial.run:
        return None
    run = find_run(recipe.initial.run, Path("."))
    return Initial(run.path.name, run.load().parts["learner"], read_by_learner(recipe_of(run), run.spec))


def demonstrations_of(recipe: Recipe[Any], reward: OnlineRewards | None, specs: Specs) -> tuple[Sequence[Episode], str]:
    """Return the demonstrations that a recipe's learner begins with, and one line about their origin.

    Episodes of a dataset are loaded when they are read, unless the recipe's reward (`reward_of`) first labels them. Raises
    SpecMismatch for a dataset of another environment.
    """
    episodes, origin = _demonstrations(recipe, specs)
    if reward is None or not episodes:
        return episodes, origin
    pieces, remark = labelled(reward, episodes, specs.seen)
    return pieces, f"{origin}{remark}"


def _demonstrations(recipe: Recipe[Any], specs: Specs) -> tuple[Sequence[Episode], str]:
    settings = recipe.demonstrations
    if settings.dataset:
        dataset = Dataset(Path(settings.dataset))
        what = f"The dataset {dataset.path} was recorded in another environment"
        fix = f"robo-rl data info {dataset.path} shows its environment and arguments: name the same, or record another"
        here = specs.drawn
        if recipe.reward.name:  # which may look at any of the pictures
            here.single.require(dataset.spec.single, what=what, fix=fix)
        read = read_by_learner(recipe, here).single  # recorded observations are stacked as they are read
        read.require(dataset.spec.single.restricted(read.observation), what=what, fix=fix)
        entries = dataset.entries()[: settings.episodes or None]
        if len(entries) < settings.episodes:
            raise InvalidSetting(
                f"The dataset {dataset.path} has too few episodes.",
                got=len(entries),
                allowed=f"demonstrations.episodes of {settings.episodes}",
                fix="set demonstrations.episodes to 0 for all that there are, or record more with --append",
            )
        require_training_seeds((entry.seed for entry in entries), f"The dataset {dataset.path}")
        watch = partial(counted, "training cache", "episodes")
        labels, remark = labels_of(dataset, settings.labels, entries) if settings.labels else (None, "")
        return CachedEpisodes(dataset, entries, watch, labels), f"{len(entries)} episodes of {dataset.path}{remark}"
    if not settings.episodes:
        return [], "no demonstrations"
    episodes, tries = record_demonstrations(recipe, settings)
    return episodes, f"{len(episodes)} demonstrations by the scripted expert (in {tries} tries)"


def read_by_learner(recipe: Recipe[Any], spec: EnvironmentSpec) -> EnvironmentSpec:
    """Return a spec with only the observation entries that the recipe's learner reads."""
    if needs_of(recipe.learner).trains_itself:
        return spec
    return spec.restricted(learner_of(recipe, spec).policy.environment_spec.observation)


def learner_of(recipe: Recipe[Any], spec: EnvironmentSpec) -> Learner:
    """Return a new learner of a recipe for environments with a spec."""
    reads = recipe.initial.reads
    learner: Learner = recipe.learner.build(spec.restricted(reads) if reads else spec, recipe.seed)
    return learner


def labels_of(dataset: Dataset, name: str, entries: Sequence[Entry]) -> tuple[LabelSet, str]:
    """Return the label set `name`, and words about it that the caller appends to the description of the episodes' origin.

    Raises InvalidSetting if no step of the entries has a label.
    """
    labels = LabelSet.existing(dataset, name)
    steps, count = sum(entry.steps for entry in entries), labels.count(entries)
    if not count:
        raise InvalidSetting(
            f"No step has a label of the set {name!r}.", got=f"0 of {steps} steps", fix="robo-rl label DATASET"
        )
    left_out = f" ({count} of {steps} steps have one, the others are left out)" if count < steps else ""
    return labels, f", rewards of the label set {name}{left_out}"


def record_demonstrations(recipe: Recipe[Any], settings: DemonstrationSettings) -> tuple[list[Episode], int]:
    """Return successful episodes of the environment's scripted expert, and the number of attempts."""
    environment = drawn_environment(recipe)
    expert_for = scripted_expert(environment, recipe.environment.name)
    episodes: list[Episode] = []
    for attempt in range(settings.episodes * MOST_TRIES):
        seed = settings.seed + attempt
        episode = rollout(environment, expert_for(seed, noise=settings.noise), seed=seed)
        episodes += [episode] if episode.success else []
        if len(episodes) == settings.episodes:
            environment.close()
            return episodes, attempt + 1
    raise InvalidSetting(
        f"The scripted expert of {recipe.environment.name} reached only {len(episodes)} successes.",
        got=f"{len(episodes)} of {settings.episodes * MOST_TRIES} tries",
        allowed=f"{settings.episodes} demonstrations",
        fix="lower demonstrations.noise or demonstrations.episodes",
    )


def recipe_of(run: Run) -> Recipe[Any]:
    """Return the recipe of a run."""
    return parse_recipe(run.recipe, source=f"recipe.yaml of {run.path.name}")


def policy_of(run: Run, recipe: Recipe[Any], step: Step = None) -> Policy:
    """Return the policy of a run's newest valid checkpoint, of a step, or of the "best" evaluation.

    Raises SpecMismatch if the environment has changed since the training, InvalidSetting for a step without a checkpoint.
    """
    config, state = recipe.learner, run.load(step).parts
    what = f"The environment has changed since the run {run.path.name}"
    if needs_of(config).trains_itself:
        run.spec.require(spec_of(recipe), what=what)
        acting = recipe.environment.in_evaluation({}, ())
        bare = replace(recipe, reward=RewardSettings(), environment=acting)  # without what a policy does not need to act
        brought: SelfTrainedConfig = config
        return brought.restored_policy(RecipeEnvironments(bare), seed=recipe.seed, state=state)
    learner = learner_of(recipe, run.spec)
    read = learner.policy.environment_spec.observation
    if not recipe.environment.name.startswith(ROBOT):  # which may be off or elsewhere; the one that is served is compared then
        run.spec.restricted(read).require(spec_of(recipe).restricted(read), what=what)
    learner.load_state_dict(state["learner"])
    return learner.policy


def cost_limits(recipe: Recipe[Any], environment: gymnasium.Env[Any, Any]) -> dict[str, float]:
    """Return cost -> limit by which a run is judged: limits of its learner; empty if it has none for this environment."""
    limits_of = getattr(recipe.learner, "limits_of", None)
    try:
        found: dict[str, float] = {} if limits_of is None else limits_of(specification(environment))
    except (UnknownName, InvalidSetting):  # judged elsewhere, where costs have other names or units
        return {}
    return found


class Evaluator:
    """Evaluator of policies on a recipe's seeds, in a separate environment."""

    def __init__(
        self,
        recipe: Recipe[Any],
        episodes: int,
        operator: Operator | None = None,
        keep: Callable[[Episode, bool], None] | None = None,
        on_incomplete: Callable[[Evaluation], object] | None = None,
    ) -> None:
        """Make the environment.

        keep: receives the first episode of each evaluation, and True if the environment can be replayed.
        on_incomplete: receives an evaluation that an error ends early.
        """
        self._recipe, self._environment, self._keep = recipe, judged_environment_of(recipe, operator), keep
        self._on_incomplete = on_incomplete
        self._seeds = range(recipe.evaluation.seed, recipe.evaluation.seed + episodes)

    def __call__(self, policy: Policy) -> Evaluation:
        """Return the evaluation of a policy."""
        deterministic, seed = not self._recipe.evaluation.stochastic, self._recipe.seed
        return evaluate(
            policy,
            self._environment,
            seeds=self._seeds,
            deterministic=deterministic,
            training_seed=seed,
            on_episode=self._keep_first,
            on_incomplete=self._on_incomplete,
        ).with_limits(cost_limits(self._recipe, self._environment))

    def _keep_first(self, episode: Episode) -> None:
        if self._keep is not None and episode.seed == self._seeds[0]:
            self._keep(episode, bool(getattr(self._environment.unwrapped, "replays", True)))

    def close(self) -> None:
        """Close the environment: a robot stops, and others may use it."""
        self._environment.close()


def scripted_expert(environment: gymnasium.Env[Any, Any], name: str) -> Callable[..., Policy]:
    """Return a function from seed and noise to a scripted expert; raises InvalidSetting if the environment has no expert."""
    try:
        expert: Callable[..., Policy] = environment.get_wrapper_attr("scripted_policy")
    except AttributeError:
        raise InvalidSetting(
            f"{name} has no scripted expert to record demonstrations with, or to correct a policy.",
            fix="leave demonstrations.episodes and human out, or choose an environment with an expert (`robo-rl envs NAME`); "
            "`robo-rl record --policy MODULE:FUNCTION` plays a function of yours",
        ) from None
    return expert
