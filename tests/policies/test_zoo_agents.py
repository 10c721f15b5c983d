"""Agents of Stable-Baselines3 from their weights: the same actions as its own, and no file of theirs runs or misleads."""

import json
import os
import pickle
import shutil
import zipfile
from copy import deepcopy
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from factories import axes, make_spec
from robo_policies.sb3.agents import read_agent
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.spec.environment import specification

pytestmark = pytest.mark.filterwarnings("ignore::robo_rl.environments.foreign.UnitsUnknown")


def small() -> dict[str, object]:
    """Return new settings, as Stable-Baselines3 writes into them."""
    return {"net_arch": [16, 16]}


OFF_POLICY = {"buffer_size": 10}
AGENTS: dict[str, tuple[str, type, dict[str, object]]] = {
    "ppo": ("Pendulum-v1", sb3.PPO, {}),
    "ppo relu": ("Pendulum-v1", sb3.PPO, {"policy_kwargs": {"net_arch": [16, 16], "activation_fn": torch.nn.ReLU}}),
    "ppo gsde": ("Pendulum-v1", sb3.PPO, {"use_sde": True}),
    "a2c choices": ("CartPole-v1", sb3.A2C, {}),
    "dqn": ("CartPole-v1", sb3.DQN, OFF_POLICY),
    "sac": ("Pendulum-v1", sb3.SAC, OFF_POLICY),
    "sac gsde": ("Pendulum-v1", sb3.SAC, {**OFF_POLICY, "use_sde": True}),
    "td3": ("Pendulum-v1", sb3.TD3, OFF_POLICY),
}


def saved(folder: Path, kind: str) -> tuple[Path, object]:
    task, algorithm, settings = AGENTS[kind]
    model = algorithm("MlpPolicy", task, seed=3, device="cpu", **{"policy_kwargs": small(), **deepcopy(settings)})
    file = folder / f"{task}.zip"
    model.save(file)
    return file, model


@pytest.mark.parametrize("kind", AGENTS)
def test_actions_are_those_of_stable_baselines3(tmp_path, kind):
    file, model = saved(tmp_path, kind)
    environment = make_environment(AGENTS[kind][0])
    policy, source = read_agent(file).policy(specification(environment)), gymnasium.make(AGENTS[kind][0])
    space = source.observation_space
    for seed in range(20):
        space.seed(seed)
        observation = np.clip(space.sample(), -5, 5)
        expected, _ = model.predict(observation, deterministic=True)
        policy.reset()
        found = policy.act({"observation": observation}, deterministic=True)
        np.testing.assert_allclose(environment.action_space.contains(found), True)
        physical = specification(environment).action.to_physical(found)
        np.testing.assert_allclose(physical, expected, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ppo", "ppo gsde", "sac", "sac gsde", "a2c choices"])
def test_sampled_actions_spread_as_those_of_stable_baselines3(tmp_path, kind):
    file, model = saved(tmp_path, kind)
    environment = make_environment(AGENTS[kind][0])
    spec = specification(environment)
    policy, observation = read_agent(file).policy(spec, seed=1), environment.reset(seed=0)[0]
    found, expected = [], []
    for _ in range(1000):
        policy.reset()
        found.append(spec.action.to_physical(policy.act(observation)))
        if "gsde" in kind:
            model.policy.reset_noise()
        expected.append(model.predict(observation["observation"], deterministic=False)[0])
    assert np.std(expected) > 0.01
    np.testing.assert_allclose(np.mean(found), np.mean(expected), atol=0.15 * np.std(expected))
    np.testing.assert_allclose(np.std(found), np.std(expected), rtol=0.1)


def test_a_seed_determines_sampled_actions(tmp_path):
    file, _ = saved(tmp_path, "ppo")
    environment = make_environment("Pendulum-v1")
    policy, observation = read_agent(file).policy(specification(environment)), environment.reset(seed=0)[0]
    first, other, again = (policy.seeded(seed).act(observation) for seed in (5, 6, 5))
    assert first == again != other


def normalised(folder: Path, **changes: object) -> tuple[Path, VecNormalize, object]:
    """Return an agent that was trained on normalised observations, as the zoo keeps it."""
    environment = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]), clip_obs=1.5)
    model = sb3.PPO("MlpPolicy", environment, n_steps=64, batch_size=64, policy_kwargs=small(), seed=0, device="cpu")
    model.learn(128)
    file = folder / "Pendulum-v1.zip"
    model.save(file)
    (folder / "Pendulum-v1").mkdir()
    for name, value in changes.items():
        setattr(environment, name, value)
    environment.save(str(folder / "Pendulum-v1" / "vecnormalize.pkl"))
    (folder / "Pendulum-v1" / "config.yml").write_text(
        "!!python/object\n- - - n_steps\n    - 64\n  - - normalize\n    - true\n"
    )
    return file, environment, model


