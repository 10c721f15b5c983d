"""Trainings of recipes and their resumption: implements `robo_rl.train` and `robo_rl.resume`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robo_app.display.display import Shown, display, say, showing
from robo_app.jobs.interruption import gentle_interruption, resumable
from robo_app.recipes.defaults import at_its_place, completed, learnt_from, with_dataset, with_online_phase
from robo_app.recipes.environments import RecipeEnvironments
from robo_app.recipes.loop_choice import loop_of
from robo_app.recipes.online_reward import require_same_reward, reward_of
from robo_app.recipes.overrides import plain_value, recipe_from
from robo_app.recipes.recipe import Recipe, to_yaml
from robo_app.training.assembly import Evaluator, demonstrations_of, initial_of, plan_of, recipe_of
from robo_app.training.collecting import CollectingSettings, collected_training, dismissed, require_collectable, settings_of
from robo_app.training.episode_recording import keeping_policies, policy_parts, recording
from robo_app.training.extension import extended, is_finished
from robo_app.training.finalisation import conclude, keep_incomplete, note_updates
from robo_app.training.initialisation import begin, left_still, wait_for_robot, with_reads
from robo_app.training.learner_process import (
    acting_half,
    ended,
    is_prepared,
    prepare,
    priority,
)
from robo_app.training.program_validation import require_sound_programs
from robo_app.training.supervision import asking, operator_of, robot_at
from robo_rl.collectors.asynchronous import AsynchronousTraining
from robo_rl.errors import RunError
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evidence import evidence_of
from robo_rl.protocols.components import Training
from robo_rl.protocols.contract import ACTOR_LEARNER
from robo_rl.runs.callbacks import Callback, Callbacks
from robo_rl.runs.checkpoints import Checkpoint
from robo_rl.runs.newest_episode import NewestEpisode
from robo_rl.runs.observer import Cadence, RunRecord
from robo_rl.runs.run import Run, write_text
from robo_rl.settings import settings_as
from robo_rl.system.threads import tensor_threads
from robo_rl.training.off_policy import OnlineTraining
from robo_rl.training.plan import TrainingPlan
from robo_rl.types import Episode, StateDict
from robo_rl.workbench import RecipeLike

if TYPE_CHECKING:
    from robo_real.console.operator import Operator


def train(
    recipe: RecipeLike,
    overrides: Mapping[str, Any],
    dataset: str,
    labels: str,
    collectors: int | Mapping[str, Any],
    out: Path,
    progress: bool,
    callbacks: Sequence[Callback | str],
) -> Run:
    """Implement `robo_rl.train`; `overrides` includes seed and steps."""
    heard = Callbacks(callbacks)
    resolved = with_reads(completed(with_dataset(recipe_from(recipe, overrides), dataset, labels)))
    collecting = _collecting(resolved, collectors)
    loop_of(resolved, collectors=collecting is not None)
    with showing(progress), tensor_threads(resolved.threads), operator_of(resolved) as operator:
        return _train(resolved, out, operator, collecting, heard)


def _collecting(recipe: Recipe[Any], collectors: int | Mapping[str, Any]) -> CollectingSettings | None:
    """Return the settings of a training's collectors, None if it has none; raises InvalidSetting if the recipe forbids them."""
    if collectors == 0 and not isinstance(collectors, bool):
        return None
    facts = plain_value(collectors) if isinstance(collectors, Mapping) else {"count": collectors}
    settings: CollectingSettings = settings_as(CollectingSettings, facts, source="collectors")
    require_collectable(recipe, settings)
    return settings


