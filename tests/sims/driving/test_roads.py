"""Routes, pictures and what is read of a frame, without a client."""

import math

import numpy as np
import pytest

from robo_rl.errors import InvalidSetting
from robo_sims.carla.birdseye import CHANNELS, SHADES, BirdsEye, coloured
from robo_sims.carla.boxes import any_overlap
from robo_sims.carla.observations import FAR, vectors
from robo_sims.carla.rewards import Situation
from robo_sims.carla.roads import LaneOfMap, Roads
from robo_sims.carla.routes import CLEAR, Route, RoutePosition, Tracker, draw_route, resample, set_of
from robo_sims.carla.scene import GREEN, RED, YELLOW, Ego, Scene
from robo_sims.carla.scoring import measure
from robo_sims.carla.termination import BLOCKED, StopSigns, Termination

NOBODY = np.zeros((0, 8))


def lane(points, successors=(), junction=0.0):
    rows = np.zeros((len(points), 6))
    rows[:, :2] = points
    steps = np.gradient(rows[:, :2], axis=0)
    rows[:, 3], rows[:, 4], rows[:, 5] = np.arctan2(steps[:, 1], steps[:, 0]), 3.5, junction
    return LaneOfMap(rows, successors, (False, True), (True, True))


def straight(start, length, heading=0.0):
    s = np.arange(length + 1.0)
    return np.stack([start[0] + s * math.cos(heading), start[1] + s * math.sin(heading)], axis=1)


@pytest.fixture(scope="module")
def roads():
    """A straight lane of 120 m, a junction of 10 m, and another 120 m; beside the first one a lane that ends."""
    lanes = [lane(straight((0, 0), 120), (1,)), lane(straight((120, 0), 10), (2,), 1.0)]
    return Roads([*lanes, lane(straight((130, 0), 120)), lane(straight((0, 3.5), 60))])


def ego(x=0.0, y=0.0, yaw=0.0, speed=5.0):
    return Ego(x, y, yaw, speed * math.cos(yaw), speed * math.sin(yaw), 1.0, 0.0, 0.2, 10.0)


def test_no_route_is_in_both_sets_and_each_follows_its_lanes(roads):
    starts = {}
    for which in ("train", "test"):
        random = np.random.default_rng(0)
        for _ in range(60):
            route = draw_route(roads, random, which, 100.0)
            assert route.length == 100.0 and not route.points[: int(CLEAR), 5].any()
            assert np.hypot(*np.diff(route.points[:, :2], axis=0).T) == pytest.approx(1.0)
            assert (route.points[:, 1] == 0.0).all()  # the lane beside ends before
            starts.setdefault(which, set()).add(float(route.points[0, 0]))
    assert starts["train"] and starts["test"] and not starts["train"] & starts["test"]
    share = np.mean([set_of(number, start) == "test" for number in range(20) for start in range(200)])
    assert share == pytest.approx(0.2, abs=0.05)


def test_route_has_requested_length_with_dense_bends():
    pieces = [np.stack([16.0 * number + 0.8 * np.arange(21.0), np.zeros(21)], axis=1) for number in range(30)]
    roads = Roads([lane(piece, (number + 1,) if number < 29 else ()) for number, piece in enumerate(pieces)])
    for seed in range(20):
        route = draw_route(roads, np.random.default_rng(seed), "train", 100.0)
        assert np.hypot(*np.diff(route.points[:, :2], axis=0).T) == pytest.approx(1.0), "its end can be reached"


def test_a_map_without_so_long_a_route_says_so(roads):
    with pytest.raises(InvalidSetting, match="no route of this length"):
        draw_route(roads, np.random.default_rng(0), "train", 400.0)


