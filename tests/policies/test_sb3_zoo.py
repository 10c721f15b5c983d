"""Settings of RL Baselines3 Zoo files; the excerpts follow the shapes that occur in the real ones."""

from __future__ import annotations

import pytest

from robo_policies.sb3.algorithms import LEARNERS, PPOConfig
from robo_policies.sb3.settings import read_expression
from robo_policies.sb3.zoo import read_zoo
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.settings import settings_as

ZOO = """
HalfCheetah-v4: &mujoco
  normalize: true
  n_envs: 4
  policy: 'MlpPolicy'
  n_timesteps: !!float 1e6
  batch_size: !!float 64
  learning_rate: lin_2e-5
  clip_range: 0.1
  max_grad_norm: 2
  policy_kwargs: "dict(
                    log_std_init=-2,
                    ortho_init=False,
                    activation_fn=nn.ReLU,
                    net_arch=[dict(pi=[256, 256], vf=[256, 256])]
                  )"

Swimmer-v4:
  <<: *mujoco
  gamma: 0.9999
  normalize: "{'norm_obs': True, 'norm_reward': False}"
  env_wrapper:
    - some.Wrapper:
        skip: 2
  policy: CnnPolicy
"""
HALF_CHEETAH = {
    "normalize": {"observations": True, "rewards": True},
    "n_envs": 4,
    "batch_size": 64,
    "learning_rate": "lin_2e-5",
    "clip_range": 0.1,
    "max_grad_norm": 2,
    "policy_kwargs": {
        "log_std_init": -2,
        "ortho_init": False,
        "activation_fn": "ReLU",
        "net_arch": {"pi": [256, 256], "vf": [256, 256]},
    },
}


@pytest.mark.parametrize("environment", ["HalfCheetah-v4", "gymnasium/HalfCheetah-v4"])
def test_a_section_becomes_a_config(environment):
    settings = read_zoo(ZOO, "ppo", environment)
    assert settings.learner == HALF_CHEETAH
    assert (settings.steps, settings.n_envs, settings.ignored) == (1_000_000, 4, ())
    assert isinstance(settings.steps, int) and isinstance(settings.learner["batch_size"], int)
    assert settings_as(PPOConfig, settings.learner, source="zoo").learning_rate == "lin_2e-5"


def test_inherited_section_overrides_and_lists_omissions():
    settings = read_zoo(ZOO, "ppo", "Swimmer-v4")
    changed = {"gamma": 0.9999, "normalize": {"observations": True, "rewards": False}}
    assert settings.learner == HALF_CHEETAH | changed
    assert settings.ignored == ("policy: CnnPolicy", "env_wrapper: [{'some.Wrapper': {'skip': 2}}]")


def test_another_version_of_the_task_stands_in_and_is_named():
    zoo = ZOO + "HalfCheetah-v10:\n  n_timesteps: 5\n"
    settings = read_zoo(zoo, "ppo", "gymnasium/HalfCheetah-v5")
    assert (settings.steps, settings.ignored) == (5, ("version: these are the settings of HalfCheetah-v10",))


def test_off_policy_sections():
    text = """
default:
  n_timesteps: 3e5
Pendulum-v1:
  n_timesteps: !!float 3e5
  policy: 'MlpPolicy'
  noise_type: 'ornstein-uhlenbeck'
  noise_std: 0.5
  gradient_steps: -1
  train_freq: [1, "episode"]
  buffer_size: !!float 2e5
"""
    settings = read_zoo(text, "td3", "Pendulum-v1")
    assert settings.n_envs == 1
    assert settings.learner["buffer_size"] == 200_000
    LEARNERS["sb3-td3"](**settings.learner)
    assert read_zoo(text.replace("3e5", "300000"), "td3", "Elsewhere-v0").learner == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("dict(net_arch=[400, 300])", {"net_arch": [400, 300]}),
        ("{'norm_obs': False, 'a': None}", {"norm_obs": False, "a": None}),
        ("dict(log_std_init=-3.29, activation_fn=nn.Tanh,)", {"log_std_init": -3.29, "activation_fn": "Tanh"}),
        (" dict(pi=(64,), name='x') ", {"pi": [64], "name": "x"}),
    ],
)
def test_expressions_are_read(text, value):
    assert read_expression(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "dict(a=open('/etc/passwd'))",
        "dict(**{'a': 1})",
        "dict([('a', 1)])",
        "{**{}}",
        "nn.Module",
        "nn.ReLU()",
        "os.path",
        "torch.nn.ReLU",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "9**9**9",
        "f'{1}'",
        "b'x'",
        "{[]: 1}",
        "1; 2",
        "",
        "(" * 1500,
        "[" * 300 + "]" * 300,
        "dict(a=" + "1," * 3000 + ")",
    ],
)
def test_hostile_expressions_are_refused(text):
    with pytest.raises(InvalidSetting, match="Not a plain expression; it was not evaluated"):
        read_expression(text)


def test_unknown_things_name_the_close_ones():
    with pytest.raises(UnknownName, match="did you mean 'HalfCheetah-v4'"):
        read_zoo(ZOO, "ppo", "HalfCheeta-v4")
    with pytest.raises(UnknownName, match="did you mean 'gae_lambda'"):
        read_zoo("A:\n  n_timesteps: 1\n  gae_lamda: 0.9", "ppo", "A")
    with pytest.raises(UnknownName, match="Unknown zoo algorithm 'tqc'"):
        read_zoo(ZOO, "tqc", "HalfCheetah-v4")
    with pytest.raises(UnknownName, match="Unknown key of normalize 'norm_actions'"):
        read_zoo("A:\n  n_timesteps: 1\n  normalize: {norm_actions: true}", "ppo", "A")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A: !!python/object/apply:os.system ['true']", "allowed: plain YAML"),
        ("A: [", "is not YAML"),
        ("- 1", "Not a zoo file"),
        ("A: 3", "Not a zoo file"),
        ("A:\n  policy: MlpPolicy", "n_timesteps is not a number"),
        ("A:\n  n_timesteps: many", "n_timesteps is not a number"),
        ("A:\n  n_timesteps: 1\n  normalize: 3", "normalize is not a switch"),
        ("A:\n  n_timesteps: 1\n  policy_kwargs: 3", "policy_kwargs is not a mapping"),
    ],
)
def test_broken_files_are_refused(text, message):
    with pytest.raises(InvalidSetting, match=message):
        read_zoo(text, "ppo", "A")
