"""Cameras: light pictures show what the heavy ones show, one context serves many, and observations may hold pictures."""

import functools

import gymnasium
import mujoco
import numpy as np
import pytest

from factories import rest_slow
from robo_rl.conformance.environments import ENVIRONMENT_CHECKS
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.spec.environment import specification
from robo_sims import cameras
from robo_sims.cameras import DETAILS, PLAIN, PRETTY, SENSOR, Cameras, Detail, camera_names, free_camera, upright
from robo_sims.simulation import PICTURE_SIZE

SIZE = 84
SCENE = """<mujoco><asset><material name="mirror" reflectance="0.8"/></asset><worldbody>
  <light pos="0 0 3"/>
  <camera name="Above the-Ball" pos="0 -3 1" xyaxes="1 0 0 0 0.3 1"/> <camera pos="0 -3 1" xyaxes="-1 0 0 0 -0.3 -1"/>
  <geom type="plane" size="5 5 5" material="mirror"/> <body pos="0 0 0.5"><freejoint/><geom size="0.3"/></body>
</worldbody></mujoco>"""


@pytest.fixture
def scene():
    model = mujoco.MjModel.from_xml_string(SCENE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return data


def drawn(data, camera, detail=SENSOR):
    drawing = Cameras(height=SIZE, width=SIZE, detail=detail)
    picture = drawing.picture(data, camera)
    drawing.close()
    return picture.astype(int)


@pytest.fixture(scope="module")
def cheetah():
    """Gymnasium's own task and renderer, in the middle of an episode."""
    environment = gymnasium.make(
        "HalfCheetah-v5", render_mode="rgb_array", width=SIZE, height=SIZE, camera_name="track"
    ).unwrapped
    environment.reset(seed=0)
    environment.action_space.seed(0)
    for _ in range(20):
        environment.step(environment.action_space.sample())
    yield environment
    environment.close()


@pytest.mark.slow
def test_light_picture_equals_gymnasium_without_shadows(cheetah):
    kept = cheetah.model.light_castshadow.copy(), cheetah.model.mat_reflectance.copy()
    cheetah.model.light_castshadow[:] = cheetah.model.mat_reflectance[:] = 0
    source, ours = cheetah.render().astype(int), drawn(cheetah.data, "track")
    cheetah.model.light_castshadow[:], cheetah.model.mat_reflectance[:] = kept
    differs = np.abs(source - ours).max(axis=2)
    assert (differs > 60).mean() < 0.04, "only edges, which the source smooths"
    assert differs.mean() < 5
    assert np.abs(source - ours[:, ::-1]).mean() > 4 * differs.mean(), "a wrong picture would be noticed"


@pytest.mark.slow
def test_a_light_picture_has_the_silhouette_that_mujoco_states(cheetah):
    with mujoco.Renderer(cheetah.model, SIZE, SIZE) as renderer:
        renderer.update_scene(cheetah.data, "track")
        renderer.enable_segmentation_rendering()
        shape = renderer.render()[..., 0]
    picture = drawn(cheetah.data, "track")
    hidden = cheetah.model.geom_rgba[1:, 3].copy()
    cheetah.model.geom_rgba[1:, 3] = 0  # everything but the floor
    without = drawn(cheetah.data, "track")
    cheetah.model.geom_rgba[1:, 3] = hidden
    changed = np.abs(picture - without).max(axis=2) > 5
    body = shape > 0
    assert body.sum() > 200
    assert (changed & body).sum() / (changed | body).sum() > 0.9


@pytest.mark.slow
def test_shadows_and_smooth_edges_are_optional(scene):
    plain, pretty = drawn(scene, 0, PLAIN), drawn(scene, 0, PRETTY)
    only = {"samples": 0, "slices": 28}
    mirrored, shaded = drawn(scene, 0, Detail(**only, reflections=True)), drawn(scene, 0, Detail(**only, shadows=1024))
    pictures = [plain, pretty, mirrored, shaded]
    assert all(np.abs(one - other).max() > 20 for index, one in enumerate(pictures) for other in pictures[:index])
    assert not {SENSOR.shadows, SENSOR.samples, SENSOR.reflections, PLAIN.shadows, PLAIN.samples, PLAIN.reflections} - {0}


def test_drawing_leaves_the_model_as_it_is(scene):
    quality = scene.model.vis.quality
    before = [quality.offsamples, quality.numslices, quality.shadowsize, scene.model.vis.global_.offwidth]
    drawn(scene, 0, PRETTY)
    assert [quality.offsamples, quality.numslices, quality.shadowsize, scene.model.vis.global_.offwidth] == before


def test_contexts_are_shared_by_what_looks_alike(scene):
    twin = mujoco.MjData(mujoco.MjModel.from_xml_string(SCENE))
    smaller = mujoco.MjData(mujoco.MjModel.from_xml_string(SCENE.replace("5 5 5", "2 2 2")))
    one, other, odd, fine = (Cameras(height=32, width=32, detail=d) for d in (SENSOR, SENSOR, SENSOR, PLAIN))
    pairs = [(one, scene), (other, twin), (odd, smaller), (fine, scene)]
    for drawing, data in pairs:
        mujoco.mj_forward(data.model, data)
        drawing.picture(data, 0)
    stages = [drawing._stage for drawing, _ in pairs]
    assert stages[0] is stages[1] and len(set(map(id, stages))) == 3
    del stages
    before = len(cameras._STAGES)
    for drawing, _ in pairs:
        drawing.close()
    assert len(cameras._STAGES) == before - 3


def test_closing_one_of_two_leaves_the_other_a_context(scene):
    one, other = (Cameras(height=32, width=32) for _ in range(2))
    expected = one.picture(scene, 0)
    other.picture(scene, 0)
    one.close()
    np.testing.assert_array_equal(other.picture(scene, 0), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["robo/ArmPick-v0", "gymnasium/HalfCheetah-v5", "dm_control/cheetah-run"])
def test_a_batch_from_one_context_equals_single_environments(name):
    camera = {"robo/ArmPick-v0": "front", "gymnasium/HalfCheetah-v5": "track", "dm_control/cheetah-run": "side"}[name]
    environments = [make_environment(name, cameras=(camera,), image_size=48) for _ in range(3)]
    expected = []
    for seed, environment in enumerate(environments):
        environment.reset(seed=seed)
        environment.action_space.seed(seed)
        for _ in range(5):
            observation, *_ = environment.step(environment.action_space.sample())
        expected.append(observation[f"camera_{camera}"])
    datas = [getattr(env.unwrapped, "physics", env.unwrapped).data for env in environments]
    batch, out = Cameras(height=48, width=48), np.zeros((3, 48, 48, 3), np.uint8)
    assert batch.draw(datas, camera, out) is out
    np.testing.assert_array_equal(out, np.stack(expected))
    np.testing.assert_array_equal(batch.draw(datas[::-1], camera), out[::-1])
    assert not np.array_equal(out[0], out[1])
    shared = {id(batch._stage), *(id(environment.unwrapped._cameras._cameras._stage) for environment in environments)}
    assert len(shared) == 1


@pytest.mark.slow
def test_new_terrain_is_drawn():
    environment = make_environment("dm_control/quadruped-escape", cameras=("global",), image_size=48)
    first, again = (environment.reset(seed=seed)[0]["camera_global"] for seed in (0, 0))
    np.testing.assert_array_equal(first, again)
    drawing = Cameras(height=48, width=48)
    drawing.picture(environment.unwrapped.data, "x")
    before = drawing.picture(environment.unwrapped.data, "global")
    environment.unwrapped.model.hfield_data[:] = 0
    assert not np.array_equal(before, drawing.picture(environment.unwrapped.data, "global"))
    environment.close()


PICTURED = {
    "gymnasium/HalfCheetah-v5": "track",
    "dm_control/cheetah-run": "side",
    "dm_control/manipulation-reach_site_features": "front_close",
    "metaworld/reach-v3": "behindGripper",
    "gymnasium_robotics/FetchReach-v4": "external_camera_0",
    "gymnasium_robotics/FrankaKitchen-v1": "left_cap",
}


@pytest.mark.parametrize(("name", "camera"), PICTURED.items())
@pytest.mark.slow
def test_every_mujoco_family_observes_pictures(name, camera):
    make = functools.partial(make_environment, name)
    plain, pictured = make(), make(cameras=(camera,), image_size=24)
    key = "camera_behindgripper" if camera == "behindGripper" else f"camera_{camera}"
    array = specification(pictured).observation[key]
    assert (array.shape, array.dtype, array.role) == ((24, 24, 3), "uint8", "image")
    assert list(specification(pictured).observation) == [*specification(plain).observation, key]
    observation, _ = pictured.reset(seed=0)
    expected, _ = plain.reset(seed=0)
    plain.action_space.seed(0)
    for _ in range(3):
        specification(pictured).observation.validate(observation)
        assert observation[key].std() > 3, "the picture is one colour"
        assert all(np.array_equal(observation[entry], expected[entry]) for entry in expected), "looking changes nothing"
        action = plain.action_space.sample()
        observation, expected = pictured.step(action)[0], plain.step(action)[0]
    pictured.close()
    plain.close()


@pytest.mark.parametrize("check", rest_slow(ENVIRONMENT_CHECKS, fast=4), ids=lambda check: check.__name__)
def test_pictures_break_no_promise(check):
    check(lambda: make_environment("gymnasium/HalfCheetah-v5", cameras=("track",), image_size=16))


def test_a_camera_that_does_not_exist_lists_those_that_do():
    with pytest.raises(UnknownName, match=r"Unknown camera 'trak'.\n(.|\n)*allowed: track\n(.|\n)*did you mean 'track'"):
        make_environment("gymnasium/HalfCheetah-v5", cameras=("trak",))
    with pytest.raises(UnknownName, match=r"Unknown camera 'track'.\n(.|\n)*allowed: \(none\)"):
        make_environment("gymnasium/Reacher-v5", cameras=("track",))
    with pytest.raises(UnknownName, match=r"Unknown argument of minigrid/MiniGrid-Empty-5x5-v0 'cameras'"):
        make_environment("minigrid/MiniGrid-Empty-5x5-v0", cameras=("track",))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"cameras": "track"}, "cameras must be a list.\n  got:     'track'\n  allowed: list of names from \\('track',\\)"),
        ({"cameras": ("track",), "image_size": 4}, "image_size is out of range.\n  got:     4\n  allowed: integer 8 to 960"),
    ],
)
def test_wrong_camera_settings(arguments, words):
    with pytest.raises(InvalidSetting, match=words):
        make_environment("gymnasium/HalfCheetah-v5", **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gymnasium/Hopper-v5", "dm_control/cheetah-run", "metaworld/reach-v3", "robo/ArmReach-v0"])
def test_detail_is_a_name_and_changes_pictures_for_people(name):
    pictures = []
    for detail in ("plain", "pretty"):
        environment = make_environment(name, render_mode="rgb_array", detail=detail)
        environment.reset(seed=0)
        pictures.append(environment.render().astype(int))
        environment.close()
    assert np.abs(pictures[0] - pictures[1]).mean() > 0.5
    with pytest.raises(UnknownName, match=r"Unknown detail of pictures 'prety'(.|\n)*plain, pretty, sensor"):
        make_environment(name, detail="prety")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["Reacher-v5", "InvertedPendulum-v5", "Pusher-v5", "Humanoid-v5"])