def test_resampling_keeps_distance_at_lane_ends_and_wraps():
    angles = np.linspace(0.9 * math.pi, 1.1 * math.pi, 40)
    points = np.stack([30 * np.cos(angles), 30 * np.sin(angles)], axis=1)
    rows = lane(np.concatenate([points[:20], points[20:21] * 0.999 + 0.001 * points[19], points[21:]])).points
    rows[:, 3] = np.arctan2(np.sin(angles + math.pi / 2), np.cos(angles + math.pi / 2))  # jumps from pi to -pi
    even = resample(rows, 15.0)
    assert np.hypot(*np.diff(even[:, :2], axis=0).T) == pytest.approx(1.0, abs=2e-3)
    assert np.diff(even[:, 3]) == pytest.approx(1 / 30, abs=2e-3)


def test_progress_is_farthest_point_also_on_crossing_route():
    there, back = straight((0, 0), 60), straight((60, 1), 60, math.pi)
    tracker = Tracker(Route(lane(np.concatenate([there, back])).points))
    for x in np.arange(0.0, 40.0):
        place = tracker.at(x, 0.4)
    assert (place.s, place.offset) == (pytest.approx(39.0), pytest.approx(0.4))
    assert tracker.farthest == pytest.approx(39.0)
    for x in np.arange(39.0, 20.0, -1.0):
        tracker.at(x, 0.6)  # nearer to the way back than to this one
    assert tracker.farthest == pytest.approx(39.0) and tracker.completion == pytest.approx(39 / 121)


def test_a_route_goes_straight_on_behind_its_end():
    route = Route(lane(straight((0, 0), 30)).points)
    assert route.ahead(25.0, np.array([2.5, 10.0])) == pytest.approx(np.array([[27.5, 0.0], [35.0, 0.0]]))


def test_the_picture_shows_each_thing_where_it_is(roads):
    route = Route(roads.lanes[0].points)
    others = np.array([[30.0, 0.0, 0.0, 0, 0, 2.0, 1.0, 0.0], [14.0, -8.0, 0.0, 0, 0, 0.3, 0.3, 1.0]])
    scene = Scene(0, ego(x=20.0), others, [(35.0, RED)])
    picture = BirdsEye(roads, route, 64).draw(scene, 20.0, 20)
    assert picture.shape == (64, 64, len(CHANNELS)) and picture.flags.owndata
    road, line, way, vehicle, walker, light = np.moveaxis(picture, 2, 0)
    row, column = 48, 32  # the car's middle
    assert road[row, column] and road[row, column + 6] and not road[row, column + 20] and not road[row, column - 5]
    assert way[row - 10, column] and not way[row - 10, column + 6]
    assert vehicle[row - 20, column] and not vehicle[row - 20, column + 4] and not vehicle[row, column]
    assert walker[row + 12, column - 16] and walker.sum() < 10 * 255  # 6 m behind, 8 m to the left
    assert light[row - 30, column] == SHADES[RED] and not light[row - 20].any()
    assert line[row, column - 4 : column - 2].any() or line[row, column + 2 : column + 5].any()
    assert coloured(picture, (2.4, 1.0), 2.0)[row, column].tolist() == [230, 60, 60]


def test_the_picture_turns_with_the_car(roads):
    route = Route(roads.lanes[0].points)
    others = np.array([[20.0, 10.0, 0.0, 0, 0, 1.0, 1.0, 0.0]])
    picture = BirdsEye(roads, route, 64).draw(Scene(0, ego(x=20.0, yaw=math.pi / 2), others), 20.0, 20)
    assert picture[48 - 20, 32, 3] and picture[48, 32 - 20, 2]  # 10 m ahead; the route's way on is to the left