def test_observations_are_normalised_as_in_training(tmp_path):
    file, environment, model = normalised(tmp_path)
    policy = read_agent(file).policy(specification(make_environment("Pendulum-v1")))
    for seen in np.random.default_rng(0).uniform(-8, 8, (20, 3)).astype(np.float32):
        expected, _ = model.predict(environment.normalize_obs(seen), deterministic=True)
        np.testing.assert_allclose(policy.act({"observation": seen}, deterministic=True) * 2, expected, atol=2e-6)


def test_moments_that_are_missing_are_asked_for(tmp_path):
    file, *_ = normalised(tmp_path)
    (tmp_path / "Pendulum-v1" / "vecnormalize.pkl").unlink()
    with pytest.raises(InvalidSetting, match=r"moments are not there(.|\n)*normalize: true"):
        read_agent(file)


def test_rewards_alone_normalised_leave_observations(tmp_path):
    file, *_ = normalised(tmp_path, norm_obs=False)
    assert read_agent(file).moments is None


class Running:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_hostile_moments_are_refused_and_never_run(tmp_path):
    file, *_ = normalised(tmp_path)
    for content in (Running(tmp_path / "touched"), {"mean": 1}, [Running(tmp_path / "touched")]):
        (tmp_path / "Pendulum-v1" / "vecnormalize.pkl").write_bytes(pickle.dumps(content))
        with pytest.raises(InvalidSetting, match="no moments that can be read without running it"):
            read_agent(file)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(("name", "value"), [("epsilon", np.nan), ("clip_obs", -1.0), ("obs_rms", None), ("norm_obs", True)])
def test_moments_that_are_no_moments_are_refused(tmp_path, name, value):
    file, environment, _ = normalised(tmp_path)
    if name == "norm_obs":
        environment.obs_rms.var = np.array([1.0, -1.0, 1.0])
    else:
        setattr(environment, name, value)
    environment.save(str(tmp_path / "Pendulum-v1" / "vecnormalize.pkl"))
    with pytest.raises(InvalidSetting, match="no moments"):
        read_agent(file)


def repacked(file: Path, **parts: bytes) -> Path:
    """Replace parts of a zip."""
    with zipfile.ZipFile(file) as source:
        content = {name: source.read(name) for name in source.namelist()} | {
            k.replace("_pth", ".pth"): v for k, v in parts.items()
        }
    with zipfile.ZipFile(file, "w") as target:
        for name, data in content.items():
            target.writestr(name, data)
    return file


def test_a_hostile_zip_is_refused_and_never_runs(tmp_path):
    file, _ = saved(tmp_path, "ppo")
    hostile = pickle.dumps({"a": Running(tmp_path / "touched")})
    with zipfile.ZipFile(tmp_path / "weights", "w") as nested:
        nested.writestr("archive/data.pkl", hostile)
        nested.writestr("archive/version", "3\n")
    for weights in (hostile, (tmp_path / "weights").read_bytes(), b"", b"PK\x03\x04"):
        with pytest.raises(InvalidSetting, match="no agent that can be read"):
            read_agent(repacked(file, policy_pth=weights))
    assert not (tmp_path / "touched").exists()


def test_serialized_settings_are_never_opened(tmp_path):
    file, _ = saved(tmp_path, "ppo")
    with zipfile.ZipFile(file) as parts:
        data = json.loads(parts.read("data"))
    data["policy_class"][":serialized:"] = data["lr_schedule"][":serialized:"] = "not even base64"
    repacked(file, data=json.dumps(data).encode())
    assert read_agent(file).head.inputs == 3


