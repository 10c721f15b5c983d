"""Recipe: all settings of a training, frozen dataclasses that are read from YAML.

Reading is strict: the error for an unknown key names the nearest known key, and the error for a wrong type the right type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import tyro
import yaml

from robo_app.recipes.files import recipe_files
from robo_rl.entry_points import known as installed
from robo_rl.entry_points import load
from robo_rl.environments.curriculum import CurriculumRule
from robo_rl.environments.wrapping import changed, in_evaluations
from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.evaluation.evaluation import FIRST_SEED
from robo_rl.settings import plain, settings_as
from robo_rl.system.plain_files import read_yaml
from robo_rl.training.compatibility import own_number

Learner = TypeVar("Learner")
ZOO_SEPARATOR = "#"
USUAL_STEPS = 50_000
"""Steps of the recipe that the name of a learner stands for."""


def require_at_least(settings: Any, least: Mapping[str, float]) -> None:
    """Raise InvalidSetting if a field of `settings` is below its least value; least: field -> least value."""
    require_allowed(settings, {name: (getattr(settings, name) >= low, f"{low} or more") for name, low in least.items()})


@dataclass(frozen=True)
class EnvironmentSettings:
    """Name of an environment, its arguments and its wrappers."""

    name: str = ""
    """"family/task" (`robo-rl envs` lists them), "package.module:Class" of your own, or an id of Gymnasium (CartPole-v1).
    Empty for the environment in which the dataset was recorded."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment."""
    wrappers: tyro.conf.Fixed[tuple[dict[str, Any], ...]] = ()
    """Wrappers, the first one next to the environment: [{name: frame_stack, count: 3}, ...] (docs/simulators/wrappers.md).
    To set one of their settings: --environment.wrappers.NAME.KEY VALUE."""

    @property
    def everything(self) -> dict[str, Any]:
        """Arguments and wrappers, as `make_environment` takes them."""
        return {**self.arguments, **({"wrappers": [*self.wrappers]} if self.wrappers else {})}

    def with_more(self, arguments: Mapping[str, Any]) -> EnvironmentSettings:
        """Return the settings with further keyword arguments of the environment.

        The key `wrappers` is no argument of the environment: its value changes the list of wrappers, as `changed` does.
        """
        own, around = {**self.arguments, **arguments}, [*self.wrappers]
        if "wrappers" in own:
            around = changed(around, own.pop("wrappers"))
        return replace(self, arguments=own, wrappers=tuple(around))

    def in_evaluation(self, arguments: Mapping[str, Any], wrappers: Sequence[Mapping[str, Any]]) -> EnvironmentSettings:
        """Return the settings of the environment for evaluations, without the wrappers that only trainings have.

        arguments, wrappers: values that differ in evaluations, as in EvaluationSettings.
        """
        there = self.with_more({**arguments, **({"wrappers": wrappers} if wrappers else {})})
        return replace(there, wrappers=tuple(map(dict, in_evaluations(there.wrappers))))


@dataclass(frozen=True)
class DemonstrationSettings:
    """Demonstrations: episodes of a dataset, or of the environment's scripted expert, who records them before the training."""

    dataset: str = ""
    """Folder of a dataset (`robo-rl record`), of which `episodes` are used, or all; empty for the scripted expert."""
    labels: str = ""
    """Label set of the dataset (`robo-rl label`) in place of the recorded rewards; empty for the recorded ones."""
    episodes: int = 0
    """Number of episodes; 0 for all of the dataset, or for none of the expert. Only successful episodes of the expert are kept;
    the log has the number of attempts."""
    seed: int = 500_000
    """Reset seed of the expert's first episode; each further one has the next seed."""
    noise: float = 0.0
    """Standard deviation of the noise on the expert's action, in [-1, 1] units."""

    def __post_init__(self) -> None:
        require_at_least(self, {"episodes": 0, "seed": 0, "noise": 0})
        if self.labels and not self.dataset:
            raise InvalidSetting("Labels are of a dataset, and none is named.", got=self.labels, fix="--dataset DATASET")


