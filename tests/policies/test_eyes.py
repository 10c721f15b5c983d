"""Pictures in RLPD and HIL-SERL: crops, whose loss trains what sees, its target, frozen layers, a task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.nn.functional import conv2d, layer_norm, linear, relu

from robo_policies.learners.hil_serl import HILSERL, HILSERLConfig
from robo_policies.learners.rlpd import RLPD, RLPDConfig
from robo_policies.networks.eyes import OpenEyes, cropped
from robo_policies.networks.sight import FEATURES
from robo_rl.errors import InvalidSetting
from robo_rl.learner_conformance import random_batch
from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Batch

STATE, OPENING = ArraySpec("state", (2,)), ArraySpec("opening", (1,))
FRONT, WRIST = (ArraySpec(f"camera_{name}", (6, 8, 3), "uint8", 0, 255, role="image") for name in ("front", "wrist"))
MOVES = ActionSpec(("x", "opening"), (-1.0, 0.0), (1.0, 0.08), ("m", "m"))
ARM = EnvironmentSpec("arm", ObservationSpec((STATE, OPENING, FRONT, WRIST)), MOVES)
BLIND = EnvironmentSpec("blind", ObservationSpec((STATE, OPENING)), MOVES)
SMALL = RLPDConfig(hidden=(8,), critics=3, updates_per_step=1, batch_size=8, convolutions=(4, 5), crop_padding=2, tau=0.25)
GRIPPER = HILSERLConfig(hidden=(8,), updates_per_step=1, batch_size=8, gripper="opening", convolutions=(4, 5))


def learner(**changes) -> RLPD:
    built = replace(SMALL, **changes).build(ARM, 0)
    assert isinstance(built.eyes, OpenEyes)
    return built


def batch(seed: int = 0, rows: int = 8, **replaced) -> Batch:
    """Returns a batch with pictures that use the whole range."""
    random, found = np.random.default_rng(seed), random_batch(ARM, rows, seed=seed)
    for observations in (found.observations, found.next_observations):
        for name in ("camera_front", "camera_wrist"):
            observations[name][:] = random.integers(0, 256, observations[name].shape)
    return replace(found, **replaced)


# crops


def test_a_crop_is_a_part_of_the_picture_with_its_edges_repeated():
    picture = np.arange(12, dtype=np.uint8).reshape(1, 3, 4, 1)
    same, shifted = (cropped(picture, np.array([corner]), 2)[0, :, :, 0] for corner in ((2, 2), (0, 3)))
    np.testing.assert_array_equal(same, picture[0, :, :, 0])
    np.testing.assert_array_equal(shifted, [[1, 2, 3, 3], [1, 2, 3, 3], [1, 2, 3, 3]])


def shifts_of(picture, padding):
    """Returns every crop of one picture as bytes -> its corner."""
    count = 2 * padding + 1
    corners = [(row, column) for row in range(count) for column in range(count)]
    return {cropped(picture[None], np.array([corner]), padding)[0].tobytes(): corner for corner in corners}


def test_every_row_is_cropped_anew_for_observations_and_next_observations_and_alike_for_all_its_cameras():
    built = learner()
    front = batch(rows=1).observations["camera_front"][0]
    seen = {name: np.repeat(front[None], 40, 0) for name in ("camera_front", "camera_wrist")}
    data = batch(rows=40)
    data = replace(data, observations=data.observations | seen, next_observations=data.next_observations | seen)
    opened, known = built.parts.encoded(data), shifts_of(front, 2)
    corners = []
    for views in (opened.observations, opened.next_observations):
        rows = [[known[picture.tobytes()] for picture in views.pictures[name]] for name in seen]
        assert rows[0] == rows[1]
        corners.append(rows[0])
    assert corners[0] != corners[1]
    drawn = {number for rows in corners for corner in rows for number in corner}
    assert drawn == {0, 1, 2, 3, 4} and len({*corners[0]}) > 10
    np.testing.assert_array_equal(opened.observations.vectors, built.encoder.stack(data.observations))
    again = built.parts.encoded(data).observations.pictures["camera_front"]
    assert not np.array_equal(again, opened.observations.pictures["camera_front"])


def test_constant_pictures_and_those_without_padding_are_unchanged():
    constant = np.broadcast_to(np.uint8([[[[7, 8, 9]]]]), (5, 6, 8, 3))
    corners = np.random.default_rng(0).integers(0, 9, (5, 2))
    np.testing.assert_array_equal(cropped(constant, corners, 4), constant)
    data = batch()
    found = learner(crop_padding=0).parts.encoded(data).next_observations.pictures["camera_wrist"]
    np.testing.assert_array_equal(found, data.next_observations["camera_wrist"])


def test_what_acts_sees_the_whole_picture():
    built, data = learner(crop_padding=2), batch()
    observation = {name: values[3] for name, values in data.observations.items()}
    encoded = built.policy.encoded(observation).numpy().copy()
    whole = learner(crop_padding=0).parts.encoded(data).observations
    np.testing.assert_allclose(encoded, built.eyes.look(whole[3:4]), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(encoded, built.policy.encoded(observation).numpy())


# whose loss trains what sees


def features_by_hand(vector, views):
    """Returns (B, 2 * FEATURES) with torch alone, from a vector of parameters that may ask for a gradient."""
    taken, parts = 0, []

    def take(*shape):
        nonlocal taken
        part = vector[taken : taken + int(np.prod(shape))].view(shape)
        taken += part.numel()
        return part

    for picture in views.pictures.values():
        x = torch.from_numpy(picture).permute(0, 3, 1, 2).float() / 255
        for before, after in ((3, 4), (4, 5)):
            x = relu(conv2d(x, take(after, before, 3, 3), take(after), stride=2, padding=1))
        x = linear(x.flatten(1), take(FEATURES, x[0].numel()), take(FEATURES))
        parts.append(torch.tanh(layer_norm(x, (FEATURES,))))
    assert taken == len(vector)
    return torch.cat(parts, 1)


def values_by_hand(network, inputs):
    """Returns (N, B, outputs) of perceptrons with one hidden layer."""
    first, last = network.layers
    hidden = inputs @ first.weight + first.bias
    if first.scale is not None:
        hidden = layer_norm(hidden, hidden.shape[-1:]) * first.scale + first.shift
    return relu(hidden) @ last.weight + last.bias


def test_the_gradient_of_the_critics_loss_is_that_of_automatic_differentiation():
    built = learner()
    data = built.parts.encoded(batch())
    targets, eyes = np.random.default_rng(1).normal(size=8).astype(np.float32), built.eyes
    values = built.critic.values(eyes.forward(data.observations), data.actions, keep=True)
    _, by_values = built.critic_loss(values, targets, data.weights)
    eyes.backward(built.critic.feature_gradient(by_values, eyes.features))

    vector = eyes.vector.clone().requires_grad_()
    features = features_by_hand(vector, data.observations)
    inputs = torch.cat((features, torch.from_numpy(data.observations.vectors), torch.from_numpy(data.actions)), 1)
    q = values_by_hand(built.critic.network, inputs)[:, :, 0]
    np.testing.assert_allclose(values, q.detach().numpy(), rtol=1e-4, atol=1e-5)
    (expected,) = torch.autograd.grad(((q - torch.from_numpy(targets)) ** 2).mean(), vector)
    assert float(expected.abs().max()) > 1e-3
    np.testing.assert_allclose(torch.cat([*eyes.gradients]).numpy(), expected.numpy(), rtol=1e-3, atol=1e-6)


def test_the_critics_train_what_sees_and_the_actor_does_not(monkeypatch):
    built, seen = learner(), {}
    descend = built.parts.descend

    def noted(name, loss):
        before = built.eyes.vector.clone(), built.actor.network.vector.clone()
        descend(name, loss)
        seen[name] = [
            not torch.equal(*pair) for pair in zip(before, (built.eyes.vector, built.actor.network.vector), strict=True)
        ]

    monkeypatch.setattr(built.parts, "descend", noted)
    built.update(batch())
    assert seen == {"critic": [True, False], "actor": [False, True], "temperature": [False, False]}


def test_the_actor_learns_from_what_its_eyes_see_after_the_critics_steps(monkeypatch):
    built, seen = learner(updates_per_step=2, crop_padding=0), []
    actor_loss = built.actor_loss
    monkeypatch.setattr(built, "actor_loss", lambda inputs, *rest: seen.append(inputs.copy()) or actor_loss(inputs, *rest))
    data = batch(rows=16)
    built.update(data)
    last = built.parts.encoded(data).observations[8:]
    np.testing.assert_array_equal(seen, [built.eyes.look(last)])


def test_the_target_tracks_and_gives_the_target_critics_their_features():
    built = learner()
    old = built.eyes._target_vector.clone()
    assert torch.equal(old, built.eyes.vector)
    built.update(batch())
    expected = 0.75 * old + 0.25 * built.eyes.vector
    assert not torch.equal(old, built.eyes._target_vector)
    np.testing.assert_allclose(built.eyes._target_vector.numpy(), expected.numpy(), rtol=1e-5, atol=1e-7)

    built.eyes._target_vector.mul_(0.5)
    data, generator = built.parts.encoded(batch(1)), torch.Generator()
    generator.set_state(built.parts.generator.get_state())
    features, as_target = (features_by_hand(v, data.next_observations) for v in (built.eyes.vector, built.eyes._target_vector))
    vectors = torch.from_numpy(data.next_observations.vectors)
    actions, _ = built.actor.sample(torch.cat((features, vectors), 1).numpy(), generator)
    subset = torch.randperm(3, generator=generator)[:2]
    inputs = torch.cat((as_target, vectors, torch.from_numpy(actions)), 1)
    following = values_by_hand(built.target_critic.network, inputs)[subset, :, 0].min(0).values.numpy()
    targets = data.rewards + data.discounts * data.masks * following
    np.testing.assert_allclose(built.critic_target(data, 0.1), targets, rtol=1e-4, atol=1e-5)


def test_the_grippers_critic_trains_what_sees_with_moments_of_its_own():
    built = GRIPPER.build(ARM, 0)
    assert isinstance(built, HILSERL)
    data = built.arm.parts.encoded(batch())
    choices, before = np.array([0, 1] * 4), built.arm.eyes.vector.clone()
    targets = torch.from_numpy(built.critic.targets(data, np.zeros(8, np.float32)))
    vector = before.clone().requires_grad_()
    features = features_by_hand(vector, data.observations)
    inputs = torch.cat((features, torch.from_numpy(data.observations.vectors)), 1)
    q = values_by_hand(built.critic.network, inputs)[0, torch.arange(8), torch.from_numpy(choices)]
    (expected,) = torch.autograd.grad(((q - targets) ** 2).mean(), vector)
    built.critic.update(data, choices, np.zeros(8, np.float32), 0)
    np.testing.assert_allclose(torch.cat([*built.arm.eyes.gradients]).numpy(), expected.numpy(), rtol=1e-3, atol=1e-6)
    assert not torch.equal(before, built.arm.eyes.vector)
    own, arms = built.critic._optimizer.state_dict(), built.arm.parts._optimizers["critic"].state_dict()
    assert own["step"] == 1 and own["1"]["mean"].any() and arms["step"] == 0 and not arms["1"]["mean"].any()


# frozen layers


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    shapes = {"0.weight": (4, 3, 3, 3), "0.bias": (4,), "1.weight": (5, 4, 3, 3), "1.bias": (5,)}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_frozen_convolutions_stay_and_what_follows_them_is_learnt(tmp_path):
    path = str(tmp_path / "weights.safetensors")
    save_file(weights(), path)
    built = learner(frozen_convolutions=path)
    values = built.eyes.look(built.parts.encoded(batch()).observations)
    given = np.concatenate([value.ravel() for value in weights().values()])
    before, half = built.eyes.vector.clone(), len(built.eyes.vector) // 2
    for start in (0, half):
        np.testing.assert_array_equal(before[start : start + len(given)].numpy(), given)
    for seed in range(2):
        built.update(batch(seed))
    for vector in (built.eyes.vector, built.eyes._target_vector):
        changed = (vector != before).numpy()
        for start in (0, half):
            assert not changed[start : start + len(given)].any() and changed[start + len(given) : start + half].mean() > 0.9
    again = learner(frozen_convolutions=path, lr=1e-2)
    again.load_state_dict(built.state_dict())
    assert torch.equal(again.eyes.vector, built.eyes.vector)
    assert not np.array_equal(values, again.eyes.look(again.parts.encoded(batch()).observations))


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
        learner(frozen_convolutions=str(path))


def test_a_file_that_holds_no_weights_is_refused(tmp_path):
    (tmp_path / "weights").write_bytes(b"no weights")
    with pytest.raises(InvalidSetting, match=r"weights of frozen convolutions(.*\n)*.*got:     .*[Hh]eader"):
        learner(frozen_convolutions=str(tmp_path / "weights"))


# what is refused, and what stays as it is


def test_convolutions_without_pictures_are_refused():
    with pytest.raises(
        InvalidSetting, match=r"convolutions is set, and 'blind' has no image entry(.*\n)*.*leave convolutions out"
    ):
        SMALL.build(BLIND, 0)


def test_pictures_that_are_too_small_are_refused():
    with pytest.raises(InvalidSetting, match=r"'camera_front' is too small for 4 conv(.*\n)*.*6 x 8 pixels(.*\n)*.*9 pixels"):
        learner(convolutions=(4, 4, 4, 4))


@pytest.mark.parametrize(
    "change", [{"crop_padding": -1}, {"convolutions": (4, 0)}, {"frozen_convolutions": "a.safetensors", "convolutions": ()}]
)
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(InvalidSetting, match=next(iter(change))):
        replace(SMALL, **change)


@pytest.mark.parametrize(
    "config", [RLPDConfig(hidden=(8,), batch_size=8, updates_per_step=1), replace(GRIPPER, convolutions=())]
)
def test_without_convolutions_pictures_change_nothing(config, leaves):
    states = []
    for spec, seed in ((ARM, 0), (ARM, 1), (BLIND, 0)):
        built, data = config.build(spec, 0), batch()
        for name in ("camera_front", "camera_wrist"):
            data.observations[name][:] = seed
        built.update(data)
        states.append(leaves(built.state_dict()))
    assert states[0] == states[1] == states[2] and not any("eyes" in name for name in states[0])


# learning

BAR = EnvironmentSpec(
    "bar",
    ObservationSpec((ArraySpec("constant", (1,)), ArraySpec("camera", (16, 16, 3), "uint8", 0, 255, role="image"))),
    ActionSpec(("x",), (-1.0,), (1.0,), ("1",)),
)


def bars(places, *, shown: bool):
    """Returns observations of bars two pixels wide at places in [-1, 1], or of none."""
    pictures = np.zeros((len(places), 16, 16, 3), np.uint8)
    for picture, place in zip(pictures, places, strict=True):
        left = round(7 + 6 * float(place))
        picture[:, left : left + 2] = 255 * shown
    return {"constant": np.ones((len(places), 1), np.float32), "camera": pictures}


def error_after(updates: int, *, shown: bool) -> float:
    """Returns how far the policy, told to go to the bar, stays from it in the mean after so many updates."""
    config = RLPDConfig(
        hidden=(32,), critics=2, updates_per_step=1, batch_size=32, lr=3e-3, tau=0.05, initial_temperature=0.02,
        target_entropy_per_action=-1.5, convolutions=(8, 8), crop_padding=1,
    )  # fmt: skip
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
                is_human=np.zeros(32, np.bool_),
            )
        )
    places = np.linspace(-0.9, 0.9, 19, dtype=np.float32)
    seen = bars(places, shown=shown)
    rows = [{name: values[row] for name, values in seen.items()} for row in range(len(places))]
    actions = [float(built.policy.act(row, deterministic=True)[0]) for row in rows]
    return float(np.abs(np.array(actions) - places).mean())


@pytest.mark.slow
def test_what_only_the_picture_tells_is_learnt_from_it_and_not_without():
    with_picture, without = error_after(300, shown=True), error_after(100, shown=False)
    assert with_picture < 0.25 and without > 0.35, (with_picture, without)