def _train(
    recipe: Recipe[Any],
    root: Path,
    operator: Operator | None,
    collecting: CollectingSettings | None,
    callbacks: Callbacks,
) -> Run:
    training: Training
    with closing(RecipeEnvironments(recipe)) as environments:
        reward = reward_of(recipe, environments)
        require_sound_programs(recipe, reward)
        plan = plan_of(recipe, environments, reward, operator, collectors=collecting is not None)
        demonstrations, origin = demonstrations_of(recipe, reward, environments)
        plan = replace(plan, demonstrations=demonstrations, initial=initial_of(recipe))
        acting = plan.acting() if plan.loop is ACTOR_LEARNER else None
        if acting is None and collecting is None:
            training = _in_process(plan)
    run = Run.create(root, recipe_name=recipe.name, seed=recipe.seed, recipe=to_yaml(recipe), spec=environments.seen)
    with run, resumable(run.path), callbacks.hearing(run, 0):
        run.announce(0, "starting")
        if recipe.demonstrations.dataset:
            run.describe(dataset=learnt_from(recipe))
        elif run.spec.action.control_period is not None:
            steps = sum(len(episode) for episode in demonstrations)
            run.describe(demonstrated_seconds=round(steps * run.spec.action.control_period, 3))
        if reward is not None:
            run.describe(reward=dict(reward.identity))
        if acting is not None:
            prepare(run, plan, acting.learner)
            training = acting_half(run, recipe, plan, acting)
        if collecting is not None:
            run.describe(collectors=collecting.to_json())
            training = collected_training(run, recipe, collecting, plan)
        with display(recipe.name, recipe.total_steps) as shown, ended(training, shown.say), dismissed(training, shown.say):
            shown.say(f"run {run.path}")
            shown.say(f"{recipe.algorithm} is {evidence_of('learners', recipe.algorithm)}")
            if recipe.reward.name:
                shown.say(f"{recipe.reward.name} is {evidence_of('rewards', recipe.reward.name)}")
            if demonstrations:
                shown.say(origin)
            record = _run(run, recipe, training, shown, plan, callbacks, operator=operator)
        conclude(run, recipe, training.policy, record, operator, callbacks)
    return run


def _in_process(plan: TrainingPlan) -> Training:
    """Return the training of a plan whose loop runs in this process, and print the memory of its replay."""
    training = plan.training()
    if isinstance(training, OnlineTraining):  # whose replay lacks the pictures that its policy does not read
        say(training.step_learner.replay.statement(training.steps))
    return training


def resume(
    run: Run,
    steps: int | None,
    online_steps: int | None,
    dataset: str,
    ray: str,
    robot: str,
    progress: bool,
    callbacks: Sequence[Callback | str],
) -> Run:
    """Implement `robo_rl.resume`: restore the newest checkpoint and train to the end.

    A run that was interrupted before its first checkpoint starts again from its beginning, with the same results.
    """
    heard = Callbacks(callbacks)
    with showing(progress), resumable(run.path), run, ExitStack() as held:
        recipe = recipe_of(run)
        if robot:
            recipe = replace(recipe, environment=replace(recipe.environment, name=robot_at(robot)))
            write_text(run.path / "recipe.yaml", to_yaml(recipe))
        if online_steps is not None:
            recipe = with_online_phase(recipe, online_steps)
            write_text(run.path / "recipe.yaml", to_yaml(recipe))
        environments = held.enter_context(closing(RecipeEnvironments(recipe)))
        run.spec.require(environments.seen, what=f"The environment has changed since the run {run.path.name}")
        checkpoint = run.load() if run.has_checkpoint else Checkpoint(0, {})
        if steps is not None:
            recipe = extended(run, recipe, steps, checkpoint.step)
        if is_finished(run, recipe, checkpoint.step):
            say(f"The run {run.path.name} is finished: {checkpoint.step} steps, and evaluated. Nothing was changed.")
            say(f"Train it longer: robo-rl resume {run.path} --steps {2 * recipe.total_steps}")
            say(f"More seeds: robo-rl evaluate {run.path} --episodes 200")
            return run
        recipe = at_its_place(run, recipe, dataset)
        held.enter_context(heard.hearing(run, checkpoint.step))
        with tensor_threads(recipe.threads), operator_of(recipe) as operator:
            _go_on(run, recipe, environments, checkpoint, settings_of(run, ray), operator, heard)
    return run


