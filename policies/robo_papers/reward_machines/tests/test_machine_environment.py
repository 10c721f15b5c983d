"""Tasks of reward machines: labels, rewards, ends, potentials, and episodes told again from other states."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from factories import axes, make_spec
from robo_papers.reward_machines.study import KINDS, MOST, steps_to_solve
from robo_papers.reward_machines.wrapper import LABELS, STATE, MachineEnv
from robo_policies.learners.sac import SACConfig
from robo_policies.networks.settings import Network
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.sampling import Replay
from robo_rl.replay.imagined import IMAGINED
from robo_rl.rewards.programs.runner import end_workers
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import ArraySpec, specification
from robo_rl.training.off_policy import online_training

gymnasium = pytest.importorskip("gymnasium")
LABELLED = {
    "labels": {
        "left": {"entry": "x", "index": 0, "below": -0.5},
        "right": {"entry": "x", "near": [1.0], "within": 0.3},
    }
}
HIGH = """
def reward(batch):
    high = np.where(batch["end_effector_position"][:, 2] > 0.0, 1.0, 0.0)
    return high, {"high": high}
"""
BOTH = {**LABELLED, "formula": "F (left & X F right)"}


@pytest.fixture(scope="module", autouse=True)
def _workers_end():
    yield
    end_workers()


class Line(gymnasium.Env):
    """A point that moves by half of its action, for six steps; it may end by itself."""

    environment_spec = make_spec("a/Line", ArraySpec("x", (1,)), action=axes("dx"), max_steps=6)
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space
    ends_at = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._x, self._steps = 0.0, 0
        return {"x": np.zeros(1, np.float32)}, {}

    def step(self, action):
        self._x += 0.5 * float(action[0])
        self._steps += 1
        ends = self._steps == self.ends_at
        info = {"success": True} | ({"stop_reason": "goal"} if ends else {})  # of its own task
        return {"x": np.array([self._x], np.float32)}, 7.0, ends, self._steps == 6, info


def played(actions, machine=BOTH, line=None, **settings):
    environment = MachineEnv(Line() if line is None else line, machine, **settings)
    observation, _ = environment.reset(seed=0)
    found = [(observation, 0.0, False, False, {})]
    for each in actions:
        found.append(environment.step(np.array([each], np.float32)))
        if found[-1][2] or found[-1][3]:
            break
    return environment, found[1:]


WAY = [-1.0, -1.0, 1.0, 1.0, 1.0, 1.0]
"""To -1 and to 1 in six steps."""


def test_the_machine_pays_and_ends_the_episode():
    environment, steps = played(WAY)
    assert [step[4][LABELS] for step in steps] == [[], ["left"], [], [], [], ["right"]]
    assert [step[1] for step in steps] == [0, 0, 0, 0, 0, 1.0]
    assert steps[-1][2] and not steps[-1][3]
    assert steps[-1][4]["success"] and steps[-1][4]["stop_reason"] == "goal"
    assert [int(step[0][STATE].argmax()) for step in steps][:2] == [0, 1]
    assert environment.environment_spec.observation[STATE].shape == (len(environment.machine.states),)
    _, other = played([1.0] * 6)
    assert not any(step[4]["success"] for step in [*steps[:-1], *other])
    assert other[-1][3] and not other[-1][2] and other[-1][4]["success"] is False and other[-1][1] == 0.0


class Reaching(Line):
    """Its own task is to be at 1."""

    def step(self, action):
        observation, reward, ends, cut, _ = super().step(action)
        return observation, reward, ends, cut, {"success": bool(observation["x"][0] >= 1.0)}


def test_success_of_the_task_itself_is_a_label():
    machine = {"labels": {**LABELLED["labels"], "done": {"success": True}}, "formula": "F (left & X F done)"}
    _, steps = played(WAY, machine, Reaching())
    assert [step[4][LABELS] for step in steps] == [[], ["left"], [], [], [], ["done"]]
    assert steps[-1][2] and steps[-1][1] == 1.0
    _, direct = played([1.0] * 6, machine, Reaching())
    assert ["done"] in [step[4][LABELS] for step in direct] and sum(step[1] for step in direct) == 0.0
    with pytest.raises(InvalidSetting, match=r"'done' is not complete(.|\n)*\{success: true\}"):
        played(WAY, {**machine, "labels": {**LABELLED["labels"], "done": {"success": 1.5}}}, Reaching())


def test_failure_and_the_end_of_a_trace():
    never = {**LABELLED, "formula": "G !left"}
    _, steps = played([1.0] * 6, never)
    assert steps[-1][1] == 1.0 and steps[-1][3] and steps[-1][4]["success"]
    _, lost = played([-1.0] * 6, never)
    assert len(lost) == 2 and lost[-1][2] and lost[-1][1] == 0.0 and lost[-1][4]["stop_reason"] == "failure"


def test_own_reward_and_hidden_state():
    environment, steps = played(WAY, reward_weight=0.1, observes=False)
    assert STATE not in steps[0][0] and STATE not in environment.environment_spec.observation
    assert steps[0][1] == pytest.approx(0.7) and steps[0][4]["reward_terms"] == pytest.approx({"machine": 0.0, "task": 0.7})


def test_potentials_telescope_and_are_0_where_the_task_ends():
    environment, steps = played(WAY, shaping=0.9)
    potentials = environment.machine.potentials(0.9)
    shaped = sum(0.9**number * step[4]["reward_terms"]["shaping"] for number, step in enumerate(steps))
    assert shaped == pytest.approx(-potentials[0])
    _, cut = played([1.0] * 6, shaping=0.9)  # the time limit ends no task
    assert cut[-1][4]["reward_terms"]["shaping"] == pytest.approx(0.9 * potentials[0] - potentials[0])
    line = Line()
    line.ends_at = 2
    _, ended = played([1.0, 1.0], line=line, shaping=0.9)
    assert not any(step[4]["success"] for step in ended) and ended[-1][4]["stop_reason"] == "failure"
    assert ended[-1][2] and ended[-1][4]["reward_terms"]["shaping"] == pytest.approx(-potentials[0])


@pytest.mark.slow
def test_shaping_leaves_the_best_policy_of_the_product():
    """Values by dynamic programming over places and machine states, with and without potentials."""
    machine = MachineEnv(Line(), BOTH).machine
    potentials, places = machine.potentials(0.9), np.arange(-3, 4) * 0.5
    labels = [machine.number([*(["left"] if x < -0.5 else []), *(["right"] if abs(x - 1) <= 0.3 else [])]) for x in places]
    best = {}
    for is_shaped in (False, True):
        values = np.zeros((7, len(machine.states)))
        for _ in range(200):
            q = np.zeros((7, len(machine.states), 2))
            for place, state, action in np.ndindex(*q.shape):
                after = int(np.clip(place + (1 if action else -1), 0, 6))
                following, reward = machine.step(state, labels[after])
                over = machine.terminal[following]
                extra = (0 if over else 0.9 * potentials[following]) - potentials[state] if is_shaped else 0.0
                q[place, state, action] = reward + extra + (0 if over else 0.9 * values[after, following])
            values = np.where(machine.terminal, 0.0, q.max(2))
        best[is_shaped] = q
    open_states = ~machine.terminal
    for plain, shaped in zip(
        best[False][:, open_states].reshape(-1, 2), best[True][:, open_states].reshape(-1, 2), strict=True
    ):
        assert (plain[0] - plain[1]) == pytest.approx(shaped[0] - shaped[1], abs=1e-9)


def test_episodes_are_told_again_from_other_states():
    environment, steps = played(WAY, counterfactual=True)
    assert all(IMAGINED not in step[4] for step in steps[:-1])
    told = steps[-1][4][IMAGINED]
    machine = environment.machine
    assert sum(map(len, told)) == 6 * (int((~machine.terminal).sum()) - 1)
    (first, *_) = told
    assert [int(step.observation[STATE].argmax()) for step in first] == [1] * 6  # `left` has been, as it is told
    assert first[-1].reward == 1.0 and first[-1].terminated
    for episode in told:
        for one, other in pairwise(episode):
            assert one.next_observation[STATE].tolist() == other.observation[STATE].tolist()
        for number, step in enumerate(episode):
            state = int(step.observation[STATE].argmax())
            following = int(step.next_observation[STATE].argmax())
            x = float(step.next_observation["x"][0])
            names = {"left": x < -0.5, "right": abs(x - 1) <= 0.3}
            holds = machine.number([name for name, is_there in names.items() if is_there])
            assert machine.step(state, holds) == (following, step.reward)
            assert (step.terminated or step.truncated) == (number == len(episode) - 1)
    again = played(WAY, counterfactual=True)[1][-1][4][IMAGINED]
    assert [len(each) for each in again] == [len(each) for each in told]  # the seed of the episode decides


def test_states_of_repeated_episodes_go_on():
    labels = {"left": {"entry": "x", "below": -0.2}, "right": {"entry": "x", "above": 0.2}}
    task = {"labels": labels, "formula": "F (left & X F (right & X F left))"}
    _, steps = played([-1.0, 1.0, 1.0, -1.0, -1.0, 0.0], task, counterfactual=True)  # -0.5 0 0.5 0 -0.5
    told = steps[-1][4][IMAGINED]
    states = [[int(step.observation[STATE].argmax()) for step in episode] for episode in told]
    assert states[0] == [1, 1, 1, 2, 2] and told[0][-1].reward == 1.0  # left was before, as it is repeated
    assert states[1] == [2] and told[1][-1].terminated  # the first step ends it, and another goes on from there


def test_told_episodes_enter_the_memory_of_a_learner():
    class Silent:
        def on_step(self, *_, **__):
            pass

        on_episode = on_metrics = on_step

    sizes = []
    for tells in (False, True):
        environment = MachineEnv(Line(), BOTH, counterfactual=tells)
        config = SACConfig(network=Network(hidden=(8,)), batch_size=8, replay=Replay(learning_starts=10))
        learner = config.build(environment.environment_spec, 0)
        training = online_training(environment, learner, config.sampling, steps=30, seed=0)
        training.run(Silent())
        sizes.append(len(training.step_learner.replay))
    open_states = int((~environment.machine.terminal).sum())
    assert sizes[0] == 30 and sizes[1] == 30 * open_states


def test_a_frame_stack_is_refused_with_them(tmp_path):
    (tmp_path / "task.yaml").write_text(
        "labels: {low: {entry: end_effector_position, index: 2, below: 0.01}, far: {entry: end_effector_position, above: 9}}\n"
        "formula: F (low & F far) | F (far & X F low)\n"
    )
    task = {"name": "reward_machine", "machine": str(tmp_path / "task.yaml"), "counterfactual": True}
    around = [task, {"name": "frame_stack", "count": 2, "stacks": "vectors"}]
    environment = make_environment("robo/ArmReach-v0", max_steps=3, wrappers=around)
    config = SACConfig(network=Network(hidden=(8,)), batch_size=8, replay=Replay(learning_starts=100))
    training = online_training(environment, config.build(specification(environment), 0), config.sampling, steps=9, seed=0)
    with pytest.raises(InvalidSetting, match="counterfactual: false"):
        training.run(type("Silent", (), {name: lambda *_, **__: None for name in ("on_step", "on_episode", "on_metrics")})())


def test_labels_may_be_programs(tmp_path):
    (tmp_path / "high.py").write_text(HIGH)
    task = {"labels": {"high": {"reward": f"program:{tmp_path / 'high.py'}"}}, "formula": "F high"}
    around = [{"name": "reward_machine", "machine": task}]
    environment = make_environment("robo/ArmReach-v0", wrappers=around, max_steps=5)
    episode = rollout(environment, RandomPolicy(specification(environment), 0), seed=0)
    assert len(episode) == 1 and episode.success and episode.rewards.tolist() == [1.0]
    environment.close()


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        ({"formula": "F a"}, "no labels"),
        ({"labels": {"a": {"entry": "x"}}, "formula": "F a"}, "not complete"),
        ({"labels": {"a": {"entry": "x", "near": [1.0, 2.0], "within": 1}}, "formula": "F a"}, "another size"),
        ({"labels": {"a": {"entry": "x", "near": [1.0], "within": "near"}}, "formula": "F a"}, "no numbers"),
        ({"labels": {"a": {"entry": "x", "above": None}}, "formula": "F a"}, "no numbers"),
        ({"labels": {"a": {"entry": "x", "index": 3, "above": 1}}, "formula": "F a"}, "no such number"),
        ({"labels": {"a": {"entry": "y", "above": 1}}, "formula": "F a"}, "entry of a/Line"),
        ({"labels": {"a": {"entry": "x", "above": 1}}, "formula": "F b"}, "label of the machine"),
    ],
)
def test_broken_tasks_are_one_error(machine, message):
    with pytest.raises((InvalidSetting, UnknownName), match=message):
        MachineEnv(Line(), machine)
    with pytest.raises(InvalidSetting, match="discount of the learner"):
        MachineEnv(Line(), BOTH, shaping=1.5)


@pytest.mark.slow
def test_counterfactual_experience_is_faster_on_the_grid():
    found = {kind.name: np.median([steps_to_solve(kind, 0.0, seed) for seed in range(5)]) for kind in KINDS}
    assert found["counterfactual"] <= 0.6 * found["machine"]
    assert found["state of the machine not observed"] == MOST
    assert found["counterfactual, states not switched"] > found["counterfactual"]
