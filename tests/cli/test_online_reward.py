"""A recipe with the reward of a model: what is drawn, what is refused, what a run says of it, and that it goes on exactly."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.identity import settings_hash
from robo_rl.rewards.images.picture_reward import PictureReward
from robo_rl.runs.observer import RunRecord
from robo_rl.runs.run import Run, find_run
from robo_rl.types import Labels

RECIPE = """
environment: {name: robo/ArmReach-v0, arguments: {max_steps: 8, action_repeat: 3}}
algorithm: sac
learner: {network: {hidden: [8]}, batch_size: 8, replay: {learning_starts: 4}}
reward:
  name: brightness
  settings: {mode: delta}
  arguments: {cameras: [front], image_size: 16}
  every: 5
  completion: {name: brightness, threshold: 0.2}
steps: 30
log_every: 8
evaluation: {episodes: 1, videos: 0}
"""


@dataclass(frozen=True, kw_only=True)
class Brightness(PictureReward):
    """The mean of a picture."""

    weights: str = "first"

    @property
    def identity(self):
        return "brightness", settings_hash(self)

    def score(self, pictures, firsts, instruction):
        assert instruction, "the environment says what shall be done"
        return Labels(pictures.mean((1, 2, 3), np.float32) / 255, np.ones(len(pictures), np.bool_))


@pytest.fixture(autouse=True)
def brightness(monkeypatch):
    def load_it(group: Any, name: str, **how: Any) -> Any:
        return Brightness if name == "brightness" else load(group, name, **how)

    monkeypatch.setattr("robo_app.recipes.reward_file.load", load_it)


def train(recipe: str, *options: str) -> Run:
    Path("tiny.yaml").write_text(recipe)
    assert dispatch(["train", "tiny.yaml", *options]) == 0
    return find_run("latest", Path("runs"))


def parameters(run: Run) -> dict[str, np.ndarray]:
    return load_file(run.path / "checkpoints" / "0000000030" / "learner.safetensors")


@pytest.mark.slow
def test_run_records_reward_name_and_both_returns(capsys):
    run = train(RECIPE, "--record-episodes")
    told = run.description["reward"]
    assert told["model"] == told["completion_model"] == "brightness" and len(told["weights"]) == 16
    assert told["weights"] != told["completion_weights"] and told["completion_bonus"] == 1.0
    newest = {name: value for line in run.metrics() for name, value in line.items()}
    assert newest["rollout/ep_rew_mean"] == 0.0, "the task's own reward is sparse, and it was not reached"
    assert newest["reward/model_return"] != 0 and newest["reward/missing"] == 0.0 and newest["time/score_s"] > 0
    assert "camera_front" not in run.spec.observation
    kept = Dataset(run.path / "episodes")
    episode = kept.read(kept.entries()[0])
    assert episode.observations["camera_front"].shape == (9, 16, 16, 3) and (episode.rewards == 0).all()
    assert kept.card["arguments"]["cameras"] == ["front"]


@pytest.mark.slow
def test_online_reward_resumes_exactly_and_refuses_another(monkeypatch, capsys):
    whole = parameters(train(RECIPE))
    original = RunRecord.on_step

    def interrupted(self, step, training):
        if step == 13:
            self.request_stop()
        original(self, step, training)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(RunRecord, "on_step", interrupted)
        train(RECIPE)
    run = find_run("latest", Path("runs"))
    with monkeypatch.context() as patched:
        patched.setattr(
            Brightness, "identity", property(lambda self: ("brightness", settings_hash(replace(self, weights="x"))))
        )
        changed = r"The reward has changed since the run .*: weights, completion_weights(.|\n)*values of two rewards"
        with pytest.raises(InvalidSetting, match=changed):
            dispatch(["resume", str(run.path)])
    assert dispatch(["resume", str(run.path)]) == 0
    assert "resumed at step 13, exact" in capsys.readouterr().out
    assert all(np.array_equal(value, whole[name]) for name, value in parameters(run).items())


@pytest.mark.slow
def test_demonstrations_of_the_expert_have_the_models_rewards(monkeypatch, capsys):
    seen = []
    score = Brightness.score
    monkeypatch.setattr(Brightness, "score", lambda self, *shown: seen.append(len(shown[0])) or score(self, *shown))
    recipe = RECIPE.replace("max_steps: 8, ", "").replace("algorithm: sac", "algorithm: rlpd\ndemonstrations: {episodes: 2}")
    run = train(recipe.replace("every: 5", "every: 1000"))
    assert "2 demonstrations by the scripted expert (in 2 tries), rewards of the model brightness" in capsys.readouterr().out
    assert sum(seen[:4]) > 8, "after the look whether it can judge at all: with its first picture, and for its completion"
    rows = load_file(run.path / "checkpoints" / "0000000030" / "offline.safetensors")
    rewards = rows[next(name for name in rows if name.endswith("vectors"))][:, -1]
    assert np.ptp(rewards) > 0 and not np.isin(rewards, (0.0, 1.0)).all()


ON_POLICY = {
    "ppo": "learner: {num_envs: 2, steps_per_env: 16, batch_size: 16, epochs: 1, network: {hidden: [8]}}",
    "sb3-ppo": "learner: {n_envs: 2, n_steps: 15, batch_size: 15, n_epochs: 1, policy_kwargs: {net_arch: [8]}}",
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ON_POLICY)
def test_vector_policies_learn_online_and_act_without_camera(algorithm, capsys):
    old = "algorithm: sac\nlearner: {network: {hidden: [8]}, batch_size: 8, replay: {learning_starts: 4}}"
    assert old in RECIPE
    run = train(RECIPE.replace(old, f"algorithm: {algorithm}\n{ON_POLICY[algorithm]}"))
    newest = {name: value for line in run.metrics() for name, value in line.items()}
    assert newest["reward/model_return"] != 0 and newest["rollout/ep_rew_mean"] == 0
    assert dispatch(["evaluate", str(run.path), "--episodes", "1"]) == 0
    assert "1 episode" in capsys.readouterr().out and "camera_front" not in run.spec.observation


LEARNER = "algorithm: sac\nlearner: {network: {hidden: [8]}, batch_size: 8, replay: {learning_starts: 4}}\n"
SCALED = "algorithm: sb3-sac\nlearner: {normalize: {rewards: true}}\n"
LABELS = "demonstrations: {dataset: x, labels: y}\nsteps: 30"
REFUSED = {
    "no picture of it": ("arguments: {cameras: [front], image_size: 16}", "", r"no pictures of the camera 'front'"),
    "another discount": ("mode: delta", "mode: potential, discount: 0.9", r"got: +discount 0.9(.|\n)*discount to 0.99"),
    "labels whole episodes": ("name: brightness, ", "name: oracle, ", r"oracle cannot be given while a policy acts"),
    "how, but not which": ("name: brightness\n", "name: ''\n", r"names none(.|\n)*set reward.name"),
    "changed the task": ("image_size: 16", "max_steps: 9", r"reward.arguments change what the policy sees"),
    "two sources of labels": (
        "steps: 30",
        "demonstrations: {dataset: x, labels: y}\nsteps: 30",
        r"labels the demonstrations itself",
    ),
    "no step to reward": (LEARNER, "algorithm: iql\n", r"iql needs an online phase"),
    "none in a call": ("every: 5", "every: 0", r"'every' is out of range"),
    "unknown key": ("every: 5", "evry: 5", r"did you mean 'every'"),
    "scaled too early": (LEARNER, SCALED, r"set learner.normalize.rewards to false"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_before_anything_is_written(case):
    old, new, message = REFUSED[case]
    assert old in RECIPE
    with pytest.raises(Exception, match=message) as caught:
        train(RECIPE.replace(old, new, 1))
    assert type(caught.value).__module__ == "robo_rl.errors"
    assert not Path("runs").exists()
