"""Constraint costs in specs, steps and recorded episodes."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import h5py
import numpy as np
import pytest

import robo_rl
from robo_datasets.conversion import export
from robo_rl.entry_points import load
from robo_rl.errors import EnvironmentFailed, InvalidEpisode, InvalidSetting
from robo_rl.extras import Costs
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.rollout import RandomPolicy, rollout
from robo_rl.spec.cost import CostSpec, costs_of
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec
from tests.factories import make_dataset, make_spec, random_episode

FORCE = CostSpec("force", limit=10.0, unit="N s", meaning="force on the table above 20 N")
ZONE = CostSpec("zone", limit=3)


@pytest.mark.parametrize("limit", [None, float("nan"), float("inf"), -1.0, True, "5"])
def test_cost_without_limit_is_refused(limit):
    with pytest.raises(InvalidSetting, match="no usable limit"):
        CostSpec("force", limit=limit)


def test_cost_name_must_be_flat():
    with pytest.raises(InvalidSetting, match="flat snake_case"):
        CostSpec("Force/z", limit=1.0)


@pytest.mark.parametrize(
    ("setting", "limit"), [(4, 4.0), ("4", 4.0), ("4 N s", 4.0), ("4 N s per episode", 4.0), ("4 / episode", 4.0), ("0", 0.0)]
)
def test_limit_is_read_in_its_unit(setting, limit):
    assert FORCE.limit_of(setting) == limit


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        *(("4 N", "another unit"), ("4 mN s per episode", "another unit"), ("4 m/s", "another unit")),
        *(("4 per step", "is per step"), ("4 N s/step", "is per step"), ("4 N s per hour", "is per hour")),
        *((each, "no limit") for each in ("much", -1, "nan", "", True)),
    ],
)
def test_limit_of_another_kind_is_refused(setting, said):
    with pytest.raises(InvalidSetting, match=said):
        FORCE.limit_of(setting)


def test_spec_writes_costs_and_hides_none():
    spec = make_spec("test", ArraySpec("x", (2,)))
    costly = replace(spec, costs=(FORCE, ZONE))
    assert "costs" not in spec.to_json()
    assert EnvironmentSpec.from_json(costly.to_json()) == costly
    assert costly.fingerprint != spec.fingerprint
    assert replace(spec, costs=(replace(FORCE, limit=1.0, meaning=""), ZONE)).fingerprint == costly.fingerprint
    assert replace(spec, costs=(replace(FORCE, unit="N"), ZONE)).fingerprint != costly.fingerprint
    spec.require_interface(costly, what="a policy reads no cost")


class Costly(gymnasium.Wrapper):
    """Reports costs that the test chooses."""

    def __init__(self, environment, costs):
        super().__init__(environment)
        self.costs = costs
        self.environment_spec = replace(environment.get_wrapper_attr("environment_spec"), costs=(FORCE, ZONE))

    def step(self, action):
        *found, info = super().step(action)
        return (*found, info | {"costs": self.costs})


@pytest.fixture
def environment():
    return robo_rl.make_environment("robo/ArmReach-v0", max_steps=5)


def test_rollout_records_costs_by_name(environment):
    costly = Costly(environment, {"force": 0.25, "zone": 1})
    episode = rollout(costly, RandomPolicy(costly.environment_spec, 0), seed=0)
    assert set(episode.costs) == {"force", "zone"}
    assert episode.costs["force"].sum() == 0.25 * len(episode) and episode.costs["force"].dtype == np.float32
    assert costs_of(episode.transition(3).info) == {"force": 0.25, "zone": 1.0}


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        *(({"force": 0.0}, "missing"), ({}, "missing")),
        *(({"force": np.nan, "zone": 0}, "'costs'"), ({"force": -1.0, "zone": 0}, "'costs'")),
    ],
)
def test_rollout_refuses_costs_that_are_none(environment, costs, said):
    costly = Costly(environment, costs)
    with pytest.raises((InvalidEpisode, EnvironmentFailed), match=said):
        rollout(costly, RandomPolicy(costly.environment_spec, 0), seed=0)


def test_plain_cost_of_info_is_named_cost():
    assert costs_of({"cost": 2.0}) == {"cost": 2.0}
    assert costs_of({"cost": 2.0, "costs": {"a": 1.0}}) == {"a": 1.0}
    assert costs_of({}) == {}


def test_replay_samples_costs_in_order(environment):
    costly = Costly(environment, {"zone": 1, "force": 0.25})
    spec = costly.environment_spec
    episode = rollout(costly, RandomPolicy(spec, 0), seed=0)
    batch = RecordedReplay.of(spec, [episode], 0, extras=[Costs()]).sample(7)
    np.testing.assert_array_equal(batch.extras["costs"], [[0.25, 1.0]] * 7)


def test_replay_without_costs_says_what_is_missing(environment):
    episode = rollout(environment, RandomPolicy(environment.get_wrapper_attr("environment_spec"), 0), seed=0)
    with pytest.raises(InvalidSetting, match="needs constraint costs"):
        RecordedReplay.of(environment.get_wrapper_attr("environment_spec"), [episode], 0, extras=[Costs()])


@pytest.mark.parametrize("declared", [("force", "speed"), ("force",), ("force", "speed", "zone"), ()])
def test_replay_refuses_costs_of_other_names(environment, declared):
    """Columns have no names: each limit would apply to whichever cost stands in its place."""
    costly = Costly(environment, {"zone": 1, "force": 0.25})
    episode = rollout(costly, RandomPolicy(costly.environment_spec, 0), seed=0)
    spec = replace(costly.environment_spec, costs=tuple(CostSpec(name, limit=1) for name in declared))
    with pytest.raises(InvalidSetting, match="other costs than the environment declares"):
        RecordedReplay.of(spec, [episode], 0, extras=[Costs()])
    online = ReplayBuffer(spec, 10, 0, extras=[Costs()])
    online.begin(episode.transition(0).observation)
    with pytest.raises(InvalidSetting, match="other costs than the environment declares"):
        online.add(episode.transition(0))


def test_dataset_keeps_costs_by_name(environment, tmp_path):
    costly = Costly(environment, {"zone": 1, "force": 0.25})
    episode = rollout(costly, RandomPolicy(costly.environment_spec, 0), seed=0)
    (found,) = make_dataset(tmp_path / "data", costly.environment_spec, [episode])
    assert {name: values.tolist() for name, values in found.costs.items()} == {"force": [0.25] * 5, "zone": [1.0] * 5}


@pytest.mark.parametrize("name", ["d4rl", "minari"])
@pytest.mark.parametrize("declared", [(FORCE,), ()], ids=["declared", "plain"])
def test_formats_carry_one_cost(name, declared, tmp_path):
    spec = make_spec("test", ArraySpec("x", (2,)), costs=declared)
    cost = declared[0].name if declared else "cost"
    costly = replace(random_episode(spec, 5, 0), costs={cost: np.arange(5, dtype=np.float32)})
    free = random_episode(spec, 4, 1)
    episodes = [costly] if declared else [free, costly, free]
    dataset = make_dataset(tmp_path / "data", spec, episodes)
    form = load("formats", name)
    export(form, dataset, tmp_path / f"out{form.suffix}", keep_losses=False)
    found = [*form.read(tmp_path / f"out{form.suffix}").recordings()]
    assert [{key: values.tolist() for key, values in each.costs.items()} for each in found] == [
        {key: values.tolist() for key, values in each.costs.items()} for each in episodes
    ]


def test_file_of_dsrl_has_costs(tmp_path):
    rows = np.arange(12, dtype=np.float32)
    with h5py.File(tmp_path / "dsrl.hdf5", "w") as file:
        file["observations"], file["next_observations"] = rows[:, None], rows[:, None] + 1
        file["actions"], file["rewards"], file["costs"] = np.zeros((12, 2), np.float32), rows, rows % 2
        file["terminals"], file["timeouts"] = rows == 5, rows == 11
    found = load("formats", "d4rl").read(tmp_path / "dsrl.hdf5")
    assert [each.costs["cost"].tolist() for each in found.recordings()] == [[0.0, 1.0] * 3] * 2
    assert not found.notes


def test_file_of_one_cost_is_read_as_dsrl_reads_it(environment, tmp_path):
    spec = replace(environment.get_wrapper_attr("environment_spec"), costs=(FORCE,))
    episodes = [replace(random_episode(spec, 5, seed), costs={"force": np.full(5, seed, np.float32)}) for seed in range(2)]
    export(load("formats", "d4rl"), make_dataset(tmp_path / "data", spec, episodes), tmp_path / "out.hdf5", keep_losses=False)
    with h5py.File(tmp_path / "out.hdf5") as file:
        arrays = {name: file[name][:] for name in ("observations", "actions", "rewards", "costs", "terminals", "timeouts")}
    assert {len(values) for values in arrays.values()} == {10} and arrays["costs"].tolist() == [0.0] * 5 + [1.0] * 5