@dataclass(frozen=True)
class EvaluationSettings:
    """Evaluation of the policy. Every run has the same seeds, so that runs can be compared episode by episode."""

    episodes: int = 50
    """Episodes of the final evaluation."""
    before: bool = False
    """Also evaluate before the first step; the final evaluation is then compared with this one."""
    every: int = 0
    """Steps between evaluations during training; 0 for none."""
    episodes_during: int = 20
    """Episodes of each evaluation during training, and of the one before the first step."""
    videos: int = 4
    """Episodes of the final evaluation that are filmed, half of them failures if there are both; 0 for none."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment that differ in evaluations, such as routes: test."""
    wrappers: tyro.conf.Fixed[tuple[dict[str, Any], ...]] = ()
    """Wrappers whose settings differ in evaluations, by name, and further wrappers."""
    seed: int = FIRST_SEED
    """Reset seed of the first episode; by default no training or demonstration has this seed or those that follow."""
    stochastic: bool = False
    """Sample actions instead of taking the most likely ones. A policy without memory that sees only a part of its world may
    repeat the same few steps endlessly; published results on MiniGrid are of sampled actions."""

    def __post_init__(self) -> None:
        require_at_least(self, {"episodes": 1, "every": 0, "episodes_during": 1, "videos": 0, "seed": 0})


@dataclass(frozen=True)
class OnlineSettings:
    """Second phase of a training from recorded episodes, in which the policy acts in the environment."""

    steps: int = 0
    """Environment steps after the updates from recorded episodes, with one update each; 0 for no such phase. `--then online`
    takes as many steps as there were updates."""
    offline_fraction: float = 0.5
    """Share of every batch that comes from the recorded episodes; a half, as in RLPD (Ball et al. 2023)."""
    replay_capacity: int = 1_000_000
    """Largest number of steps in the replay memory of this phase."""

    def __post_init__(self) -> None:
        require_at_least(self, {"steps": 0, "replay_capacity": 2})
        require_allowed(self, {"offline_fraction": (0.0 < self.offline_fraction < 1.0, "between 0 and 1, both excluded")})


@dataclass(frozen=True)
class CurriculumSettings(CurriculumRule):
    """Curriculum: the tasks of the training episodes. Evaluations have the recipe's task, on levels that no training has."""

    variants: tuple[EnvironmentSettings, ...] = ()
    """Environments that are easier than the recipe's, the easiest first. A name or arguments that are left out are the
    recipe's."""
    dataset: str = ""
    """Folder of a teacher's successful episodes (`robo-rl record`), which `hints` are taken from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.hints) != bool(self.dataset):
            got = f"hints {list(self.hints)}, dataset {self.dataset!r}"
            raise InvalidSetting(
                "Hints are of a teacher's episodes.", got=got, fix="set curriculum.hints and curriculum.dataset"
            )
        if not self.sampler and (self.levels or self.hints or self.variants):
            fix = "curriculum.sampler uniform"
            raise InvalidSetting("The curriculum has tasks and no sampler.", got="sampler ''", fix=fix)


@dataclass(frozen=True)
class HumanSettings:
    """Person who corrects the policy in training; in evaluations the policy acts alone."""

    kind: str = ""
    """Kind of simulated person: perfect, noisy, delayed, lazy or wrong (docs/people/human-in-the-loop.md); "console" for a
    real one at a robot, who also starts and labels its episodes (docs/robots/console.md); empty for none."""
    address: str = "127.0.0.1"
    """Address of the console's page."""
    port: int = 8644
    """Port of the console's page; 0 takes any free one."""
    browser: bool = True
    """Open the page in the browser if there is a display."""
    teleoperator: str = ""
    """Device to drive with beside the console's page: spacemouse, gamepad, ... (docs/robots/console.md); empty: none."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the device: axes, linear_speed, angular_speed, dead_band, release."""

    def __post_init__(self) -> None:
        if (self.teleoperator or self.settings) and self.kind != "console":
            raise InvalidSetting(
                "Only a person at the console has a device.",
                got=f"human.kind {self.kind!r}, human.teleoperator {self.teleoperator!r}",
                allowed="kind console",
                fix="--human.kind console, or leave the device out",
            )


@dataclass(frozen=True)
class InitialSettings:
    """Initial policy of a training."""

    run: str = ""
    """Run whose learner (networks, optimisers) the training starts from, and whose policy takes the first steps; empty for a
    fresh learner."""
    reads: tuple[str, ...] = ()
    """Entries of the observation that the learner reads; by default those that the run's policy reads. Others, such as cameras
    for a person, are still recorded."""

    def __post_init__(self) -> None:
        if self.reads and not self.run:
            got = f"initial.reads {list(self.reads)}"
            raise InvalidSetting("These entries are read by an initial run, and none is named.", got=got, fix="set initial.run")


