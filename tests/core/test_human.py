"""A person in the loop: who acted is recorded, time is counted, corrections enter both memories once, resume is exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories import axes, make_spec, rest_slow
from robo_policies.learners.hg_dagger import HGDAggerConfig
from robo_policies.learners.hil_serl import HILSERLConfig, HILSERLReplay
from robo_policies.learners.offline import OfflineNetwork
from robo_policies.learners.rlpd import RLPDNetwork
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.sampling import StepMemory
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.mixing import BothMemories, CorrectedReplay
from robo_rl.rollout.episode import RandomPolicy, RecordedRollout, rollout
from robo_rl.rollout.intervention import PersonInTheLoop
from robo_rl.rollout.simulated_human import KINDS, Habits, SimulatedHuman, habits_of
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.spec.environment import ArraySpec, specification
from robo_rl.training.off_policy import OnlineTraining, online_training
from robo_rl.training.step_sources import EnvironmentSteps
from robo_rl.types import ActionSource, Array, Episode, Metrics, StateDict, Transition

SPEC = make_spec("test/Line", ArraySpec("x", (1,)), action=axes("a", "b"))
EAST, WEST = np.float32([1.0, 0.0]), np.float32([-1.0, 0.0])


class Pointing:
    """An expert whose n-th action is (1, n / 100): always much the same, never the same."""

    environment_spec = SPEC

    def __init__(self, seed: int = 0) -> None:
        self.count = 0

    def reset(self) -> None:
        self.count = 0

    def act(self, observation: Any, *, deterministic: bool = False) -> Array:
        assert deterministic
        self.count += 1
        return np.float32([1.0, self.count / 100])

    def state_dict(self) -> StateDict:
        return {"count": self.count}

    def load_state_dict(self, state: StateDict) -> None:
        self.count = state["count"]


def commands(habits: Habits, proposals: list[Array], seed: int = 0) -> list[Array | None]:
    human = SimulatedHuman(Pointing, habits, seed)
    human.reset()
    return [human.command({}, proposed) for proposed in proposals]


def acts(habits: Habits, proposals: list[Array], seed: int = 0) -> str:
    return "".join("." if command is None else "H" for command in commands(habits, proposals, seed))


# when a person takes over, what it commands, when it lets go


def test_takeover_after_errors_and_release_after_agreement() -> None:
    habits = Habits(patience=2, trust=3)
    assert acts(habits, [EAST] * 6) == "......"
    assert acts(habits, [WEST, EAST, WEST, WEST, WEST]) == "..HHH"  # steps astray need not be in a row
    assert acts(habits, [WEST, WEST, EAST, EAST, WEST, EAST, EAST, EAST, EAST]) == ".HHHHHH.."
    assert acts(habits, [WEST, WEST, EAST, EAST, EAST, WEST, WEST]) == ".HHH..H"  # patience begins anew


def test_the_perfect_one_commands_what_the_expert_would() -> None:
    given = commands(KINDS["perfect"], [WEST] * 10)
    assert [None if each is None else round(float(each[1]) * 100) for each in given] == [*[None] * 7, 8, 9, 10]


def test_delayed_person_acts_on_old_observation() -> None:
    given = commands(Habits(patience=2, delay=2), [WEST] * 6)
    assert [None if each is None else round(float(each[1]) * 100) for each in given] == [None, None, None, 2, 3, 4]


def test_a_wrong_one_commands_the_opposite() -> None:
    given = commands(Habits(patience=1, mistakes=1.0), [WEST] * 2)
    np.testing.assert_allclose(given, [[-1.0, -0.01], [-1.0, -0.02]])
    errs = [
        acts(Habits(patience=1, mistakes=0.5), [WEST], seed) == "H"
        and commands(Habits(patience=1, mistakes=0.5), [WEST], seed)[0][0] < 0
        for seed in range(40)
    ]
    assert 8 < sum(errs) < 32


def test_a_noisy_one_stays_within_the_limits() -> None:
    given = np.stack([each for each in commands(Habits(patience=1, noise=0.3), [WEST] * 200) if each is not None])
    assert np.abs(given).max() <= 1.0 and given.dtype == np.float32
    assert 0.25 < np.std(given[:, 1] - np.arange(1, 201) / 100) < 0.7 and (given[:, 0] < 1.0).any()


def test_a_lazy_one_watches_some_episodes_only() -> None:
    human = SimulatedHuman(Pointing, Habits(patience=1, attention=0.3), 0)
    watched = 0
    for _ in range(200):
        human.reset()
        watched += human.command({}, WEST) is not None
    assert 40 < watched < 80


def test_an_unknown_kind_names_the_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"Unknown kind of simulated human 'perfekt'(.|\n)*'perfect'"):
        habits_of("perfekt")
    with pytest.raises(InvalidSetting, match="attention"):
        Habits(attention=1.5)


def test_an_expert_that_cannot_be_saved_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"expert cannot be saved within an episode(.|\n)*RandomWalk"):

        class RandomWalk:
            environment_spec = SPEC

            def reset(self) -> None: ...

            def act(self, observation: Any, *, deterministic: bool = False) -> Array:
                return EAST

        SimulatedHuman(lambda seed: RandomWalk(), Habits(), 0)


# counting


class Scripted:
    """Takes over where its script says H."""

    source = ActionSource.HUMAN

    def __init__(self, script: str) -> None:
        self.script, self.step = script, 0

    def reset(self) -> None:
        pass

    def command(self, observation: Any, proposed: Array) -> Array | None:
        self.step += 1
        return EAST if self.script[self.step - 1] == "H" else None

    def state_dict(self) -> StateDict:
        return {"step": self.step}

    def load_state_dict(self, state: StateDict) -> None:
        self.step = state["step"]


def test_contiguous_stretches_steps_and_seconds_are_counted() -> None:
    person = PersonInTheLoop(Scripted(".HH.H" + "HH..."), 0.15)
    sources = []
    for _ in range(2):
        person.reset()
        sources += [person.override({}, WEST) for _ in range(5)]
    assert [source for _, source in sources] == [0, 1, 1, 0, 1, 1, 1, 0, 0, 0]
    assert [float(action[0]) for action, _ in sources] == [-1, 1, 1, -1, 1, 1, 1, -1, -1, -1]
    assert (person.steps, person.interventions) == (5, 3)  # a new episode ends a stretch
    assert person.metrics == {
        "human/intervention_rate": 0.5,
        "human/interventions": 3.0,
        "human/seconds": pytest.approx(5 * 0.15),
    }


def test_the_rate_is_of_recent_episodes() -> None:
    person = PersonInTheLoop(Scripted("H" + "." * 100), None)
    for episode in range(101):
        person.reset()
        person.override({}, WEST)
        assert person.metrics["human/intervention_rate"] == pytest.approx(1 / (episode + 1) if episode < 100 else 0.0)
    assert person.seconds == 1.0


# memories


def walk(script: str, start: int = 0) -> list[Transition]:
    """An episode in which x is the number of the step, and the action is 0.01 times it."""
    steps = []
    for step, letter in enumerate(script, start):
        action = np.full(2, step / 100, np.float32)
        source = ActionSource.HUMAN if letter == "H" else ActionSource.POLICY
        ends = step == start + len(script) - 1
        x, following = ({"x": np.float32([value])} for value in (step, step + 1))
        steps.append(Transition(x, action, float(step), following, ends, False, -action, source))
    return steps


def stored(memory: ReplayBuffer) -> list[tuple[float, float, float, float]]:
    """Every transition of a memory: x, next x, what was executed, the mask."""
    batch = memory.sample(4000)
    columns = (batch.observations["x"], batch.next_observations["x"], batch.actions[:, :1] * 100, batch.masks[:, None])
    return sorted({tuple(row) for row in np.round(np.hstack(columns), 3).tolist()})


def put(memory: StepMemory, steps: list[Transition]) -> None:
    for number, step in enumerate(steps):
        if number == 0:
            memory.begin(step.observation)
        memory.add(step)


def test_corrections_enter_both_buffers_once_as_executed() -> None:
    online, corrections = (ReplayBuffer(SPEC, 100, seed) for seed in (0, 1))
    memory = BothMemories(online, corrections)
    for steps in (walk(".HH.H"), walk("HH.", start=20)):
        put(memory, steps)
    assert (len(online), len(corrections)) == (8, 5)
    assert stored(online) == [(x, x + 1, x, 0.0 if x in (4, 22) else 1.0) for x in (0, 1, 2, 3, 4, 20, 21, 22)]
    assert stored(corrections) == [(x, x + 1, x, 0.0 if x == 4 else 1.0) for x in (1, 2, 4, 20, 21)]
    assert corrections.sample(50).is_human.all()


def test_a_sum_of_rewards_stops_where_the_person_gave_back() -> None:
    corrections = ReplayBuffer(SPEC, 100, 1)
    memory = BothMemories(ReplayBuffer(SPEC, 100, 0), corrections)
    put(memory, walk("HH.HH"))
    batch = corrections.sample(200, n_step=3, discount=1.0)
    found = {(float(x), float(r)) for x, r in zip(batch.observations["x"][:, 0], batch.rewards, strict=True)}
    assert found == {(0, 0 + 1), (1, 1), (3, 3 + 4), (4, 4)}


def corrected(recorded: int, human: int, seed: int = 0) -> CorrectedReplay:
    memories = [ReplayBuffer(SPEC, 100, seed + which) for which in range(2)]
    for memory, script in zip(memories, ("." * recorded, "H" * human), strict=True):
        put(memory, walk(script))
    return CorrectedReplay(*memories, seed)


def test_demonstrations_and_corrections_share_one_sampler() -> None:
    pool = corrected(30, 10)
    assert len(pool) == 40
    is_human = np.concatenate([pool.sample(100).is_human for _ in range(40)])
    assert is_human.mean() == pytest.approx(0.25, abs=0.03)
    halves = [pool.sample(400).is_human.reshape(2, -1).mean(1) for _ in range(10)]
    assert np.abs(np.diff(halves, axis=1)).mean() < 0.1  # mixed, not one after the other
    assert not corrected(30, 0).sample(20).is_human.any()
    assert corrected(0, 5).sample(20).is_human.all()


def test_a_restored_pool_draws_what_would_have_come() -> None:
    pool, other = corrected(20, 10), corrected(20, 10, seed=5)
    pool.sample(7)
    other.load_state_dict(pool.state_dict())
    for name in ("actions", "rewards", "is_human"):
        np.testing.assert_array_equal(getattr(pool.sample(50), name), getattr(other.sample(50), name))


# training

CLUMSY = Habits(patience=3, trust=5, noise=0.2, delay=1, mistakes=0.2)
STEPS, SAVED = 60, (7, 20, 41)


class Silent:
    """Observes nothing, or saves at one step."""

    def __init__(self, save: tuple[int, Path] | None = None) -> None:
        self.save = save
        self.metrics: list[Metrics] = []

    def on_episode(self, step: int, **outcome: Any) -> None: ...

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        self.metrics.append(metrics)

    def on_step(self, step: int, training: Any) -> None:
        if self.save is not None and step == self.save[0]:
            save_checkpoint(self.save[1], Checkpoint(step, training.state_dict()))


class Keeping:
    """Records whole episodes."""

    def __init__(self, keep: Any) -> None:
        self.keep = keep

    def begin(self, number: int, observation: Any, **facts: Any) -> None: ...

    def step(self, transition: Any) -> None: ...

    def recorded(self, number: int) -> None: ...


def picking(config: Any, habits: Habits = CLUMSY, **changes: Any) -> OnlineTraining[EnvironmentSteps]:
    environment = make_environment("robo/ArmPick-v0", max_steps=25, action_repeat=3)
    spec, expert = specification(environment), environment.get_wrapper_attr("scripted_policy")
    demonstrations = [rollout(environment, expert(1), seed=1)]
    person = PersonInTheLoop(SimulatedHuman(expert, habits, 5), spec.action.control_period)
    settings: dict[str, Any] = {"steps": STEPS, "seed": 4, "demonstrations": demonstrations, "supervisor": person} | changes
    sampling = replace(config.sampling, learning_starts=5)  # as the settings of an online phase after cloning
    return online_training(environment, config.build(spec, 4), sampling, **settings)


HIL = HILSERLConfig(
    network=RLPDNetwork(hidden=(8, 8), normalization_rows=40),
    batch_size=8,
    replay=HILSERLReplay(learning_starts=5),
    gripper="gripper_opening",
)


def bits(state: Any) -> bytes:
    if isinstance(state, dict):
        return b"".join(key.encode() + bits(state[key]) for key in sorted(state))
    return np.asarray(state).tobytes()


def everything(training: OnlineTraining[EnvironmentSteps]) -> bytes:
    state = training.state_dict()
    person = {name: value for name, value in state["training"]["supervisor"].items() if name != "human"}
    return (
        bits([repr(person), repr(state["training"]["supervisor"]["human"])])
        + bits(state["learner"])
        + bits({name: part for name, part in state["offline"]["corrections"]["rows"].items()})
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", rest_slow([HIL, HGDAggerConfig(network=OfflineNetwork(hidden=(8,)), batch_size=8)]), ids=["hil-serl", "hg-dagger"]
)
def test_resume_inside_intervention_is_exact(config: Any, tmp_path: Path) -> None:
    whole = picking(config)
    acting: list[int] = []

    class Watching(Silent):
        def on_step(self, step: int, training: Any) -> None:
            if training.source.supervisor._is_acting and training.source._rollout is not None:
                acting.append(step)
            if step in SAVED:
                save_checkpoint(tmp_path / str(step), Checkpoint(step, training.state_dict()))

    whole.run(Watching())
    expected = everything(whole)
    assert len(set(acting) & set(SAVED)) >= 2
    for step in SAVED:
        resumed = picking(config)
        resumed.load_state_dict(load_checkpoint(tmp_path / str(step)).parts)
        assert resumed.resumed == "exact"
        resumed.run(Silent())
        assert everything(resumed) == expected, f"resumed at step {step}"


def test_executed_action_is_learned_also_if_person_errs() -> None:
    kept = []
    training = picking(HIL, Habits(patience=2, mistakes=1.0), recorder=Keeping(kept.append))
    observer = Silent()
    training.run(observer)
    executed = np.concatenate([episode.actions[episode.sources == ActionSource.HUMAN] for episode in kept])
    proposed = np.concatenate([episode.policy_actions[episode.sources == ActionSource.HUMAN] for episode in kept])
    memory = training.step_learner.offline.corrections  # type: ignore[union-attr]
    in_both = {row.tobytes() for row in memory.sample(2000).actions}
    batch = training.step_learner.replay.sample(3000)
    assert len(executed) > 10 and {row.tobytes() for row in executed} <= in_both
    assert in_both == {row.tobytes() for row in batch.actions[batch.is_human]}
    assert not {row.tobytes() for row in proposed} & {row.tobytes() for row in batch.actions}
    person = training.source.supervisor
    assert isinstance(person, PersonInTheLoop) and len(memory) == person.steps
    assert observer.metrics[-1].keys() >= {"human/intervention_rate", "human/interventions", "human/seconds"}
    for episode in kept:  # the simulator confirms it: the executed actions lead through the recorded states
        environment = make_environment("robo/ArmPick-v0", max_steps=25, action_repeat=3)
        environment.reset(seed=episode.seed)
        for step, action in enumerate(episode.actions):
            observation, *_ = environment.step(action)
            assert observation["joint_position"].tobytes() == episode.observations["joint_position"][step + 1].tobytes()


@pytest.mark.slow
def test_hg_dagger_uses_only_demonstrations_and_corrections() -> None:
    training = picking(HGDAggerConfig(network=OfflineNetwork(hidden=(8,)), batch_size=8))
    seen: list[Any] = []
    update = training.learner.update
    training.learner.update = lambda batch: seen.append(batch) or update(batch)  # type: ignore[method-assign, func-returns-value]
    training.run(Silent())
    demonstrated = {row.tobytes() for row in training.step_learner.offline.recorded.sample(2000).actions}  # type: ignore[union-attr]
    for batch in seen:
        assert {row.tobytes() for row in batch.actions[~batch.is_human]} <= demonstrated
    assert sum(int(batch.is_human.sum()) for batch in seen) > 50


def test_without_a_person_nothing_changes() -> None:
    alone = picking(HIL, supervisor=None)
    student = alone.step_learner
    assert student.offline is not None and not isinstance(student.offline, CorrectedReplay) and student.memory is student.replay
    assert alone.state_dict()["training"]["supervisor"] == {}


def test_the_policy_proposes_also_while_the_person_acts() -> None:
    environment = make_environment("robo/ArmPick-v0", max_steps=25, action_repeat=3)
    spec, expert = specification(environment), environment.get_wrapper_attr("scripted_policy")
    person = PersonInTheLoop(SimulatedHuman(expert, Habits(patience=2), 0), spec.action.control_period)
    episode = rollout(environment, RandomPolicy(spec, 0), seed=0, supervisor=person)
    own = episode.sources == ActionSource.POLICY
    np.testing.assert_array_equal(episode.actions[own], episode.policy_actions[own])
    assert own.any() and not own.all()
    assert sum(len(range(i.start, i.stop)) for i in episode.interventions) == person.steps


def test_replayed_episode_keeps_counts_without_supervisor() -> None:
    class Absent:
        def reset(self) -> None:
            raise AssertionError("asked")

        command = reset

    steps = np.arange(5, dtype=np.float32)
    sources = [ActionSource.POLICY, ActionSource.HUMAN, ActionSource.HUMAN, ActionSource.GUARD, ActionSource.HUMAN]
    episode = Episode(
        observations={"x": np.arange(6, dtype=np.float32)[:, None]},
        actions=steps[:, None],
        policy_actions=-steps[:, None],
        rewards=steps,
        sources=np.array(sources, np.int8),
        timestamps=np.arange(6.0),
        terminated=False,
        truncated=True,
        stop_reason="crash",
        success=False,
        seed=3,
        spec_fingerprint="0" * 16,
    )
    person = PersonInTheLoop(Absent(), 0.5)  # type: ignore[arg-type]
    told = RecordedRollout(episode, 1, person)
    transitions = []
    while not told.done:
        transitions.append(told.step())
    assert [step.reward for step in transitions] == [1, 2, 3, 4] and [step.truncated for step in transitions] == [0, 0, 0, 1]
    assert [step.policy_action[0] for step in transitions] == [-1, -2, -3, -4]
    assert [(step.observation["x"][0], step.next_observation["x"][0]) for step in transitions][-1] == (4, 5)
    assert (person.steps, person.interventions, person.seconds) == (3, 2, 1.5)
    assert told.episode() is episode and len(told.state_dict()["actions"]) == 5