def test_damaged_files_are_refused(tmp_path):
    file, _ = saved(tmp_path, "ppo")
    content = file.read_bytes()
    for changed in (b"", b"text", content[: len(content) // 2]):
        file.write_bytes(changed)
        with pytest.raises(InvalidSetting, match="no agent that can be read"):
            read_agent(file)
    file.write_bytes(content)
    for part in (b"[]", b"{", b"[" * 100_000):
        with pytest.raises(InvalidSetting, match="no agent that can be read"):
            read_agent(repacked(file, data=part))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_expln": True}, "use_expln that is not read here"),
        ({"features_extractor_class": "<class 'my.NatureCNN'>"}, "features_extractor_class"),
        ({"activation_fn": "<class 'my.Odd'>"}, "Unknown activation_fn"),
    ],
)
def test_settings_that_change_actions_are_refused(tmp_path, settings, message):
    file, _ = saved(tmp_path, "sac")
    with zipfile.ZipFile(file) as parts:
        data = json.loads(parts.read("data"))
    data["policy_kwargs"].update(settings)
    with pytest.raises((InvalidSetting, UnknownName), match=message):
        read_agent(repacked(file, data=json.dumps(data).encode()))


def test_weights_of_pictures_are_refused(tmp_path):
    file, _ = saved(tmp_path, "ppo")
    weights = tmp_path / "w.pth"
    torch.save({"features_extractor.cnn.0.weight": torch.zeros(1)}, weights)
    with pytest.raises(InvalidSetting, match=r"networks that are not read here(.|\n)*see pictures"):
        read_agent(repacked(file, policy_pth=weights.read_bytes()))


def test_another_environment_is_refused_by_its_numbers(tmp_path):
    agent = read_agent(saved(tmp_path, "sac")[0])
    pendulum = specification(make_environment("Pendulum-v1"))
    agent.policy(pendulum)
    with pytest.raises(
        SpecMismatch, match=r"observation: 3 numbers here, 4 there(.|\n)*action: 1 numbers here, 2 choices there"
    ):
        agent.policy(specification(make_environment("CartPole-v1")))
    weaker = make_spec("test/weak", *pendulum.observation.arrays, action=axes("torque"))
    with pytest.raises(SpecMismatch, match=r"action limits: \[\[-2.0\], \[2.0\]\] here"):
        agent.policy(weaker)


def test_a_folder_must_hold_one_zip(tmp_path):
    file, _ = saved(tmp_path, "ppo")
    assert read_agent(tmp_path).name == read_agent(file).name
    shutil.copy(file, tmp_path / "other.zip")
    with pytest.raises(UnknownName, match=r"name one zip(.|\n)*Pendulum-v1.zip"):
        read_agent(tmp_path)
    with pytest.raises(UnknownName, match="data get zoo-agents"):
        read_agent(tmp_path / "none")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "environment", "episodes", "near"),
    [
        ("sac/HalfCheetah-v3_1", "gymnasium/HalfCheetah-v5", 2, 0.05),
        ("ppo/HalfCheetah-v3_1", "gymnasium/HalfCheetah-v5", 2, 0.15),  # one of its own twenty fell over
        ("sac/Swimmer-v3_1", "gymnasium/Swimmer-v5", 2, 0.05),
        ("ppo/CartPole-v1_1", "CartPole-v1", 5, 0.0),
    ],
)
def test_published_agents_reach_their_published_returns(path, environment, episodes, near):
    folder = os.environ.get("ROBO_RL_REFERENCE_DATA")
    if not folder:
        pytest.skip("ROBO_RL_REFERENCE_DATA names no folder with zoo/, the agents of RL Baselines3 Zoo")
    agent, made = read_agent(Path(folder) / "zoo" / path), make_environment(environment)
    found = evaluate(agent.policy(specification(made)), made, episodes)
    assert np.mean(found.returns) == pytest.approx(np.mean(agent.evaluation.returns), rel=near)
