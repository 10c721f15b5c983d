"""Training loops whose steps or updates are another process's keep every rule, too; here all halves run in this one."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_policies.networks.settings import Network
from robo_rl.cluster.local import InProcessEngine
from robo_rl.collectors.asynchronous import AsynchronousTraining, Pace
from robo_rl.collectors.collector_pool import CollectorPool
from robo_rl.collectors.rollouts import RolloutCollector
from robo_rl.collectors.segment_log import SegmentLog
from robo_rl.collectors.segments import SegmentCollector
from robo_rl.collectors.synchronous import SynchronousTraining
from robo_rl.conformance.corrector import Corrector
from robo_rl.conformance.swerving import Swerving
from robo_rl.conformance.trainings import TRAINING_CHECKS, run_trial
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.protocols.sampling import Replay
from robo_rl.rollout.intervention import PersonInTheLoop
from robo_rl.rollout.step_log import StepLog, StepReader
from robo_rl.runs.checkpoints import unpacked
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.actor_learner.acting import LearnerConnection, acting_training
from robo_rl.training.actor_learner.learning import LearningTraining
from robo_rl.training.actor_learner.server import Finished
from robo_rl.training.replay_learning import ReplayLearner

SAC = SACConfig(network=Network(hidden=(8,)), batch_size=8, replay=Replay(learning_starts=16, capacity=1_000))
PPO = PPOConfig(network=PolicyValueNetwork(hidden=(8,)), num_envs=4, steps_per_env=8, batch_size=8)
STEPS = 123


def folder():
    return Path(tempfile.mkdtemp(dir=Path.cwd()))


class CollectedSteps:
    """SAC from the segments of two collectors."""

    def __init__(self, factory, steps):
        spec = Swerving().environment_spec

        def collector(job):
            told = unpacked(job)
            return SegmentCollector(
                factory(), SAC.build(spec, 0).policy, seed=0, birth=told["birth"], extras=SAC.sampling.extras
            )

        where = folder()
        student = ReplayLearner(SAC.build(spec, 0), SAC.sampling, seed=0, stopwatch=Stopwatch())
        pool, log = CollectorPool(InProcessEngine(collector), {}, 2), SegmentLog(where / "collected", 0)
        self.training = AsynchronousTraining(student, pool, log, where, steps=steps, pace=Pace(4, 2, 5))
        self.training.go_on(None)

    def __getattr__(self, name):
        return getattr(self.training, name)

    def load_state_dict(self, state):
        self.training.go_on(state)


def collected_rollouts(factory, steps):
    """PPO from the rollouts of two collectors."""
    spec = Swerving().environment_spec

    def collector(job):
        told = unpacked(job)
        each = PPO.num_envs // told["count"]
        environments = SequentialEnvironments(factory, each, autoreset_mode="SameStep")
        return RolloutCollector(environments, PPO.build(spec, 0).policy, seed=0, first=each * told["index"])

    pool = CollectorPool(InProcessEngine(collector), {}, 2)
    return SynchronousTraining(PPO.build(spec, 0), pool, PPO, steps=steps)


class Unhurried:
    """Stands for a learner's process that is never behind."""

    is_ready, restarts, problem, step = True, 0, "", 10**9

    def poll(self): ...

    def metrics(self):
        return {}

    def parameters(self):
        return None


class TwoHalves:
    """An acting half with its log; the learning half reads that afterwards, as the other process does meanwhile."""

    def __init__(self, factory, steps):
        spec, where = Swerving().environment_spec, folder()
        log = StepLog(where, spec)
        person = PersonInTheLoop(Corrector(), None)
        apart = LearnerConnection(log, Unhurried())
        self.acting = acting_training(
            factory(), SAC.build(spec, 0), SAC.sampling, apart, steps=steps, seed=0, supervisor=person
        )
        student = ReplayLearner(SAC.build(spec, 0), SAC.sampling, seed=0, stopwatch=Stopwatch())
        self.learning, self._where = LearningTraining(student, steps=10**9), where

    @property
    def step(self):
        return self.acting.step

    def state_dict(self):
        return self.acting.state_dict()

    def run(self, observer):
        self.acting.run(observer)
        self.acting.step_learner.log.close()

        def nothing_more():
            raise Finished

        with closing(StepReader(self._where)) as steps, pytest.raises(Finished):
            self.learning.source.open(steps, nothing_more)
            self.learning.run(Silent())
        assert self.learning.step == self.acting.step


class Silent:
    def on_step(self, *_): ...
    def on_metrics(self, *_): ...
    def on_episode(self, *_, **__): ...


def without(name):
    return [check for check in TRAINING_CHECKS if check.__name__ != name]


LOOPS = {
    "collected steps": (CollectedSteps, False, TRAINING_CHECKS),
    "collected rollouts": (collected_rollouts, False, TRAINING_CHECKS),
    "two processes": (TwoHalves, True, without("resume_keeps_its_word")),  # that of processes: tests/actor_learner
}


@pytest.fixture(scope="module")
def trials():
    return {}


@pytest.mark.parametrize(("loop", "check"), [(loop, check) for loop, (_, _, checks) in LOOPS.items() for check in checks])
def test_loop_keeps_the_rule(trials, loop, check):
    make, corrected, _ = LOOPS[loop]
    if loop not in trials:
        trials[loop] = run_trial(make, steps=STEPS, resume="warm", corrected=corrected)
    check(trials[loop])
