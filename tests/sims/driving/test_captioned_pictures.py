"""Captioned pictures from above: what is said of them, and what a model tells."""

import math

import numpy as np
import pytest

from robo_sims.carla.boxes import FINE, LOOK, gap, way_to
from robo_sims.carla.captioned_pictures import _places
from robo_sims.carla.scene import Ego

HIT, FREE = "the car is about to hit somebody in its way", "the way of the car is free"
UNDESIRED, DESIRED = "two cars have collided with each other on the road", "the road is clear with no car accidents"


def test_gap_is_bumper_distance_and_zero_on_overlap():
    ego = Ego(10.0, 5.0, math.pi / 2, 0, 0, 0, 0, 0, 10.0)
    car = np.array([10.0, 5.0 + 2.45 + 2.3 + 3.0, math.pi / 2, 0, 0, 2.3, 1.0, 0.0])
    assert gap(ego, car) == pytest.approx(3.0)
    assert gap(ego, np.array([10.2, 6.0, 0.0, 0, 0, 2.3, 1.0, 0.0])) == pytest.approx(0.0, abs=0.3)
    assert gap(ego, np.array([10.0, 5.0, 0.0, 0, 0, 0.25, 0.25, 1.0])) == 0.0


def test_lead_vehicle_ignores_next_lane():
    line = np.stack([np.arange(0.0, LOOK, FINE), np.zeros(round(LOOK / FINE))], axis=1)
    car = [0.0, 0.0, 2.3, 1.0, 0.0]
    assert way_to(line, np.array([12.0, 0.0, 0.0, *car])) == pytest.approx(12.0 - 2.3, abs=FINE)
    assert way_to(line, np.array([12.0, 1.5, 0.0, *car])) < 12.0  # half in the lane
    assert way_to(line, np.array([12.0, -3.5, math.pi, *car])) == math.inf
    assert way_to(line, np.array([-8.0, 0.0, 0.0, *car])) == math.inf  # behind


def test_places_are_where_the_picture_shows_them():
    places = _places(np.array([[0.0, 0.0, 0.0], [24.0, 16.0, 0.0], [-8.0, -16.0, 0.0]]), 64)
    assert places[:, :2] == pytest.approx(np.array([[0.0, 0.5], [1.0, -1.0], [-1.0, 1.0]]))


@pytest.mark.slow
def test_trained_model_separates_near_collision_from_clear(driven):
    result = driven(
        f"""
        import torch
        from robo_rl.rewards.embedded.descent import EmbeddedConfig
        from robo_rl.rewards.embedded.fitting import fit, halves
        from robo_rl.rewards.score_statistics import roc_area
        from robo_rl.rewards.embedded.model import EmbeddedModel
        torch.set_num_threads(1)
        data = FAMILY.captioned_pictures("Town-v0", camera="birdseye", size=64, count=3000, seed=0)
        config = EmbeddedConfig(see_steps=600, read_steps=800, check_every=200)
        model, _ = fit(data, config)
        held_out = halves(data, config.held_out)[1]
        near = held_out.truth[:, held_out.captions.index("somebody is very near to the car")]
        clear = held_out.truth[:, held_out.captions.index("{DESIRED}")]
        def area(model):
            contrast = model.embed_texts(["{UNDESIRED}", "{DESIRED}"])
            z = model.embed_described(model.describe(held_out.pictures)) @ (contrast[0] - contrast[1])
            return roc_area(z[near | clear], near[near | clear])
        result["learned"] = area(model)
        hit, free = (held_out.truth[:, held_out.captions.index(said)] for said in ("{HIT}", "{FREE}"))
        contrast = model.embed_texts(["{HIT}", "{FREE}"])
        z = model.embed_described(model.describe(held_out.pictures)) @ (contrast[0] - contrast[1])
        result["in the way"] = roc_area(z[hit | free], hit[hit | free])
        beside = hit | (free & near)  # somebody very near, who is not in the way
        result["beside"] = roc_area(z[beside], hit[beside])
        torch.manual_seed(0)
        result["by chance"] = [area(EmbeddedModel(model.origin)) for _ in range(5)]
        """,
        limit=600.0,
    )
    assert min(result["learned"], result["in the way"]) > 0.9 and result["beside"] > 0.8
    assert abs(np.mean(result["by chance"]) - 0.5) < 0.2 and max(result["by chance"]) < result["learned"]


@pytest.mark.slow
def test_captioned_pictures_repeat_by_seed_with_both_answers(driven):
    result = driven("""
        first, again = (FAMILY.captioned_pictures("Town-v0", camera="birdseye", size=32, count=60, seed=1) for _ in range(2))
        result["same"] = bool((first.pictures == again.pictures).all() and (first.truth == again.truth).all())
        result["share"] = first.truth.mean(0).tolist()
        environment = FAMILY.make("Town-v0", birdseye=0, birdseye_rgb=32)
        observation, _ = environment.reset(seed=0)
        result["shape"] = list(observation["camera_birdseye"].shape)
        result["own"] = observation["camera_birdseye"][24, 16].tolist()
        environment.close()
    """)
    assert result["same"] and min(result["share"]) > 0 and max(result["share"]) < 1
    assert result["shape"] == [32, 32, 3] and result["own"] == [230, 60, 60]
