"""The classes that the pages show are real: each is imported from its page and used."""

import importlib.util
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN, limits_from
from robo_rl.entry_points import load
from robo_rl.extras import NextActions
from robo_rl.protocols.components import Learner, Robot
from robo_rl.protocols.rewards import RewardModel
from robo_rl.protocols.sampling import Sampling
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.rewards.conformance import check_online_reward
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import ActionSource, Batch, Episode, Transition

DOCS = Path(__file__).parents[2] / "docs"
SPEC = EnvironmentSpec(
    "test/Line",
    observation=ObservationSpec((ArraySpec("position", (3,), unit="m"),)),
    action=ActionSpec(("x",), (-1.0,), (1.0,), ("m/s",), mode="joint_velocity"),
)


@pytest.fixture
def module_of(tmp_path, monkeypatch):
    """Returns a function that imports a Python block of a page."""

    def read(page: str, block: int = 0):
        code = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)[block]
        file = tmp_path / "from_page.py"
        file.write_text(code)
        description = importlib.util.spec_from_file_location("from_page", file)
        module = importlib.util.module_from_spec(description)
        monkeypatch.setitem(__import__("sys").modules, "from_page", module)  # dataclasses look their module up
        description.loader.exec_module(module)
        return module

    return read


def batch(rewards) -> Batch:
    generator = np.random.default_rng(0)
    size = len(rewards)
    positions = generator.normal(size=(size, 3)).astype(np.float32)
    return Batch(
        observations={"position": positions},
        actions=generator.uniform(-1, 1, (size, 1)).astype(np.float32),
        rewards=np.asarray(rewards, np.float32),
        masks=np.ones(size, np.float32),
        discounts=np.full(size, 0.99, np.float32),
        next_observations={"position": positions},
        weights=np.ones(size, np.float32),
        sources=np.zeros(size, np.int8),
    )


@pytest.mark.slow
def test_the_learner_imitates_what_was_rewarded(module_of):
    learner = module_of("extending/adding-a-learner.md").RWRConfig(lr=1e-3, temperature=0.01).build(SPEC, seed=0)
    assert isinstance(learner, Learner)
    data = batch([1.0, 0.0, 0.0, 0.0])
    for _ in range(200):
        learner.update(data)
    chosen = learner.policy.act({"position": data.observations["position"][0]}, deterministic=True)
    np.testing.assert_allclose(chosen, data.actions[0], atol=0.05)