@dataclass(frozen=True)
class CompletionSettings:
    """Bonus for completion of the task, which a model detects in place of the simulator."""

    name: str = ""
    """Reward that scores pictures and states its certainty (`robo-rl reward list`), or a YAML file; empty for no bonus."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the completion's reward model."""
    threshold: float = 0.5
    """Least score at which the task counts as completed."""
    bonus: float = 1.0
    """Reward of the step in which the model first sees the task completed; for the learner the episode ends with it."""


@dataclass(frozen=True)
class RewardSettings:
    """Reward of a model in place of the environment's reward, which is then only logged."""

    name: str = ""
    """Reward that scores pictures or steps (`robo-rl reward list`), program:PATH, or a YAML file; empty for the environment's
    own reward."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the reward, such as mode: delta."""
    weight: float = 1.0
    """Factor by which its rewards are multiplied."""
    every: int = 64
    """Pictures that the model scores in one call; steps wait for their rewards, at most until their episode ends."""
    hold: int = 1
    """Only the picture of every `hold`-th step is scored; in between the score stays the same. 1 scores all."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments with which the environment renders what the model needs, such as cameras: [front]; the policy does not
    observe it. Empty if the environment's own arguments render it for the policy, too."""
    completion: CompletionSettings = CompletionSettings()
    probation: bool = True
    """Check its reward programs before the first step, as `robo-rl reward check` does, on the demonstrations or on a few fresh
    episodes; a program that fails is refused."""

    def __post_init__(self) -> None:
        require_at_least(self, {"every": 1, "hold": 1})
        if not self.name and (self.settings or self.arguments or self.completion.name):
            raise InvalidSetting(
                "The recipe says how to use the reward of a model, and names none.", got=plain(self), fix="set reward.name"
            )


