"""Every training loop of ours keeps every rule, with every learner that it trains."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from robo_app.papers.checks import rows_of, run_row
from robo_app.papers.trials import STEPS, run_learner
from robo_policies.learners.dagger import LabelledEnv
from robo_rl.conformance.corrector import Corrector
from robo_rl.conformance.swerving import Swerving
from robo_rl.conformance.trainings import TRAINING_CHECKS, check_training
from robo_rl.entry_points import known, load
from robo_rl.errors import ConformanceFailure
from robo_rl.papers import papers
from robo_rl.protocols.contract import (
    ONLINE,
    ONLINE_IN_MANY,
    Feature,
)
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.rollout.intervention import PersonInTheLoop
from robo_rl.rollout.vector import RunningEpisodes, VectorRollout
from robo_rl.settings import updated
from robo_rl.training.compatibility import Capabilities, learners
from robo_rl.training.episode_reports import EpisodeReports, report_episode
from robo_rl.training.off_policy import StepLoop
from robo_rl.training.plan import TrainingPlan
from robo_rl.types import ActionSource

OF_PAPERS = {
    name: (paper, row)
    for paper in papers().values()
    for name, row in rows_of(paper).items()
    if name in paper.components.get("learners", {})
}
"""Learner of a paper -> paper, and the row that its folder declares."""
ELSEWHERE = {
    **{name: row.elsewhere for name, (_, row) in OF_PAPERS.items() if row.elsewhere},
}
"""Learners that cannot act in the suite's environment."""
SMALL = {
    "network": {"hidden": (8,)},
    "batch_size": 8,
    "critics": 2,
    "updates_per_step": 2,
    "gradient_steps": 2,
    "replay": {"learning_starts": 16, "capacity": 1_000},
    "learning_starts": 16,
    "num_envs": 2,
    "steps_per_env": 8,
    "policy_kwargs": {"net_arch": [8]},
    "buffer_size": 1_000,
    "episodes": 2,
    "group": 2,
    "device": "cpu",
    "experts": "return 0.95",
    "worst_return": 0.0,
}
OWN = {
    "drq": {"network": {"convolutions": (4,), "crop_padding": 1}},
    **{name: {"n_steps": 8} for name in ("sb3-ppo", "sb3-a2c", "sb3-recurrent-ppo")},
}


ENVIRONMENTS = {
    "drq": functools.partial(Swerving, has_camera=True),
}
WRAPPED = {"dagger": lambda inner: LabelledEnv(inner, inner.scripted_policy, share=0.0, noise=0.0)}
"""Learner -> what it needs around the environment."""
LEARNERS = sorted(set(known("learners")) - set(ELSEWHERE))
ONE_OF_EACH_LOOP = {"sac", "hg-dagger", "iql", "ppo", "gtr", "bresa", "qarl", "stepmix-sac", "sb3-sac", "sb3-ppo"}
ROWS = [pytest.param(name, marks=[] if name in ONE_OF_EACH_LOOP else [pytest.mark.slow]) for name in LEARNERS]
MANY = 4  # environments; 123 is no multiple
OFTEN = {"sac", "hil-serl", "dqn"}
"""Learners of many environments that the fast tests train."""
IN_MANY = [name for name, able in learners() if name in LEARNERS and ONLINE_IN_MANY in able.loops]
ROWS_OF_MANY = [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.slow]) for name in IN_MANY]


def small(name):
    own = OF_PAPERS[name][1].settings if name in OF_PAPERS else OWN.get(name, {})
    return updated(load("learners", name)(), known_of(load("learners", name), SMALL), own)


def known_of(kind, settings):
    """Return those settings that a dataclass has, also in its groups."""
    own = {item.name: item.default for item in dataclasses.fields(kind)}
    return {
        key: known_of(own[key], value) if dataclasses.is_dataclass(own[key]) else value
        for key, value in settings.items()
        if key in own
    }