def _go_on(
    run: Run,
    recipe: Recipe[Any],
    environments: RecipeEnvironments,
    checkpoint: Checkpoint,
    collecting: CollectingSettings | None,
    operator: Operator | None,
    callbacks: Callbacks,
) -> None:
    run.announce(checkpoint.step, "starting")
    reward = reward_of(recipe, environments)
    require_same_reward(run, reward)
    plan = plan_of(recipe, environments, reward, operator, collectors=collecting is not None)
    is_apart = plan.loop is ACTOR_LEARNER and (is_prepared(run) or not checkpoint.parts)
    if not (is_apart and is_prepared(run)):  # its learner finds its initial state in its own folder
        initial = None if checkpoint.parts else initial_of(recipe)
        plan = replace(plan, demonstrations=demonstrations_of(recipe, reward, environments)[0], initial=initial)
    training: Training
    if collecting is not None:
        training = collected_training(run, recipe, collecting, plan)
    elif is_apart:
        acting = plan.acting()
        if not is_prepared(run):
            prepare(run, plan, acting.learner)
        training = acting_half(run, recipe, plan, acting)
    else:
        training = _in_process(plan)
    with display(recipe.name, recipe.total_steps) as shown, ended(training, shown.say), dismissed(training, shown.say):
        if isinstance(training, AsynchronousTraining):
            training.go_on(checkpoint.parts or None)
        elif checkpoint.parts:
            _restore(training, checkpoint.parts, run)
        wait_for_robot(training)
        run.rewind(training.step)
        kind = training.resumed or ("exact" if getattr(training, "replays", True) else "warm")
        _note(run, training.step, kind)
        shown.say(f"run {run.path}: resumed at step {training.step}, {kind}")
        record = _run(run, recipe, training, shown, plan, callbacks, checkpoint.parts.get("record"), operator)
    conclude(run, recipe, training.policy, record, operator, callbacks)


def _restore(training: Training, state: StateDict, run: Run) -> None:
    """Restore a training; raises RunError for a state of another version, such as one with other keys."""
    try:
        training.load_state_dict(state)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        what = f"The checkpoint of {run.path} does not fit this training: another version of robo-rl wrote it."
        got = f"{type(error).__name__}: {error}"
        raise RunError(what, got=got, allowed="a state of this version", fix="train again, or use that version") from error


def _note(run: Run, step: int, kind: str) -> None:
    """Add an event to the resumes in run.json, for the report."""
    event = {"time": datetime.now().astimezone().isoformat(timespec="seconds"), "step": step, "kind": kind}
    run.describe(resumes=[*run.description["resumes"], event])


def _run(
    run: Run,
    recipe: Recipe[Any],
    training: Training,
    shown: Shown,
    plan: TrainingPlan,
    callbacks: Callbacks,
    state: dict[str, Any] | None = None,
    operator: Operator | None = None,
) -> RunRecord:
    """Run a training to its end and return its record. state: the record's state in the checkpoint, None at a new training."""
    cadence = Cadence(recipe.log_every, recipe.evaluation.every, recipe.checkpoint_every)

    def keep(episode: Episode, replays: bool) -> None:
        NewestEpisode.of(episode, kind="evaluation", step=training.step, replays=replays).write(run.path)

    def keep_early(evaluation: Evaluation) -> None:
        keep_incomplete(run, f"{training.step:010d}", evaluation)

    with (
        left_still(training),
        closing(Evaluator(recipe, recipe.evaluation.episodes_during, operator, keep, keep_early)) as evaluate,
        closing(
            RunRecord(
                run,
                cadence,
                keeping_policies(run, recipe, training, evaluate),
                shown,
                training.step,
                callbacks=callbacks,
                kept_parts=partial(policy_parts, recipe),
            )
        ) as record,
    ):
        if state is not None:
            record.load_state_dict(state)
        try:
            with priority(training):
                begin(run, recipe, training, record)
                with recording(run, recipe, training, plan.recorder), gentle_interruption(asking(record, operator)):
                    training.run(record)
        except KeyboardInterrupt:
            shown.say(f"interrupted at step {training.step}; go on with: robo-rl resume {run.path}")
            raise
        record.finish(training.step, training)
    note_updates(run, recipe, training)
    if training.step != recipe.total_steps:
        left = recipe.total_steps - training.step
        shown.say(
            f"ended at step {training.step}: the {left} left of {recipe.total_steps} are too few for another step or rollout"
        )
    return record