def test_vectors_are_in_the_cars_frame(roads):
    route = Route(roads.lanes[0].points)
    me = ego(x=10.0, y=1.0, yaw=math.pi / 2)
    others = np.array([[10.0, 21.0, math.pi, -2.0, 0.0, 2.0, 1.0, 0.0], [11.0, 1.0, 0.0, 0, 0, 0.3, 0.3, 1.0]])
    scene = Scene(0, me, others, [(4.0, GREEN), (60.0, YELLOW)])
    situation = Situation(scene, RoutePosition(10.0, 1.0, 0.0, 3.5, False), 0.1, None)
    seen = vectors(situation, route, np.array([0.5, -0.25]))
    assert seen["velocity"] == pytest.approx([5.0, 0.0], abs=1e-6) and seen["acceleration"] == pytest.approx(
        [0.0, -1.0], abs=1e-6
    )
    assert seen["route"][0] == pytest.approx([-1.0, -2.0])  # the route goes to the left
    assert seen["next_light"] == pytest.approx([50.0, 0.0, 1.0, 0.0])
    assert seen["others"][0] == pytest.approx([1, 0, -1, 0, -1, -5, 0, 0.3], abs=1e-6)
    assert seen["others"][1] == pytest.approx([1, 20, 0, 0, 1, -5, 2, 2.0], abs=1e-6)
    assert not seen["others"][2:].any()
    alone = vectors(Situation(Scene(0, me, NOBODY), situation.place, 0.1, None), route, np.zeros(2))
    assert alone["next_light"].tolist() == [FAR, 0, 0, 0] and not alone["others"].any()


def test_an_episode_ends_for_the_first_of_its_reasons(roads):
    def reason(s, *, lights=(), x=10.0, y=0.0, offset=0.0, done=0.0, hit=None, before=0.0):
        judge = Termination(roads, 0.1, before=before)
        return judge.reason(Scene(0, ego(x, y), NOBODY, list(lights)), RoutePosition(s, offset, 0.0, 3.5, False), done, hit)

    assert reason(10.0) is None and reason(10.0, done=1.0) == "goal"
    assert reason(10.4, before=10.0, lights=[(10.2, RED)]) == "red_light"
    assert reason(10.4, before=10.0, lights=[(10.2, GREEN), (10.4, RED)]) is None
    assert reason(10.0, before=10.4, lights=[(10.2, RED)]) is None  # backwards
    assert reason(10.0, y=-4.0) == "off_road" and reason(10.0, offset=9.0) == "route_deviation"
    assert reason(10.0, y=-4.0, hit="vehicle.audi.a2", done=1.0) == "collision_vehicle"
    assert reason(10.0, hit="walker.pedestrian.0001") == "collision_walker"
    assert reason(10.0, hit="static.building") == "collision_static"
    judge, standing = Termination(roads, 0.1), Scene(0, ego(10.0, speed=0.0), NOBODY)
    found = [judge.reason(standing, RoutePosition(10.0, 0.0, 0.0, 3.5, False), 0.0, None) for _ in range(round(BLOCKED / 0.1))]
    assert found[:-1] == [None] * (len(found) - 1) and found[-1] == "blocked"


def two_way(length=300):
    """A road of 300 m with a lane each way, after it a junction of 10 m with one lane."""
    there, back = straight((0, 0), length), straight((length, -3.5), length, math.pi)
    return Roads([lane(there), lane(back), lane(straight((length, 0), 10), junction=1.0)])


@pytest.mark.parametrize(
    ("x", "y", "heading", "oncoming"),
    [
        (50.0, 0.0, 0.0, False),
        (50.0, -3.4, 0.0, True),
        (50.0, -3.4, math.pi, False),
        (50.0, 0.0, math.pi, True),
        (50.0, -9.0, 0.0, False),  # beside the road
        (306.0, 0.0, math.pi, False),  # lanes of junctions cross
    ],
)
def test_roads_tell_lanes_of_oncoming_traffic(x, y, heading, oncoming):
    assert two_way().is_oncoming(x, y, heading) is oncoming


