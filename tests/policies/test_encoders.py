"""Frozen encoders of pictures: fitted to a simulator, pre-trained from a folder, features in place of pictures."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported

from factories import axes, make_spec, picture_spec
from robo_cli import main
from robo_policies.encoders.fitted import FEATURES, FittedEncoder
from robo_policies.encoders.fitting import TargetError, collect, fit_encoder
from robo_policies.encoders.pretrained import PretrainedEncoder
from robo_policies.encoders.settings import EncoderFit
from robo_policies.learners.rlpd import RLPDConfig, RLPDNetwork
from robo_rl.conformance.environments import check_environment
from robo_rl.environments.encoded import EncodedEnv, load_encoder
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.spec.environment import ArraySpec, specification

CAMERA = picture_spec("camera_front", (16, 16, 3))
DOT = ArraySpec("dot_position", (2,), role="object", unit="m")
PLACE = ArraySpec("camera_place", (1,), unit="m")
QUICK = EncoderFit(frames=1_000, updates=300, batch_size=64, lr=3e-3)


class Dot(gymnasium.Env[Any, Any]):
    """A bright dot of 3 x 3 pixels on a dark picture, seen from a camera that moves; both are elsewhere at each step."""

    def __init__(self, *, blank: bool = False) -> None:
        self.environment_spec = make_spec("dot", PLACE, DOT, CAMERA, action=axes("a"), max_steps=5)
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space
        self._blank, self._steps = blank, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.environment_spec.action.validate(action)
        self._steps += 1
        is_over = self._steps == 5
        return self._seen(), 0.0, False, is_over, {"stop_reason": "time_limit"} if is_over else {}

    def _seen(self) -> dict[str, Any]:
        row, column = self.np_random.integers(0, 14, 2)
        picture = np.zeros((16, 16, 3), np.uint8)
        if not self._blank:
            picture[row : row + 3, column : column + 3] = 255
        place = self.np_random.uniform(-0.1, 0.1)
        seen = {"camera_place": np.array([place], np.float32), "camera_front": picture}
        return seen | {"dot_position": np.array([row / 100 + place, column / 100], np.float32)}


def silent(steps: Any, title: str) -> Any:
    return steps


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[TargetError]]:
    path = tmp_path_factory.mktemp("encoder") / "dot"
    return path, fit_encoder(collect(Dot(), QUICK, silent), path, QUICK, {"environment": "dot"}, silent)


@pytest.fixture
def folder(fitted: tuple[Path, list[TargetError]]) -> Path:
    return fitted[0]


def encoded(folder: Path, **settings: Any) -> EncodedEnv:
    return EncodedEnv(Dot(), FittedEncoder(str(folder)), **settings)


# fitting


@pytest.mark.slow
def test_fit_finds_the_dot_on_held_out_episodes(fitted: tuple[Path, list[TargetError]]) -> None:
    errors = fitted[1]
    assert [error.target for error in errors] == ["dot_position[0]", "dot_position[1]"]
    assert all(error.error < 0.3 * error.blind for error in errors), errors


@pytest.mark.slow
def test_fit_on_blank_pictures_finds_nothing(tmp_path: Path) -> None:
    errors = fit_encoder(collect(Dot(blank=True), QUICK, silent), tmp_path / "blank", QUICK, {}, silent)
    assert errors[1].error > 0.95 * errors[1].blind, errors


def test_fit_repeats_with_its_seed(tmp_path: Path) -> None:
    short = replace(QUICK, updates=5)
    for name in ("one", "two"):
        fit_encoder(collect(Dot(), short, silent), tmp_path / name, short, {}, silent)
    assert FittedEncoder(str(tmp_path / "one")).digest == FittedEncoder(str(tmp_path / "two")).digest


def test_collect_refuses_an_environment_without_targets() -> None:
    environment = make_environment("robo/ArmReach-v0", sees="front", image_size=32)
    with pytest.raises(InvalidSetting, match="objects and goals: none"):
        collect(environment, QUICK, silent)
    with pytest.raises(InvalidSetting, match="pictures: none"):
        collect(make_environment("robo/ArmReach-v0"), QUICK, silent)


@pytest.mark.parametrize("changes", [{"frames": 10}, {"updates": 0}, {"lr": 0.0}])
def test_settings_of_a_fit_have_ranges(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(changes))):
        replace(QUICK, **changes)


# folders


def test_a_folder_without_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="no encoder"):
        FittedEncoder(str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("torn", ["weights.safetensors", "encoder.json"])
def test_a_torn_folder_is_refused(folder: Path, tmp_path: Path, torn: str) -> None:
    for path in folder.iterdir():
        content = path.read_bytes()
        (tmp_path / path.name).write_bytes(content[: len(content) // 2] if path.name == torn else content)
    with pytest.raises(InvalidSetting, match="encoder"):
        FittedEncoder(str(tmp_path))


def test_names_of_encoders_are_checked(folder: Path) -> None:
    assert load_encoder(f"fitted:{folder}").digest == FittedEncoder(str(folder)).digest
    with pytest.raises(InvalidSetting, match="KIND:FOLDER"):
        load_encoder("encoders/pick")
    with pytest.raises(UnknownName, match="fitted"):
        load_encoder("fited:encoders/pick")


# environments


def test_encoded_environment_keeps_the_rules(folder: Path) -> None:
    check_environment(lambda: encoded(folder))


def test_features_are_those_of_the_encoder(folder: Path) -> None:
    environment = encoded(folder)
    observation, _ = environment.reset(seed=3)
    expected = FittedEncoder(str(folder)).encode({name: values[None] for name, values in observation.items()})[0]
    np.testing.assert_array_equal(observation["picture_features"], expected)
    assert expected.shape == (FEATURES + 2,)
    assert observation["picture_features"].std() > 0


def test_pictures_can_be_left_out(folder: Path) -> None:
    environment = encoded(folder, keep_pictures=False)
    assert list(environment.environment_spec.observation) == ["camera_place", "dot_position", "picture_features"]
    assert list(environment.reset(seed=0)[0]) == ["camera_place", "dot_position", "picture_features"]


def test_blank_pictures_leave_nothing_to_see(folder: Path) -> None:
    environment = encoded(folder, blank=True)
    observation = environment.reset(seed=0)[0]
    dark = {name: values[None] * 0 if name == "camera_front" else values[None] for name, values in observation.items()}
    np.testing.assert_array_equal(observation["picture_features"], FittedEncoder(str(folder)).encode(dark)[0])
    assert observation["camera_front"].max() == 255


def test_policy_is_refused_with_another_encoder(folder: Path, tmp_path: Path) -> None:
    other = replace(QUICK, updates=5, seed=1)
    fit_encoder(collect(Dot(), other, silent), tmp_path / "other", other, {}, silent)
    with pytest.raises(SpecMismatch, match="encoder"):
        encoded(folder).environment_spec.require(encoded(tmp_path / "other").environment_spec, what="another encoder")


def test_pictures_of_another_size_are_refused(folder: Path) -> None:
    encoder = FittedEncoder(str(folder))
    with pytest.raises(InvalidSetting, match=r"camera_front \[32, 32, 3\]"):
        encoder.size(make_spec("large", PLACE, picture_spec("camera_front", (32, 32, 3))))
    with pytest.raises(InvalidSetting, match="fitted to other observations"):
        encoder.size(make_spec("wrist", PLACE, picture_spec("camera_wrist", (16, 16, 3))))


def test_environment_without_pictures_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidSetting, match="no pictures"):
        make_environment("robo/ArmReach-v0", wrappers=[{"name": "encoded", "encoder": f"fitted:{folder}"}])


def test_learner_reads_features_and_stores_no_pictures(folder: Path) -> None:
    spec = specification(encoded(folder))
    learner = RLPDConfig(network=RLPDNetwork(hidden=(8,)), updates_per_step=1, batch_size=8).build(spec, 0)
    assert list(learner.policy.environment_spec.observation) == ["camera_place", "dot_position", "picture_features"]


@pytest.mark.slow
def test_command_fits_an_encoder_that_a_training_uses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--environment.arguments.image_size", "16"]
    fit = ["fit-encoder", "robo/ArmPick-v0", "--out", str(tmp_path / "pick"), "--environment.arguments.cameras", "[wrist]"]
    assert main.dispatch([*fit, *size, "--settings.frames", "1000", "--settings.updates", "2"]) == 0
    assert "object_from_gripper[0]" in capsys.readouterr().out
    with pytest.raises(InvalidSetting, match="not empty"):
        main.dispatch([*fit, *size])
    around = [{"name": "encoded", "encoder": f"fitted:{tmp_path / 'pick'}"}]
    environment = make_environment("robo/ArmPick-v0", sees="wrist", image_size=16, wrappers=around)
    roles = {array.name: array.role for array in specification(environment).observation.arrays}
    assert roles["object_position"] == "privileged" and roles["picture_features"] == "object"
    expert = environment.get_wrapper_attr("scripted_policy")(seed=0)
    assert expert.act(environment.reset(seed=0)[0]).shape == (5,)


# pre-trained models

transformers = pytest.importorskip("transformers")
TINY = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
SQUARE = {"height": 16, "width": 16}


def make_model(kind: str, folder: Path) -> None:
    """Write a tiny model with random weights, and its preparation of pictures."""
    torch.manual_seed(0)
    if kind == "dinov2":
        model = transformers.Dinov2Model(transformers.Dinov2Config(**TINY, image_size=16, patch_size=8))
        processor = transformers.BitImageProcessor(size={"shortest_edge": 16}, crop_size=SQUARE)
    elif kind == "siglip":
        text = {**TINY, "vocab_size": 8, "max_position_embeddings": 8}
        config = transformers.SiglipConfig(text_config=text, vision_config={**TINY, "image_size": 16, "patch_size": 8})
        model, processor = transformers.SiglipModel(config), transformers.SiglipImageProcessor(size=SQUARE)
    else:
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
        model, processor = transformers.ResNetModel(config), transformers.ConvNextImageProcessor(size={"shortest_edge": 16})
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [("dinov2", 32), ("siglip", 32), ("resnet", 16)])
def test_pretrained_models_encode_pictures(tmp_path: Path, kind: str, size: int) -> None:
    make_model(kind, tmp_path)
    encoder = PretrainedEncoder(str(tmp_path))
    pictures = np.random.default_rng(0).integers(0, 256, (3, 24, 24, 3), np.uint8)
    assert encoder.size(make_spec("front", picture_spec(shape=(24, 24, 3)))) == size
    features = encoder.encode({"camera_front": pictures})
    assert features.shape == (3, size) and features.dtype == np.float32
    np.testing.assert_allclose(features[1], encoder.encode({"camera_front": pictures[1:2]})[0], atol=1e-5)
    assert np.abs(features[0] - features[1]).max() > 1e-4
    assert encoder.digest.startswith(kind)


def test_pretrained_environment_needs_only_a_folder(tmp_path: Path) -> None:
    make_model("resnet", tmp_path)
    arguments: dict[str, Any] = {"sees": "both", "image_size": 16}
    environment = make_environment(
        "robo/ArmReach-v0", wrappers=[{"name": "encoded", "encoder": f"transformers:{tmp_path}"}], **arguments
    )
    observation = environment.reset(seed=0)[0]
    assert observation["picture_features"].shape == (32,)
    alone = PretrainedEncoder(str(tmp_path))
    alone.size(make_spec("wrist", picture_spec("camera_wrist", (16, 16, 3))))
    expected = alone.encode({"camera_wrist": observation["camera_wrist"][None]})[0]
    np.testing.assert_allclose(observation["picture_features"][16:], expected, atol=1e-5)


def test_pretrained_refuses_a_model_of_text(tmp_path: Path) -> None:
    transformers.BertModel(transformers.BertConfig(**TINY, vocab_size=8)).save_pretrained(tmp_path)
    transformers.SiglipImageProcessor(size=SQUARE).save_pretrained(tmp_path)
    with pytest.raises(InvalidSetting, match=r"no vision model[\s\S]*BertModel"):
        PretrainedEncoder(str(tmp_path))


def test_pretrained_refuses_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="no vision model"):
        PretrainedEncoder(str(tmp_path))


def test_pretrained_refuses_stacked_pictures(tmp_path: Path) -> None:
    make_model("resnet", tmp_path)
    with pytest.raises(InvalidSetting, match="colour pictures"):
        PretrainedEncoder(str(tmp_path)).size(make_spec("stacked", picture_spec(shape=(16, 16, 9))))