def test_pictures_are_taken_from_where_gymnasium_takes_them(task):
    ours = make_environment(f"gymnasium/{task}", render_mode="rgb_array")
    source = gymnasium.make(task, render_mode="rgb_array", width=PICTURE_SIZE, height=PICTURE_SIZE)
    for environment in (ours, source):
        environment.reset(seed=1)
    source.unwrapped.model.light_castshadow[:] = source.unwrapped.model.mat_reflectance[:] = 0
    mine, its = ours.render().astype(int), source.render().astype(int)
    assert np.abs(mine - its).mean() < 2
    assert (np.abs(mine - its).max(axis=2) > 60).mean() < 0.02
    ours.close()
    source.close()


def test_unnamed_cameras_have_numbers_and_keys_are_snake_case(scene):
    assert camera_names(scene.model) == ("Above the-Ball", "1")
    observed = cameras.CameraObservations(scene.model, ["Above the-Ball", "1"], 16)
    assert [array.name for array in observed.arrays] == ["camera_above_the_ball", "camera_1"]
    pictures = observed.observe(scene)
    np.testing.assert_array_equal(*pictures.values())  # the second hangs head down and is turned


def test_only_cameras_of_the_world_are_turned(scene):
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    np.testing.assert_array_equal(upright(picture, scene, 1), picture[::-1, ::-1])
    assert upright(picture, scene, 0) is picture
    scene.model.cam_bodyid[1] = 1
    assert upright(picture, scene, 1) is picture


def test_the_free_camera_takes_settings(scene):
    camera = free_camera(scene, {"distance": 7.0, "lookat": np.array([1.0, 2.0, 3.0])})
    assert (camera.distance, camera.lookat.tolist()) == (7.0, [1, 2, 3])
    assert free_camera(scene, {}).distance == scene.model.stat.extent
    assert set(DETAILS) == {"sensor", "plain", "pretty"}