@dataclass(frozen=True)
class Recipe(Generic[Learner]):
    """All settings of a training."""

    name: str
    """Name of the recipe, and part of the name of the run folder."""
    environment: EnvironmentSettings
    algorithm: tyro.conf.Fixed[str]
    """Name of the learner: an entry point in `robo_rl.learners`."""
    learner: Learner
    """Settings of the algorithm."""
    steps: int
    """Environment steps of the training; updates if the learner does not use an environment."""
    demonstrations: DemonstrationSettings = DemonstrationSettings()
    initial: InitialSettings = InitialSettings()
    online: OnlineSettings = OnlineSettings()
    curriculum: CurriculumSettings = CurriculumSettings()
    human: HumanSettings = HumanSettings()
    reward: RewardSettings = RewardSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    seed: int = 0
    """Seed of everything random in the training: networks, exploration, sampling and resets."""
    threads: int = 1
    """Threads of one tensor operation; a resume is exact only with the same number."""
    log_every: int = 1000
    """Steps between two lines of metrics.jsonl; 0 for one line at the end."""
    checkpoint_every: int = 10_000
    """Steps between two checkpoints; 0 for one at the end only, which is always written."""
    learner_process: Literal["auto", "on", "off"] = "auto"
    """Run the learner in a separate process: updates then never delay an action, and either process may die. "auto": only on
    robots (robot:URL), if the learner acts step by step. A resume is then warm (not bit for bit); no executed step is lost."""
    environments: int = 0
    """Number of environments that step together in this process (docs/simulators/many-environments.md); steps are counted over
    all. 0 for the learner's own number, which is 1 for learners with a replay memory."""
    record_episodes: bool = False
    """Keep all training episodes in the dataset RUN/episodes, and the policy of every evaluation in RUN/policies, for
    `robo-rl record --family`. Only for our learners that act step by step, such as SAC and RLPD."""
    summary: tyro.conf.Fixed[str] = ""
    """Sentence about the recipe that `robo-rl recipes` shows."""
    needs: tyro.conf.Fixed[dict[str, str]] = field(default_factory=dict)
    """File or folder that the reward reads -> the command that makes it."""

    def __post_init__(self) -> None:
        require_at_least(self, {"steps": 1, "seed": 0, "threads": 1, "environments": 0, "log_every": 0, "checkpoint_every": 0})
        if self.reward.name and self.demonstrations.labels:
            raise InvalidSetting(
                "The recipe's reward labels the demonstrations itself.",
                got=f"demonstrations.labels {self.demonstrations.labels}",
                fix="leave the labels out: two rewards in one memory would have two scales",
            )

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the environment, with its wrappers, except the wrappers that only trainings have."""
        return self.environment.in_evaluation({}, ()).everything

    @property
    def total_steps(self) -> int:
        """Steps of the training and of its online phase together."""
        return self.steps + self.online.steps


def read_recipe(name: str) -> Recipe[Any]:
    """Return the recipe that a name or a path stands for.

    Args:
        name: The name of a recipe of the package; the path of a YAML file; "sac.yml#HalfCheetah-v5" for one environment of an
            rl-zoo file; or the name of a learner, such as "sac", for its usual settings without an environment.

    Raises:
        UnknownName: There is no such recipe or learner, or a key or value in the file has an unknown name.
        InvalidSetting: There is no such file, or it is not a valid recipe.
    """
    path, _, zoo_environment = name.partition(ZOO_SEPARATOR)
    if zoo_environment:
        return parse_recipe(_zoo(Path(path), zoo_environment), source=name)
    known = recipe_files()
    file = Path(name) if name.endswith((".yaml", ".yml")) else known.get(name)
    if file is not None and not file.exists():  # a shipped recipe may be named with its ending
        file = known.get(file.stem)
    if file is None and name.endswith((".yaml", ".yml")):
        fix = "give the path of a recipe, or the name of one that comes with the package (`robo-rl recipes`)"
        raise InvalidSetting(f"There is no file {name}.", got=f"no such file in {Path.cwd()}", fix=fix)
    if file is None and name in installed("learners"):
        return parse_recipe({"name": name, "algorithm": name, "environment": {}, "steps": USUAL_STEPS}, source=name)
    if file is None:
        fix = "`robo-rl recipes` lists them; a learner (`robo-rl learners`) or a path to a .yaml file works too"
        raise UnknownName("recipe", name, [*known, *installed("learners")], fix=fix)
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise InvalidSetting(f"{file} is not a recipe.", got=type(data).__name__, allowed="a YAML mapping")
    return parse_recipe({"name": file.stem, **data}, source=str(file))


def parse_recipe(data: Mapping[str, Any], *, source: str) -> Recipe[Any]:
    """Return the recipe that a mapping describes; source: its file or name, for messages.

    Raises UnknownName or InvalidSetting, with the key that is wrong.
    """
    if "algorithm" not in data:
        raise InvalidSetting(f"{source} names no algorithm.", got=sorted(data), allowed="a key `algorithm`, such as rlpd")
    config = load("learners", str(data["algorithm"]))
    data = _with_own_number({"learner": {}, **data}, config)
    recipe: Recipe[Any] = settings_as(Recipe, data, source=source, types={"learner": config})
    return recipe


def _with_own_number(data: Mapping[str, Any], config: Any) -> Mapping[str, Any]:
    """Return the values of a recipe with `environments` moved to the learner's own setting for it, if it has one."""
    own, count = own_number(config), data.get("environments")
    if not own or not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return data
    return {**data, "learner": {**(data["learner"] or {}), own: count}, "environments": 0}


def to_yaml(recipe: Recipe[Any]) -> str:
    """Return the recipe as YAML, with every default written out; `parse_recipe` reads it back."""
    written = {key: value for key, value in plain(recipe).items() if key != "needs" or value}
    return str(yaml.safe_dump(written, sort_keys=False, width=120))


def _zoo(path: Path, environment: str) -> dict[str, Any]:
    from robo_policies.sb3.zoo import read_zoo

    if not path.exists():
        raise UnknownName(
            "rl-zoo file", str(path), [], fix="give the path of a file such as rl-baselines3-zoo/hyperparams/sac.yml"
        )
    settings = read_zoo(path.read_text(), algorithm=path.stem, environment=environment)
    ignored = f"; ignored: {', '.join(settings.ignored)}" if settings.ignored else ""
    return {
        "name": f"zoo-{path.stem}-{environment.replace('/', '-')}",
        "environment": {"name": environment if "/" in environment else f"gymnasium/{environment}"},
        "algorithm": f"sb3-{path.stem}",
        "learner": settings.learner,
        "steps": settings.steps,
        "summary": f"rl-zoo settings of {path.name}{ignored}",
    }