def judged(offsets, length, roads=None):
    """Return the judge and the reasons of a drive at 5 m/s, with an offset [m] from the route a tenth of a second."""
    judge, found = Termination(roads or two_way(), 0.1), []
    for number, offset in enumerate(offsets):
        s = 0.5 * number
        place = RoutePosition(s, offset, 0.0, 3.5, False)
        found.append(judge.reason(Scene(0, ego(s, offset), NOBODY), place, min(s / length, 1.0), None))
    return judge, found


def test_judge_ends_a_drive_in_the_oncoming_lane():
    judge, found = judged([-3.4] * 120, 200)
    assert found.index("oncoming_lane") == 100 and judge.oncoming_share == 1.0  # after 50 m
    _, found = judged([-3.4] * 61, 30)
    assert found[-1] == "oncoming_lane" and set(found[:-1]) == {None}  # a route shorter than that reaches no goal
    weaves = [0.0 if number % 10 == 0 else -3.4 for number in range(120)]
    assert "oncoming_lane" in judged(weaves, 200)[1]


def test_judge_lets_a_car_pass_another_in_the_oncoming_lane():
    judge, found = judged([0.0] * 100 + [-3.4] * 60 + [0.0] * 241, 200)
    assert found[-1] == "goal" and set(found[:-1]) == {None}
    assert judge.oncoming_share == pytest.approx(60 / 401)


def test_score_falls_by_the_share_in_the_oncoming_lane():
    clean, aside = measure(1.0, 200.0, "goal", 0.0), measure(1.0, 200.0, "goal", 0.15)
    assert clean["driving_score"] == 100.0 and aside["driving_score"] == pytest.approx(85.0)
    assert aside["oncoming_share"] == pytest.approx(15.0) and aside["route_completion"] == 100.0
    hit = measure(0.5, 100.0, "collision_vehicle", 0.5)
    assert hit["driving_score"] == pytest.approx(100 * 0.5 * 0.6 * 0.5)


def test_score_falls_by_each_stop_sign_passed():
    two = measure(1.0, 500.0, "goal", 0.0, 2)
    assert two["driving_score"] == pytest.approx(100 * 0.8 * 0.8) and two["stop_sign"] == 2.0
    assert measure(1.0, 500.0, "goal", 0.0)["stop_sign"] == 0.0


def missed(places, lines=(50.0, 90.0)):
    """Return how many of the signs at `lines` were passed without a stop; places: (m along the route, m/s) of each step."""
    signs, before = StopSigns(list(lines)), 0.0
    for s, speed in places:
        signs.note(before, s, speed)
        before = s
    return signs.missed


def test_stop_sign_asks_for_a_stop_before_its_line():
    through = [(s, 5.0) for s in np.arange(0.0, 100.0, 0.5)]
    assert missed(through) == 2
    assert missed([(45.0, 0.05) if s == 45.0 else (s, v) for s, v in through]) == 1
    assert missed([(s, 0.05 if s in (45.0, 89.5) else v) for s, v in through]) == 0
    assert missed([(s, 0.05 if s in (30.0, 51.0) else v) for s, v in through]) == 2, "too early, and behind the line"
    assert missed([(45.0, 0.0), (51.0, 5.0), (49.0, 5.0), (51.0, 5.0)], [50.0]) == 1, "a second time without a stop"
    assert missed(through, []) == 0 and missed([(s, v) for s, v in through if s < 49], [50.0]) == 0


@pytest.mark.parametrize(
    ("x", "y", "yaw", "touches"),
    [
        (3.9, 0.0, 0.0, True),
        (4.1, 0.0, 0.0, False),
        (0.0, 2.1, 0.0, False),
        (2.9, 0.0, math.pi / 2, True),
        (3.1, 3.1, math.pi / 4, False),
        (2.8, 2.8, math.pi / 4, True),
    ],
)
def test_boxes_overlap_where_no_axis_parts_them(x, y, yaw, touches):
    assert any_overlap((0.0, 0.0, 0.0, 2.0, 1.0), np.array([[x, y, yaw, 0, 0, 2.0, 1.0, 0.0]])) is touches