@functools.cache
def trial_of(name, count=1, corrected=False):
    """Return the trial of a learner in `count` environments. corrected: a person takes over now and then."""
    if name in OF_PAPERS:
        return run_row(*OF_PAPERS[name], small(name), count=count, corrected=corrected)
    accompanied = name == "hil-serl" and count > 1
    return run_learner(
        small(name),
        environment=ENVIRONMENTS.get(name),
        wrap=WRAPPED.get(name, lambda inner: inner),
        count=count,
        corrected=corrected,
        accompanied=accompanied,
    )


def takes_corrections(name):
    able = Capabilities.of(small(name))
    return Feature.PERSON in able.features and Feature.CONTINUOUS in able.spaces


CORRECTED_ROWS = [
    pytest.param(name, marks=[] if name in {"rlpd", "hg-dagger", "sb3-sac-hil"} else [pytest.mark.slow])
    for name in LEARNERS
    if takes_corrections(name)
]


@pytest.mark.parametrize("check", TRAINING_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CORRECTED_ROWS)
def test_corrected_training_keeps_the_rule(name, check):
    check(trial_of(name, corrected=True))


@pytest.mark.parametrize("check", TRAINING_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ROWS)
def test_training_keeps_the_rule(name, check):
    check(trial_of(name))


@pytest.mark.parametrize("check", TRAINING_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ROWS_OF_MANY)
def test_training_in_many_keeps_the_rule(name, check):
    check(trial_of(name, MANY))


