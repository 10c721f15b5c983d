"""Exported policies: SB3's, loops, the runner without robo-rl, and refusals."""

import ast
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from factories import axes, choices, make_spec, picture_spec
from robo_policies.export import run_exported
from robo_policies.export.acting import ActingNetwork
from robo_policies.export.exporting import TOLERANCE, compare, export, random_episodes
from robo_policies.learners.act import ACTConfig
from robo_policies.learners.diffusion_bc import DiffusionBCConfig
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.sac import SACConfig
from robo_policies.sb3.algorithms import A2CConfig, DQNConfig, SB3Normalization, TD3Config
from robo_policies.sb3.algorithms import PPOConfig as SB3PPOConfig
from robo_policies.sb3.algorithms import SACConfig as SB3SACConfig
from robo_policies.sb3.contrib import RecurrentPPOConfig, TQCConfig
from robo_rl.errors import ExportDiffers, InvalidSetting, UnknownName
from robo_rl.rollout.episode import RandomPolicy
from robo_rl.settings import updated
from robo_rl.spec.environment import ActionSpec, ArraySpec
from robo_rl.types import Array

pytestmark = pytest.mark.usefixtures("one_thread")

SCALED = ActionSpec(("reach", "opening"), (-0.05, 0.0), (0.05, 0.08), ("m", "m"), "end_effector_delta", 0.05, "base")
ARM = make_spec("arm", ArraySpec("position", (3,), unit="m", frame="base"), picture_spec(), action=SCALED)
EYE = make_spec("eye", ArraySpec("position", (3,)), picture_spec(shape=(36, 36, 3)), action=axes("a", "b"))
GRID = make_spec("grid", ArraySpec("position", (3,)), action=choices("left", "right", "stay"))
NET = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu"}
REPLAY = NET | {"buffer_size": 100}
SMALL = {"network": {"hidden": (8,)}, "batch_size": 8}
ACT = {"network": {"hidden": (8,), "token_size": 8, "heads": 2, "latent": 3, "encoder_layers": 1}, "chunk": 4}
SB3 = {
    "sb3-ppo": (SB3PPOConfig(**NET), ARM),
    "sb3-ppo-normalised": (SB3PPOConfig(**NET, normalize=SB3Normalization(observations=True)), ARM),
    "sb3-ppo-pictures": (SB3PPOConfig(**NET), EYE),
    "sb3-ppo-choices": (SB3PPOConfig(**NET), GRID),
    "sb3-a2c": (A2CConfig(**NET), ARM),
    "sb3-sac": (SB3SACConfig(**REPLAY), ARM),
    "sb3-sac-pictures-normalised": (SB3SACConfig(**REPLAY, normalize=SB3Normalization(observations=True)), EYE),
    "sb3-td3": (TD3Config(**REPLAY), ARM),
    "sb3-tqc": (TQCConfig(**REPLAY), ARM),
    "sb3-dqn": (DQNConfig(**REPLAY), GRID),
    "sb3-recurrent-ppo": (RecurrentPPOConfig(**NET | {"policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 6}}), ARM),
    "sb3-recurrent-ppo-pictures": (
        RecurrentPPOConfig(**NET | {"policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 6}}),
        EYE,
    ),
}


class Still(gymnasium.Env):
    """Environment of a spec whose observations are random."""

    def __init__(self, spec):
        self.environment_spec, self.observation_space, self.action_space = spec, spec.observation.space, spec.action.space
        self._next = random_episodes(spec, 1, 1)[0][0]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._next, {}

    def step(self, action):
        return self._next, 0.0, False, False, {}


def sb3_policy(name):
    config, spec = SB3[name]
    training = config.training(lambda: Still(spec), steps=4_096, seed=0)
    normalizer = training.model.get_vec_normalize_env()
    if normalizer is not None:
        moments = normalizer.obs_rms["state"] if isinstance(normalizer.obs_rms, dict) else normalizer.obs_rms
        moments.mean, moments.var = moments.mean + 0.3, moments.var * 1e-4  # clipped here and there
    return training.policy


@pytest.mark.slow
@pytest.mark.parametrize("name", SB3)
def test_sb3_exports_act_alike(name, tmp_path):
    policy = sb3_policy(name)
    done = export(policy, "torchscript", tmp_path / "out", random_episodes(policy.environment_spec))
    assert done.difference <= TOLERANCE and done.observations == 64


@pytest.mark.slow
@pytest.mark.parametrize("name", SB3)
def test_sb3_exports_to_onnx_act_alike(name, tmp_path):
    policy = sb3_policy(name)
    export(policy, "onnx", tmp_path / "out", random_episodes(policy.environment_spec))


def policy_of(config, spec=ARM):
    return config.build(spec, 0).policy


def test_description_names_units_and_rate(tmp_path):
    policy = policy_of(updated(SACConfig(), SMALL, network={"normalization_rows": 20}))
    done = export(
        policy, "torchscript", tmp_path / "out", random_episodes(policy.environment_spec), {"run": "r", "learner": "sac"}
    )
    said = json.loads((done.folder / "policy.json").read_text())
    assert [(each["name"], each["shape"], each["dtype"], each["unit"], each["frame"]) for each in said["inputs"]] == [
        ("position", [3], "float32", "m", "base")
    ]
    assert said["action"]["units"] == ["m", "m"] and said["action"]["frame"] == "base" and said["control_period"] == 0.05
    assert said["check"]["largest_difference"] == done.difference and said["run"] == "r"
    assert said["sha256"] == hashlib.sha256((done.folder / said["file"]).read_bytes()).hexdigest()


def test_actions_have_the_units_of_the_spec(tmp_path):
    policy = policy_of(updated(PPOConfig(), num_envs=1, steps_per_env=4, batch_size=4, network={"hidden": (8,)}))
    export(policy, "torchscript", tmp_path / "out", random_episodes(policy.environment_spec))
    player = run_exported_policy(tmp_path / "out")
    observation = random_episodes(ARM, 1, 1, seed=5)[0][0]
    wanted = SCALED.to_physical(policy.act(observation, deterministic=True))
    np.testing.assert_allclose(player.act(observation), wanted, atol=1e-6)


def run_exported_policy(folder):
    with pytest.warns(DeprecationWarning):  # of torch.jit.load
        return run_exported.ExportedPolicy(folder)


def test_weights_alone_are_those_of_the_network(tmp_path):
    policy = policy_of(updated(SACConfig(), SMALL))
    done = export(policy, "safetensors", tmp_path / "out", random_episodes(policy.environment_spec))
    weights = load_file(done.folder / "policy.safetensors")
    assert {*weights} >= {"low", "half_width", "network.encoder.mean"}
    assert sorted(path.name for path in done.folder.iterdir()) == ["policy.json", "policy.safetensors"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [updated(ACTConfig(), ACT), updated(ACTConfig(), ACT, executed=3), updated(DiffusionBCConfig(), SMALL, noise_levels=3)],
)
def test_runner_plays_chunks_as_the_policy(config, tmp_path):
    """With the policy's noise the runner plays an episode of chunks to the same actions, and begins anew after a reset."""
    policy = policy_of(config)
    episodes = random_episodes(policy.environment_spec, episodes=2, steps=11)
    assert export(policy, "torchscript", tmp_path / "out", episodes).difference <= TOLERANCE


@pytest.mark.slow
def test_runner_draws_its_own_noise(tmp_path):
    policy = policy_of(updated(DiffusionBCConfig(), SMALL, noise_levels=3))
    export(policy, "torchscript", tmp_path / "out", random_episodes(policy.environment_spec))
    player, observation = run_exported_policy(tmp_path / "out"), random_episodes(ARM, 1, 1)[0][0]
    first = player.act(observation)
    player.reset()
    assert not np.array_equal(player.act(observation), first)


def test_runner_refuses_nan(tmp_path):
    policy = policy_of(updated(SACConfig(), SMALL))
    export(policy, "torchscript", tmp_path / "out", random_episodes(policy.environment_spec))
    player = run_exported_policy(tmp_path / "out")
    with pytest.raises(ValueError, match="the network returned"):
        player.act({"position": np.full(3, np.nan)})


@pytest.mark.parametrize(
    ("observation", "got"),
    [
        ({}, r"no such name in \[\]"),
        ({"positions": np.zeros(3)}, r"no such name in \['positions'\]"),
        ({"position": np.zeros(2)}, r"\(2,\)"),
        (np.zeros(3), r"no such name in \[.*0\.0.*\]"),
    ],
)
def test_runner_names_an_observation_that_is_wrong(observation, got, tmp_path):
    policy = policy_of(updated(SACConfig(), SMALL))
    export(policy, "torchscript", tmp_path / "out", random_episodes(policy.environment_spec))
    with pytest.raises(ValueError, match=rf"^observation 'position': got {got}, wanted \(3,\) of float32 \(policy\.json"):
        run_exported_policy(tmp_path / "out").act(observation)


@pytest.mark.slow
def test_runner_needs_no_robo_rl(tmp_path):
    """A process in which robo_rl and torch cannot be imported acts by the folder alone."""
    policy = policy_of(updated(ACTConfig(), ACT, {"network": {"convolutions": (4,)}}))
    episodes = random_episodes(policy.environment_spec, 1, 9)
    export(policy, "onnx", tmp_path / "out", episodes)
    np.savez(tmp_path / "seen.npz", **{name: np.stack([each[name] for each in episodes[0]]) for name in episodes[0][0]})
    program = """
import sys
for name in ("robo_rl", "robo_policies", "robo_app", "torch"):
    sys.modules[name] = None
import numpy as np
from run_exported import ExportedPolicy
seen = np.load("../seen.npz")
policy = ExportedPolicy(".")
np.save("../acted.npy", [policy.act({name: seen[name][step] for name in seen}) for step in range(9)])
"""
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "out", check=True, env=bare)
    policy.reset()
    wanted = [SCALED.to_physical(policy.act(each, deterministic=True)) for each in episodes[0]]
    np.testing.assert_allclose(np.load(tmp_path / "acted.npy"), wanted, atol=1e-6)


def test_runner_has_at_most_40_lines_of_code():
    tree = ast.parse(Path(run_exported.__file__).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body.pop(0)
    assert len([line for line in ast.unparse(tree).splitlines() if line]) <= 40


class AddsNoise(nn.Module):
    """A network whose output is another one each time."""

    calls = 0

    def forward(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        self.calls += 1
        return (torch.full((1, 2), 0.1 * self.calls),)


class Drifting(RandomPolicy):
    def acting_network(self):
        return ActingNetwork(AddsNoise())

    def act(self, observation, *, deterministic=False) -> Array:
        return np.zeros(2, np.float32)


def test_a_difference_leaves_nothing_behind(tmp_path):
    policy = Drifting(ARM, seed=0)
    with pytest.raises(ExportDiffers, match="acts otherwise than Drifting"):
        export(policy, "torchscript", tmp_path / "out", random_episodes(ARM))
    assert [*tmp_path.iterdir()] == []


def test_refusals_say_why(tmp_path):
    policy = policy_of(updated(SACConfig(), SMALL))
    with pytest.raises(InvalidSetting, match="more than the output of one network"):
        export(RandomPolicy(ARM, seed=0), "torchscript", tmp_path / "out", random_episodes(ARM))
    with pytest.raises(UnknownName, match="onnx"):
        export(policy, "onx", tmp_path / "out", random_episodes(ARM))
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidSetting, match="exists"):
        export(policy, "torchscript", tmp_path / "out", random_episodes(ARM))


def test_comparison_sees_a_small_difference():
    """A runner that is off by 2e-5 of half a range is not within the tolerance."""
    policy = policy_of(updated(SACConfig(), SMALL))

    class Off:
        random = None

        def reset(self):
            pass

        def act(self, observation):
            half = (np.asarray(SCALED.high) - np.asarray(SCALED.low)) / 2
            return SCALED.to_physical(policy.act(observation, deterministic=True)) + 2e-5 * half

    difference, _ = compare(policy, Off(), random_episodes(ARM))
    assert difference == pytest.approx(2e-5, rel=1e-3) and difference > TOLERANCE