def test_the_learner_goes_on_from_its_saved_state(module_of):
    config = module_of("extending/adding-a-learner.md").RWRConfig()
    first, second = config.build(SPEC, seed=0), config.build(SPEC, seed=1)
    data = batch([1.0, 0.5, 0.0, 0.2])
    first.update(data)
    second.load_state_dict(first.state_dict())
    assert first.update(data) == second.update(data)
    for ours, theirs in zip(first.actor.parameters(), second.actor.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_extra_sums_costs_until_the_episode_ends(module_of):
    extra = module_of("extending/adding-a-learner.md", 1).CostsToGo()
    replay = ReplayBuffer(SPEC, 10, 0, extras=Sampling(extras=(extra, NextActions())).extras)
    action = np.zeros(1, np.float32)
    for number in range(8):  # two episodes of three steps, and two steps of a running one
        at, after = ({"position": np.full(3, place, np.float32)} for place in (number, number + 1))
        if number % 3 == 0:
            replay.begin(at)
        replay.add(Transition(at, action, 0.0, after, False, number % 3 == 2, action, info={"cost": 10.0**number}))
    batch = replay.sample(100)
    found = dict(zip(batch.observations["position"][:, 0].tolist(), batch.extras["costs_to_go"].tolist(), strict=True))
    expected = {1: 110, 2: 100, 3: 111000, 4: 110000, 5: 100000, 6: np.nan, 7: np.nan}  # the ring has forgotten step 0
    assert found == pytest.approx(expected, nan_ok=True)


def test_the_reward_labels_progress_and_leaves_gaps(module_of):
    reward: RewardModel = module_of("extending/adding-a-reward.md").GoalProgress("position", "target")
    positions = np.zeros((4, 3), np.float32)
    positions[:, 0] = [3, 2, np.nan, 0]
    episode = Episode(
        observations={"position": positions, "target": np.zeros((4, 3), np.float32)},
        actions=np.zeros((3, 1), np.float32),
        policy_actions=np.zeros((3, 1), np.float32),
        rewards=np.zeros(3, np.float32),
        sources=np.full(3, ActionSource.POLICY, np.int8),
        timestamps=np.arange(4.0),
        terminated=True,
        truncated=False,
        stop_reason="goal",
        success=True,
        seed=0,
        spec_fingerprint=SPEC.fingerprint,
    )
    labels = reward.label(episode)
    assert labels.values.tolist() == [1.0, 0.0, 0.0] and labels.valid.tolist() == [True, False, False]
    arrays = (ArraySpec("position", (3,)), ArraySpec("target", (3,)))
    check_online_reward(reward, replace(SPEC, observation=ObservationSpec(arrays)), [episode, replace(episode, seed=1)])


class Link:
    """A vendor's controller that is where it was told to be at once."""

    def __init__(self):
        self.is_open, self.position, self.opening = False, [0.46, 0.0, 0.24], 0.08

    def open(self, address):
        self.is_open = True

    def state(self):
        shown = {"position": self.position, "quaternion": (0.0, 1.0, 0.0, 0.0), "force": [0.0, 0.0, 0.0]}
        return shown | {"joints": [0.0] * 6, "opening": self.opening, "error": None}

    def servo(self, position, quaternion):
        self.position = position

    def grip(self, opening):
        self.opening = opening

    def halt(self):
        self.is_halted = True

    def close(self):
        self.is_open = False


@pytest.mark.real_time
def test_example_driver_gets_guard_and_returns_executed_action(module_of):
    link = Link()
    patient = replace(TWIN, command_age=5.0, state_age=5.0, late_in_a_row=1000, stop_after=60.0)  # a busy machine is late
    limits = replace(patient, joint_low=(-3.0,) * 6, joint_high=(3.0,) * 6, joint_speed=(2.0,) * 6, box_high=(0.47, 0.3, 0.4))
    robot: Robot = GuardedArm(module_of("extending/adding-a-robot.md").VendorArm(link=link), limits)
    robot.connect()
    robot.arm()
    robot.spec.observation.validate(robot.observe())
    executed = robot.apply(np.array([1.0, 0.2, 0.0, 0.0, 1.0], np.float32))
    assert executed.reasons == ("box",)
    np.testing.assert_allclose(executed.action, [10 / 15, 0.2, 0.0, 0.0, 1.0], atol=1e-5)
    end = time.monotonic() + 60  # set points come at a rate of their own
    while abs(link.position[0] - 0.47) > 1e-4:
        assert time.monotonic() < end
        if robot.watchdog.is_holding:
            robot.observe()
            robot.apply(np.array([1.0, 0.0, 0.0, 0.0, 1.0], np.float32))
        time.sleep(0.005)
    robot.stop()
    assert link.is_halted
    robot.close()
    assert not link.is_open


def test_the_limits_on_the_page_are_complete(tmp_path):
    page = (DOCS / "robots/robot-guard.md").read_text()
    (tmp_path / "lab.yaml").write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    assert limits_from(tmp_path / "lab.yaml").dead_man == 0.3


@pytest.mark.parametrize("page", sorted(path.name for path in (DOCS / "extending").glob("adding-a-*.md")))
def test_a_page_names_a_group_that_is_looked_up(page):
    groups = re.findall(r'entry-points\."robo_rl\.(\w+)"', (DOCS / "extending" / page).read_text())
    assert groups
    for group in groups:
        with pytest.raises(Exception, match="Unknown"):
            load(group, "not-there")


@pytest.mark.parametrize("page", ["README.md", "docs/first-hour.md", "docs/python.md"])
def test_the_first_training_keeps_the_recipe(page):
    """The recipe's own settings are the ones whose result the README tells."""
    text = (DOCS.parent / page).read_text()
    first = re.search(r'^.*(?:robo-rl train |robo_rl\.train\(")arm-pick-rlpd.*$', text, re.MULTILINE)
    assert first and not re.search(r"learner|demonstrations|steps", first[0].partition("#")[0]), first


def test_a_real_carla_is_the_first_section_of_its_page():
    first = (DOCS / "driving/carla.md").read_text().split("\n## ")[1]
    assert first.startswith("With a real CARLA\n")
    assert all(words in first for words in ("CarlaUE4.sh -RenderOffScreen", "docker run", "--carla-host", "Town01"))
