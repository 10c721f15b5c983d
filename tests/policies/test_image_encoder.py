"""Pictures in RLPD and HIL-SERL: crops, whose loss trains what sees, its target, frozen layers, a task."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.nn.functional import conv2d, layer_norm, linear, relu

from factories import axes, make_spec, picture_spec
from robo_policies.learners.drq import DrQConfig
from robo_policies.learners.hil_serl import HILSERL, HILSERLConfig
from robo_policies.learners.rlpd import RLPD, RLPDConfig, RLPDNetwork
from robo_policies.networks.convolutions import FEATURES
from robo_policies.networks.image_encoder import ImageEncoder, crop
from robo_rl.conformance.learners import random_batch
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.environment import ActionSpec, ArraySpec
from robo_rl.types import Batch

STATE, OPENING = ArraySpec("state", (2,)), ArraySpec("opening", (1,))
FRONT, WRIST = (picture_spec(f"camera_{name}", (6, 8, 3)) for name in ("front", "wrist"))
MOVES = ActionSpec(("x", "opening"), (-1.0, 0.0), (1.0, 0.08), ("m", "m"))
ARM = make_spec("arm", STATE, OPENING, FRONT, WRIST, action=MOVES)
BLIND = make_spec("blind", STATE, OPENING, action=MOVES)
SMALL = RLPDConfig(
    network=RLPDNetwork(hidden=(8,), convolutions=(4, 5), crop_padding=2), critics=3, updates_per_step=1, batch_size=8, tau=0.25
)
GRIPPER = HILSERLConfig(
    network=RLPDNetwork(hidden=(8,), convolutions=(4, 5)), updates_per_step=1, batch_size=8, gripper="opening"
)


def learner(**changes) -> RLPD:
    built = updated(SMALL, changes).build(ARM, 0)
    assert isinstance(built.parts.encoder.network, ImageEncoder)
    return built


def batch(seed: int = 0, rows: int = 8, **replaced) -> Batch:
    """Returns a batch with pictures that use the whole range."""
    random, found = np.random.default_rng(seed), random_batch(ARM, rows, seed=seed)
    for observations in (found.observations, found.next_observations):
        for name in ("camera_front", "camera_wrist"):
            observations[name][:] = random.integers(0, 256, observations[name].shape)
    return replace(found, **replaced)


def cropped(picture, corner, padding):
    """Returns one crop of one picture."""
    return crop(torch.from_numpy(picture)[None], torch.tensor([corner]), padding)[0].contiguous().numpy()


# crops


def test_a_crop_is_a_part_of_the_picture_with_its_edges_repeated():
    picture = np.arange(12, dtype=np.uint8).reshape(3, 4, 1)
    same, shifted = (cropped(picture, corner, 2)[:, :, 0] for corner in ((2, 2), (0, 3)))
    np.testing.assert_array_equal(same, picture[:, :, 0])
    np.testing.assert_array_equal(shifted, [[1, 2, 3, 3], [1, 2, 3, 3], [1, 2, 3, 3]])


def shifts_of(picture, padding):
    """Returns every crop of one picture as bytes -> its corner."""
    count = 2 * padding + 1
    corners = [(row, column) for row in range(count) for column in range(count)]
    return {cropped(picture, corner, padding).tobytes(): corner for corner in corners}


def encoded(built, data):
    return built.parts.batch(data)


def test_rows_are_cropped_anew_and_alike_for_all_cameras():
    built = learner()
    front = batch(rows=1).observations["camera_front"][0]
    seen = {name: np.repeat(front[None], 40, 0) for name in ("camera_front", "camera_wrist")}
    data = batch(rows=40)
    data = replace(data, observations=data.observations | seen, next_observations=data.next_observations | seen)
    opened, known = encoded(built, data), shifts_of(front, 2)
    corners = []
    for views in (opened.observations, opened.next_observations):
        assert views["camera_front"].dtype == torch.uint8  # pictures move as they are
        rows = [[known[picture.numpy().tobytes()] for picture in views[name].contiguous()] for name in seen]
        assert rows[0] == rows[1]
        corners.append(rows[0])
    assert corners[0] != corners[1]
    drawn = {number for rows in corners for corner in rows for number in corner}
    assert drawn == {0, 1, 2, 3, 4} and len({*corners[0]}) > 10
    np.testing.assert_array_equal(opened.observations["state"], data.observations["state"])
    again = encoded(built, data).observations["camera_front"]
    assert not torch.equal(again, opened.observations["camera_front"])


def test_constant_and_unpadded_pictures_are_unchanged():
    constant = torch.tensor([7, 8, 9], dtype=torch.uint8).expand(5, 6, 8, 3)
    assert torch.equal(crop(constant, torch.randint(9, (5, 2), generator=torch.Generator()), 4), constant)
    data = batch()
    found = encoded(learner(network={"crop_padding": 0}), data).next_observations["camera_wrist"]
    np.testing.assert_array_equal(found, data.next_observations["camera_wrist"])


@torch.no_grad()
def test_policy_acts_on_the_whole_picture():
    built, data = learner(network={"crop_padding": 2}), batch()
    observation = {name: values[3] for name, values in data.observations.items()}
    features = built.parts.encoder(encoded(learner(network={"crop_padding": 0}), data).observations)[3:4]
    expected = built.actor.mode(features)[0]
    for _ in range(2):
        np.testing.assert_allclose(built.policy.act(observation, deterministic=True), expected, rtol=1e-4, atol=1e-6)


# whose loss trains the encoder


def features_by_hand(encoder, views):
    """Returns (B, 2 FEATURES + D) with functions of torch alone."""
    parts, weights = [], iter(encoder.network.parameters())
    for name in ("camera_front", "camera_wrist"):
        x = views[name].permute(0, 3, 1, 2).float() / 255
        for _ in range(2):
            x = relu(conv2d(x, next(weights), next(weights), stride=2, padding=1))
        parts.append(torch.tanh(layer_norm(linear(x.flatten(1), next(weights), next(weights)), (FEATURES,))))
    return torch.cat([*parts, views["state"], views["opening"]], 1)


def values_by_hand(network, inputs):
    """Returns (N, B, outputs) of perceptrons with one hidden layer."""
    state = network.state_dict()
    hidden = inputs @ state["layers.linears.0.weight"] + state["layers.linears.0.bias"]
    hidden = layer_norm(hidden, hidden.shape[-1:]) * state["layers.norms.0.weight"] + state["layers.norms.0.bias"]
    return relu(hidden) @ state["layers.linears.1.weight"] + state["layers.linears.1.bias"]


def flat(network):
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


@pytest.mark.parametrize("engine", ["reference", "accelerated"])
def test_gradient_of_the_critics_loss_reaches_the_convolutions(engine):
    built = learner(network={"engine": engine})
    data, parts = encoded(built, batch()), built.parts
    targets = torch.randn(8, generator=torch.Generator().manual_seed(1))
    values = built.critic(parts.encoder(data.observations), data.actions)
    q = values_by_hand(built.critic, torch.cat((features_by_hand(parts.encoder, data.observations), data.actions), 1))[..., 0]
    torch.testing.assert_close(values, q, rtol=1e-4, atol=1e-5)
    weights = list(parts.encoder.network.parameters())
    found = torch.autograd.grad(built.critic_loss(values, targets, data.weights), weights)
    expected = torch.autograd.grad((q - targets).square().mean(), weights)
    assert max(float(part.abs().max()) for part in expected) > 1e-3
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_critics_train_the_encoder_and_the_actor_does_not(monkeypatch):
    built, seen = learner(), {}

    def noted(name, descend, loss):
        before = flat(built.parts.encoder), flat(built.actor)
        descend(loss)
        after = flat(built.parts.encoder), flat(built.actor)
        seen[name] = [not torch.equal(*pair) for pair in zip(before, after, strict=True)]

    for name in ("critic", "actor", "temperature"):
        network = getattr(built, name)
        monkeypatch.setattr(network, "descend", partial(noted, name, network.descend))
    built.update(batch())
    assert seen == {"critic": [True, False], "actor": [False, True], "temperature": [False, False]}


def test_actor_learns_from_features_after_the_critics_steps(monkeypatch):
    built, seen = learner(updates_per_step=2, network={"crop_padding": 0}), []
    actor_loss = built.actor_loss
    monkeypatch.setattr(built, "actor_loss", lambda inputs, *rest: seen.append(inputs.clone()) or actor_loss(inputs, *rest))
    data = batch(rows=16)
    built.update(data)
    with torch.no_grad():
        expected = built.parts.encoder(encoded(built, data).observations)[8:]
    torch.testing.assert_close(seen, [expected])


def test_target_encoder_follows_and_feeds_the_target_critics():
    built = learner()
    parts = built.parts
    old = flat(parts.target_encoder)
    assert torch.equal(old, flat(parts.encoder))
    built.update(batch())
    expected = 0.75 * old + 0.25 * flat(parts.encoder)
    assert not torch.equal(old, flat(parts.target_encoder))
    torch.testing.assert_close(flat(parts.target_encoder), expected)
    with torch.no_grad():
        for parameter in parts.target_encoder.parameters():
            parameter.mul_(0.5)
        data, generator = encoded(built, batch(1)), torch.Generator()
        generator.set_state(parts.generator.get_state())
        features, as_target = (features_by_hand(e, data.next_observations) for e in (parts.encoder, parts.target_encoder))
        actions, _ = built.actor.sample(features, generator)
        subset = torch.randperm(3, generator=generator)[:2]
        following = values_by_hand(built.target_critic, torch.cat((as_target, actions), 1))[subset, :, 0].amin(0)
        targets = data.rewards + data.discounts * data.masks * following
        torch.testing.assert_close(built.critic_target(data, torch.tensor(0.1)), targets, rtol=1e-4, atol=1e-5)


def test_gripper_critic_trains_encoder_with_own_moments():
    built = GRIPPER.build(ARM, 0)
    assert isinstance(built, HILSERL)
    data = encoded(built, batch())
    before = flat(built.parts.encoder)
    built.gripper.descend(built.gripper_loss(data, torch.zeros(8)))
    assert not torch.equal(before, flat(built.parts.encoder))
    state = built.state_dict()["optimizers"]
    moments = {name: [key for key in state[name]["mean"] if "encoder" in key] for name in ("gripper", "critic")}
    assert len(moments["gripper"]) == len(moments["critic"]) == 12
    assert all(state["gripper"]["mean"][key].any() for key in moments["gripper"])
    assert not any(state["critic"]["mean"][key].any() for key in moments["critic"])


# frozen layers


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    shapes = {"0.weight": (4, 3, 3, 3), "0.bias": (4,), "1.weight": (5, 4, 3, 3), "1.bias": (5,)}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_frozen_convolutions_stay_while_head_learns(tmp_path):
    path = str(tmp_path / "weights.safetensors")
    save_file(weights(), path)
    built = learner(network={"frozen_convolutions": path})
    before = {name: value.clone() for name, value in built.parts.encoder.network.state_dict().items()}
    for seed in range(2):
        built.update(batch(seed))
    for encoder in (built.parts.encoder, built.parts.target_encoder):
        for name, value in encoder.network.state_dict().items():
            _, camera, layer, kind = name.split(".")
            if layer in ("0", "2"):
                np.testing.assert_array_equal(value, weights()[f"{int(layer) // 2}.{kind}"])
            else:
                assert (value != before[name]).float().mean() > 0.9, camera
    again = learner(network={"frozen_convolutions": path}, lr=1e-2)
    again.load_state_dict(built.state_dict())
    assert torch.equal(flat(again.parts.encoder), flat(built.parts.encoder))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (None, "got:     no such file"),
        ({"1.bias": None}, r"got:     \{'0.bias': \(4,\), .*\n  allowed: .*'1.bias': \(5,\)"),
        ({"0.bias": np.zeros(3, np.float32)}, r"'0.bias': \(3,\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused(changes, words, tmp_path):
    path = tmp_path / "weights.safetensors"
    if changes is not None:
        save_file({name: value for name, value in (weights() | changes).items() if value is not None}, str(path))
    with pytest.raises(InvalidSetting, match=rf"weights of frozen convolutions(.*\n)*.*{words}"):
        learner(network={"frozen_convolutions": str(path)})


def test_a_file_that_holds_no_weights_is_refused(tmp_path):
    (tmp_path / "weights").write_bytes(b"no weights")
    with pytest.raises(InvalidSetting, match=r"weights of frozen convolutions(.*\n)*.*got:     .*[Hh]eader"):
        learner(network={"frozen_convolutions": str(tmp_path / "weights")})


# what is refused, and what stays as it is


def test_convolutions_without_pictures_are_refused():
    with pytest.raises(
        InvalidSetting, match=r"convolutions is set, and 'blind' has no image entry(.*\n)*.*leave convolutions out"
    ):
        SMALL.build(BLIND, 0)


def test_pictures_that_are_too_small_are_refused():
    with pytest.raises(
        InvalidSetting, match=r"'camera_front' is not a picture that(.*\n)*.*6, 8, 3\], 4 conv(.*\n)*.*9 pixels"
    ):
        learner(network={"convolutions": (4, 4, 4, 4)})


@pytest.mark.parametrize(
    "change",
    [
        {"network": {"crop_padding": -1}},
        {"network": {"convolutions": (4, 0)}},
        {"network": {"frozen_convolutions": "a.safetensors", "convolutions": ()}},
    ],
)
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(InvalidSetting, match=next(iter(change))):
        updated(SMALL, change)


@pytest.mark.parametrize(
    "config",
    [
        RLPDConfig(network=RLPDNetwork(hidden=(8,)), batch_size=8, updates_per_step=1),
        updated(GRIPPER, network={"convolutions": ()}),
    ],
)
def test_without_convolutions_pictures_change_nothing(config, leaves):
    states = []
    for spec, seed in ((ARM, 0), (ARM, 1), (BLIND, 0)):
        built, data = config.build(spec, 0), batch()
        for name in ("camera_front", "camera_wrist"):
            data.observations[name][:] = seed
        built.update(data)
        states.append(leaves(built.state_dict()))
    assert states[0] == states[1] == states[2] and not any("towers" in name for name in states[0])


# learning

BAR = make_spec("bar", ArraySpec("constant", (1,)), picture_spec("camera", (16, 16, 3)), action=axes("x"))


def bars(places, *, shown: bool):
    """Returns observations of bars two pixels wide at places in [-1, 1], or of none."""
    pictures = np.zeros((len(places), 16, 16, 3), np.uint8)
    for picture, place in zip(pictures, places, strict=True):
        left = round(7 + 6 * float(place))
        picture[:, left : left + 2] = 255 * shown
    return {"constant": np.ones((len(places), 1), np.float32), "camera": pictures}


SEES: dict[str, Any] = {
    "network": {"hidden": (32,), "convolutions": (8, 8), "crop_padding": 1},
    **{"batch_size": 32, "lr": 3e-3, "tau": 0.05, "initial_temperature": 0.02, "target_entropy_per_action": -1.5},
}
LOOKING = {"rlpd": updated(RLPDConfig(), SEES, critics=2, updates_per_step=1), "drq": updated(DrQConfig(), SEES)}


def error_after(updates: int, config: RLPDConfig | DrQConfig, *, shown: bool) -> float:
    """Return the mean distance of the policy, rewarded for going to the bar, from it after so many updates."""
    built, random = config.build(BAR, 0), np.random.default_rng(0)
    for _ in range(updates):
        places = random.uniform(-1, 1, 32).astype(np.float32)
        actions = random.uniform(-1, 1, (32, 1)).astype(np.float32)
        seen = bars(places, shown=shown)
        built.update(
            Batch(
                observations=seen,
                actions=actions,
                rewards=-((actions[:, 0] - places) ** 2),
                masks=np.zeros(32, np.float32),  # every episode is one step long
                discounts=np.full(32, 0.9, np.float32),
                next_observations=seen,
                weights=np.ones(32, np.float32),
                sources=np.zeros(32, np.int8),
            )
        )
    places = np.linspace(-0.9, 0.9, 19, dtype=np.float32)
    seen = bars(places, shown=shown)
    rows = [{name: values[row] for name, values in seen.items()} for row in range(len(places))]
    actions = [float(built.policy.act(row, deterministic=True)[0]) for row in rows]
    return float(np.abs(np.array(actions) - places).mean())


@pytest.mark.slow
@pytest.mark.parametrize("config", LOOKING.values(), ids=LOOKING)
def test_picture_only_signal_needs_pictures(config):
    with_picture, without = error_after(300, config, shown=True), error_after(100, config, shown=False)
    assert with_picture < 0.25 and without > 0.35, (with_picture, without)