@pytest.mark.parametrize("name", ROWS_OF_MANY)
def test_many_environments_share_the_steps(name):
    made = trial_of(name, MANY).factory.made
    assert [each.steps for each in made] == [STEPS // MANY] * MANY


def test_a_person_corrects_in_the_first_of_many():
    learner = trial_of("hil-serl", MANY).training.step_learner
    whole = [outcome for outcome in trial_of("hil-serl", MANY).factory.made[0].finished]
    corrected = len(learner.offline.corrections)
    assert 2 * len(whole) <= corrected <= 2 * (len(whole) + 1)
    assert learner.memory.online is learner.replay
    assert learner.replay.sample(2_000).is_human.mean() == pytest.approx(corrected / len(learner.replay), abs=0.05)


def stores_proposals(monkeypatch):
    add = ReplayBuffer.add
    monkeypatch.setattr(ReplayBuffer, "add", lambda self, step: add(self, dataclasses.replace(step, action=step.policy_action)))


def takes_cuts_for_ends(monkeypatch):
    add = ReplayBuffer.add
    broken = lambda self, step: add(self, dataclasses.replace(step, terminated=step.terminated or step.truncated))  # noqa: E731
    monkeypatch.setattr(ReplayBuffer, "add", broken)


def keeps_diverged_steps(monkeypatch):
    monkeypatch.setattr("robo_rl.training.replay_learning.DIVERGED", "never")


def reports(monkeypatch, **changes):
    def broken(observer, step, episode):
        report_episode(observer, step, dataclasses.replace(episode, **{name: of(episode) for name, of in changes.items()}))

    monkeypatch.setattr("robo_rl.training.episode_reports.report_episode", broken)


def forgets_the_person(monkeypatch):
    add = ReplayBuffer.add
    broken = lambda self, step: add(self, dataclasses.replace(step, source=ActionSource.POLICY))  # noqa: E731
    monkeypatch.setattr(ReplayBuffer, "add", broken)


def ignores_commands(monkeypatch):
    override = PersonInTheLoop.override
    broken = lambda self, seen, proposed: (proposed, override(self, seen, proposed)[1])  # noqa: E731
    monkeypatch.setattr(PersonInTheLoop, "override", broken)


def takes_one_more(monkeypatch):
    monkeypatch.setattr(StepLoop, "step", property(lambda self: self.source.taken - (self.source.taken > 20)))


def forgets_its_generator(monkeypatch):
    load = ReplayBuffer.load_state_dict

    def broken(self, state):
        kept = self._generator.bit_generator.state
        load(self, state)
        self._generator.bit_generator.state = kept

    monkeypatch.setattr(ReplayBuffer, "load_state_dict", broken)


@pytest.mark.parametrize(
    ("breaks", "rule"),
    [
        (stores_proposals, "executed actions are learnt from"),
        (takes_cuts_for_ends, "only terminated steps end the bootstrap"),
        (keeps_diverged_steps, "divergence ends an episode and teaches nothing"),
        (functools.partial(reports, success=lambda episode: False), "success of any step counts"),
        (functools.partial(reports, costs=lambda episode: {}), "costs reach the log"),
        (functools.partial(reports, rewards=lambda episode: episode.rewards * 2), "episodes are reported as they were"),
        (functools.partial(reports, stop_reason=lambda episode: "time_limit"), "divergence ends an episode"),
        (forgets_the_person, "corrections arrive"),
        (ignores_commands, "corrections arrive"),
        (takes_one_more, "budget is kept"),
        (forgets_its_generator, "resume keeps its word"),
    ],
)
def test_a_broken_loop_is_found(breaks, rule, monkeypatch):
    breaks(monkeypatch)
    config = small("sac")

    def make(factory, steps):
        person = lambda inner: (inner, PersonInTheLoop(Corrector(), None))  # noqa: E731
        return TrainingPlan(config, ONLINE, Swerving().environment_spec, factory, steps, 0, person=person).training()

    with pytest.raises(ConformanceFailure, match=rule):
        check_training(make, corrected=True)


def changed_step(monkeypatch, **changes):
    """Break what the stepper of many tells of each step."""
    step = VectorRollout.step

    def broken(self, actions):
        found = step(self, actions)
        return dataclasses.replace(found, **{name: of(found) for name, of in changes.items()})

    monkeypatch.setattr(VectorRollout, "step", broken)


def changed_end(monkeypatch, **changes):
    """Break what it tells of each episode."""
    end = RunningEpisodes.end
    broken = lambda self, *given: dataclasses.replace(end(self, *given), **changes)  # noqa: E731
    monkeypatch.setattr(RunningEpisodes, "end", broken)


def reports_divergence_as_time(monkeypatch):
    report = EpisodeReports.report_ended
    broken = lambda self, observer, step, ended, count: report(  # noqa: E731
        self, observer, step, dataclasses.replace(ended, stop_reason="time_limit"), count
    )
    monkeypatch.setattr(EpisodeReports, "report_ended", broken)


def goes_on_to_the_end(monkeypatch):
    monkeypatch.setattr(StepLoop, "step", property(lambda self: self.source.taken - self.source.stride))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("breaks", "rule"),
    [
        (functools.partial(changed_step, actions=lambda step: step.policy_actions), "executed actions are learnt from"),
        (functools.partial(changed_step, terminated=lambda step: step.ended), "only terminated steps end the bootstrap"),
        (
            functools.partial(changed_step, diverged=lambda step: step.diverged & False),
            "divergence ends an episode and teaches",
        ),
        (functools.partial(changed_step, next_observations=lambda step: step.following), "executed actions are learnt from"),
        (functools.partial(changed_end, success=False), "success of any step counts"),
        (functools.partial(changed_end, costs={}), "costs reach the log"),
        (functools.partial(changed_end, episode_return=1.0), "episodes are reported as they were"),
        (reports_divergence_as_time, "divergence ends an episode"),
        (goes_on_to_the_end, "budget is kept"),
        (forgets_its_generator, "resume keeps its word"),
    ],
)
def test_a_broken_loop_of_many_is_found(breaks, rule, monkeypatch):
    breaks(monkeypatch)

    def make(factory, steps):
        return TrainingPlan(small("sac"), ONLINE_IN_MANY, Swerving().environment_spec, factory, steps, 0, count=MANY).training()

    with pytest.raises(ConformanceFailure, match=rule):
        check_training(make)
