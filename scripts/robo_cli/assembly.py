"""Put a recipe's parts together: environment, demonstrations, learner, training; the same for train, resume and evaluate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
from gymnasium.vector import AutoresetMode

from robo_cli.display import counted
from robo_cli.online_reward import drawn_arguments, drawn_environment, drawn_spec, labelled
from robo_cli.person import beside, person_of, require_place_for_person
from robo_cli.recipe import DemonstrationSettings, OnlineSettings, Recipe, RewardSettings, parse_recipe
from robo_datasets.cache import CachedEpisodes
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_rl.discovery import make_environment, make_vector_environment
from robo_rl.errors import InvalidSetting, RunError
from robo_rl.evaluation import Evaluation, evaluate
from robo_rl.human import PersonInTheLoop
from robo_rl.learner_protocols import SelfTrainedConfig
from robo_rl.memory import storage_in
from robo_rl.offline_to_online import OfflineThenOnline
from robo_rl.plain_files import read_yaml
from robo_rl.protocols import Learner, Policy, Training
from robo_rl.replay import ReplayBuffer
from robo_rl.reward_protocols import OnlineRewards
from robo_rl.rollout import rollout
from robo_rl.runs import Run
from robo_rl.sampling import Sampling
from robo_rl.spec import EnvironmentSpec, specification
from robo_rl.training import OfflineTraining, OnlineTraining
from robo_rl.types import Episode

if TYPE_CHECKING:
    from robo_real.console.operator import Operator

MOST_TRIES = 5  # per demonstration, before the expert is called unfit


class ActingParts(NamedTuple):
    """What acts in a training."""

    environment: gymnasium.Env[Any, Any]
    learner: Learner
    person: PersonInTheLoop | None
    """who corrects its policy"""


@dataclass(frozen=True)
class RecipeEnvironments:
    """Makes the environment of a recipe, drawn for its reward, one by one or many in one object: a VectorFactory."""

    recipe: Recipe[Any]

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Returns a fresh environment."""
        return drawn_environment(self.recipe)

    def make_vector(self, num_envs: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Returns environments that begin anew in the step that ends an episode, simulated by the recipe's threads."""
        name, same_step = self.recipe.environment.name, AutoresetMode.SAME_STEP
        return make_vector_environment(
            name, num_envs, threads=self.recipe.threads, autoreset_mode=same_step, **drawn_arguments(self.recipe)
        )


def environment_of(recipe: Recipe[Any], **more: Any) -> gymnasium.Env[Any, Any]:
    """Returns a fresh environment of the recipe, as its policy sees it."""
    return make_environment(recipe.environment.name, **recipe.environment.arguments, **more)


def judged_environment_of(recipe: Recipe[Any], operator: Operator | None = None, **more: Any) -> gymnasium.Env[Any, Any]:
    """Returns a fresh environment in which the recipe's policy is evaluated, by its operator where there is one."""
    arguments = {**recipe.environment.arguments, **recipe.evaluation.arguments}
    environment = make_environment(recipe.environment.name, **arguments, **more)
    return beside(recipe, environment) if operator is None else operator.judging(environment)


def demonstrations_of(
    recipe: Recipe[Any], reward: OnlineRewards | None, drawn: EnvironmentSpec | None = None
) -> tuple[Sequence[Episode], str]:
    """Returns the episodes that a recipe's learning starts from, and one line that says where they come from.

    Those of a dataset stay on disk until they are asked for, unless the recipe's reward (`reward_of`) labels them here. `drawn`
    is the spec of the environment where it is known, which is not asked then. Raises SpecMismatch for a dataset of another one.
    """
    episodes, origin = _demonstrations(recipe, drawn)
    if reward is None or not episodes:
        return episodes, origin
    pieces, told = labelled(reward, episodes, spec_of(recipe))
    return pieces, f"{origin}{told}"


def _demonstrations(recipe: Recipe[Any], drawn: EnvironmentSpec | None) -> tuple[Sequence[Episode], str]:
    settings = recipe.demonstrations
    if settings.dataset:
        dataset = Dataset(Path(settings.dataset))
        what = f"The dataset {dataset.path} was recorded in another environment"
        fix = f"robo-rl data info {dataset.path} shows its environment and arguments: name the same, or record another"
        here = drawn_spec(recipe) if drawn is None else drawn
        if recipe.reward.name:  # which may look at any of the pictures
            here.require(dataset.spec, what=what, fix=fix)
        read = read_by_learner(recipe, here)
        read.require(dataset.spec.without_pictures(but=read.observation), what=what, fix=fix)
        entries = dataset.entries()[: settings.episodes or None]
        if len(entries) < settings.episodes:
            raise InvalidSetting(
                f"The dataset {dataset.path} has too few episodes.",
                got=len(entries),
                allowed=f"demonstrations.episodes of {settings.episodes}",
                fix="set demonstrations.episodes to 0 for all that there are, or record more with --append",
            )
        watch = partial(counted, "training cache", "episodes")
        labels, told = labels_of(dataset, settings.labels, entries) if settings.labels else (None, "")
        return CachedEpisodes(dataset, entries, watch, labels), f"{len(entries)} episodes of {dataset.path}{told}"
    if not settings.episodes:
        return [], "no demonstrations"
    episodes, tries = record_demonstrations(recipe, settings)
    return episodes, f"{len(episodes)} demonstrations by the scripted expert (in {tries} tries)"


def read_by_learner(recipe: Recipe[Any], spec: EnvironmentSpec) -> EnvironmentSpec:
    """Return a spec without the pictures that the recipe's learner does not read."""
    if isinstance(recipe.learner, SelfTrainedConfig):
        return spec
    learner: Learner = recipe.learner.build(spec, recipe.seed)
    return spec.without_pictures(but=learner.policy.environment_spec.observation)


def labels_of(dataset: Dataset, name: str, entries: Sequence[Entry]) -> tuple[LabelSet, str]:
    """Returns a label set, and how many steps of the episodes have a label; raises InvalidSetting where none has."""
    labels = LabelSet.existing(dataset, name)
    steps, known = sum(entry.steps for entry in entries), labels.known(entries)
    if not known:
        raise InvalidSetting(
            f"No step has a label of the set {name!r}.", got=f"0 of {steps} steps", fix="robo-rl label DATASET"
        )
    left_out = f" ({known} of {steps} steps have one, the others are left out)" if known < steps else ""
    return labels, f", rewards of the label set {name}{left_out}"


def record_demonstrations(recipe: Recipe[Any], settings: DemonstrationSettings) -> tuple[list[Episode], int]:
    """Returns successful episodes of the environment's scripted expert, and how many tries they took."""
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


def training_of(
    recipe: Recipe[Any],
    demonstrations: Sequence[Episode],
    reward: OnlineRewards | None,
    operator: Operator | None = None,
) -> Training:
    """Returns a training at step 0, ready to run or to be restored.

    `reward` is the recipe's (`reward_of`), and `operator` whoever sits at its console (`operator_of`).
    """
    config: Any = recipe.learner
    require_place_for_person(recipe)
    if isinstance(config, SelfTrainedConfig):
        episodes = list(demonstrations)  # such a learner keeps them in a memory of its own
        model = {} if reward is None else {"reward": reward}
        return config.training(
            RecipeEnvironments(recipe), steps=recipe.steps, seed=recipe.seed, demonstrations=episodes, **model
        )
    environment, learner, supervisor = acting_parts(recipe, reward, operator)
    spec = learner.policy.environment_spec
    sampling: Sampling = config.sampling
    rewards = None if reward is None else reward.running(1)
    data: dict[str, Any] = {"seed": recipe.seed, "demonstrations": demonstrations}
    acting: dict[str, Any] = {"rewards": rewards, "supervisor": supervisor}
    if sampling.offline_fraction == 1.0:
        offline = OfflineTraining(spec, learner, sampling, steps=recipe.steps, **data)
        if recipe.online.steps:
            online = _online_sampling(recipe.online, sampling)
            steps = recipe.online.steps
            return OfflineThenOnline(offline, OnlineTraining(environment, learner, online, steps=steps, **acting, **data))
        environment.close()
        return offline
    storage = storage_in(sampling.replay_folder)
    print(ReplayBuffer.statement(spec, sampling.replay_capacity, storage, with_returns=sampling.returns_to_go), flush=True)
    training = OnlineTraining(environment, learner, sampling, steps=recipe.steps, **acting, **data)
    if recipe.initial.run:
        training.beginner = learner.policy  # nothing is done at random by who can act already
    return training


def acting_parts(recipe: Recipe[Any], reward: OnlineRewards | None, operator: Operator | None = None) -> ActingParts:
    """Returns a fresh environment, a fresh learner for what a policy sees of it, and the person who corrects it, if any."""
    environment = drawn_environment(recipe)
    spec = specification(environment) if reward is None else reward.visible(specification(environment))
    learner: Learner = recipe.learner.build(spec, recipe.seed)
    if operator is not None:
        asked, person = operator.training(environment)
        return ActingParts(asked, learner, person)
    if not recipe.human.kind:
        return ActingParts(environment, learner, None)
    person = person_of(recipe, spec, scripted_expert(environment, recipe.environment.name))
    return ActingParts(beside(recipe, environment), learner, person)


def _online_sampling(settings: OnlineSettings, sampling: Sampling) -> Sampling:
    """Returns what a learner from recorded episodes asks of its phase in the environment."""
    return replace(
        sampling,
        learning_starts=1,
        offline_fraction=1.0 if sampling.keeps_corrections else settings.offline_fraction,  # corrections alone are learnt from
        replay_capacity=settings.replay_capacity,
    )


def recipe_of(run: Run) -> Recipe[Any]:
    """Returns the recipe that a run was made with."""
    found, source = read_yaml(run.path / "recipe.yaml"), f"recipe.yaml of {run.path.name}"
    if not isinstance(found, dict):
        raise RunError(f"The {source} is damaged.", got=type(found).__name__, fix="take it from a copy, or train again")
    return parse_recipe(found, source=source)


def policy_of(run: Run, recipe: Recipe[Any], step: int | None = None) -> Policy:
    """Returns the policy of the newest sound checkpoint, or that of a step.

    Raises SpecMismatch where the environment has changed since, InvalidSetting for a step of which nothing was kept.
    """
    config, state, now = recipe.learner, run.load(step).parts, spec_of(recipe)
    what = f"The environment has changed since the run {run.path.name}"
    if isinstance(config, SelfTrainedConfig):
        run.spec.require(now, what=what)
        unrewarded = replace(recipe, reward=RewardSettings())  # a policy acts without what is drawn for its reward
        return config.restored_policy(RecipeEnvironments(unrewarded), seed=recipe.seed, state=state)
    learner: Learner = config.build(run.spec, recipe.seed)
    read = learner.policy.environment_spec.observation
    run.spec.without_pictures(but=read).require(now.without_pictures(but=read), what=what)
    learner.load_state_dict(state["learner"])
    return learner.policy


class Evaluator:
    """Evaluates policies on a recipe's seeds in an environment of its own."""

    def __init__(self, recipe: Recipe[Any], episodes: int, operator: Operator | None = None) -> None:
        self._recipe, self._environment = recipe, judged_environment_of(recipe, operator)
        self._seeds = range(recipe.evaluation.seed, recipe.evaluation.seed + episodes)

    def __call__(self, policy: Policy) -> Evaluation:
        """Returns how a policy does."""
        deterministic, seed = not self._recipe.evaluation.stochastic, self._recipe.seed
        return evaluate(policy, self._environment, seeds=self._seeds, deterministic=deterministic, training_seed=seed)

    def close(self) -> None:
        """Closes the environment: a robot is left still and given back."""
        self._environment.close()


def spec_of(recipe: Recipe[Any]) -> EnvironmentSpec:
    """Returns the spec of the recipe's environment."""
    environment = environment_of(recipe)
    spec = specification(environment)
    environment.close()
    return spec


def scripted_expert(environment: gymnasium.Env[Any, Any], name: str) -> Callable[..., Policy]:
    """Returns what makes an expert for a seed and a noise; raises InvalidSetting where the environment has none."""
    try:
        expert: Callable[..., Policy] = environment.get_wrapper_attr("scripted_policy")
    except AttributeError:
        raise InvalidSetting(
            f"{name} has no scripted expert to record demonstrations with, or to correct a policy.",
            fix="leave demonstrations.episodes and human out, or choose an environment with an expert (`robo-rl envs NAME`)",
        ) from None
    return expert
