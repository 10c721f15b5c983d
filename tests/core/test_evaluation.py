import json
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import av
import gymnasium
import numpy as np
import pytest

from factories import axes, make_spec
from robo_cli.train import evaluate as evaluate_command
from robo_rl.errors import EnvironmentFailed, InvalidSetting, RobotStopped, SpecMismatch
from robo_rl.evaluation.evaluation import FIRST_SEED, Evaluation, compare, evaluate, evaluation_seeds
from robo_rl.evaluation.measures import Measure
from robo_rl.evaluation.statistics import pass_at_k
from robo_rl.evaluation.video import HOLD, VideoRequest, read_frames, render_mode_for_films
from robo_rl.rollout.episode import RandomPolicy
from robo_rl.spec.environment import ArraySpec

SPEC = make_spec(
    "test/Coin",
    ArraySpec("side", (1,)),
    action=axes("push", unit="N", mode="joint_torque", control_period=0.05),
    max_steps=10,
    success_rule="the coin shows heads",
)


class Coin(gymnasium.Env):
    """Succeeds at its fourth step on even seeds; diverges on seeds that `broken` names; draws how far it got."""

    environment_spec = SPEC
    observation_space, action_space = SPEC.observation.space, SPEC.action.space

    def __init__(self, render_mode=None, broken=(), has_success=True):
        self.render_mode, self.broken, self.has_success = render_mode, broken, has_success
        self.drawn = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.count = seed, 0
        return {"side": np.zeros(1, np.float32)}, {}

    def step(self, action):
        self.count += 1
        info = {"success": self.seed % 2 == 0 and self.count == 4} if self.has_success else {}
        diverged = self.seed in self.broken and self.count == 2
        if diverged:
            info["stop_reason"] = "sim_diverged"
        goal = bool(info.get("success", False))
        return {"side": np.full(1, self.count, np.float32)}, 0.5, goal, diverged or self.count == 10, info

    def render(self):
        self.drawn += 1
        picture = np.zeros((33, 48, 3), np.uint8)
        picture[:, : 4 * self.count] = 255
        picture[:, 24:] = 25 * (self.seed % 10)  # right of the bars: a shade of grey for each seed
        return picture


def outcome(**arguments):
    return evaluate(RandomPolicy(SPEC, 0), Coin(**arguments), seeds=evaluation_seeds(10), training_seed=3)


def test_an_evaluation_holds_every_episode_and_its_intervals():
    evaluation = outcome()
    assert evaluation.seeds == tuple(range(FIRST_SEED, FIRST_SEED + 10))
    assert evaluation.successes == (True, False) * 5 and evaluation.lengths == (4, 10) * 5
    assert evaluation.returns == (2.0, 5.0) * 5 and evaluation.stop_reasons == ("goal", "time_limit") * 5
    assert f"{evaluation.success_rate:.3f}" == "0.500 [0.237, 0.763]"  # Wilson, 5 of 10
    assert evaluation.mean_return.estimate == 3.5 and evaluation.mean_return.low < 3.5 < evaluation.mean_return.high
    assert evaluation.metrics == {
        "eval/mean_reward": 3.5,
        "eval/iqm_reward": 3.5,
        "eval/mean_ep_length": 7.0,
        "eval/success_rate": 0.5,
    }


def test_an_evaluation_says_what_a_reader_must_know():
    text = str(outcome(broken=(FIRST_SEED + 1,)))
    assert "test/Coin: 10 episodes, seeds 1000000 to 1000009" in text
    assert "success  50.0% [23.7%, 76.3%]  5 of 10, Wilson 95%" in text
    assert "the coin shows heads; an episode is a success if the environment reported success at any of its steps" in text
    assert "one training seed (3): the interval covers evaluation episodes, not training" in text
    assert "DIVERGED 1 episode(s)" in text and "5 goal, 4 time_limit, 1 sim_diverged" in text


def test_without_a_notion_of_success_there_is_no_rate():
    evaluation = outcome(has_success=False)
    assert evaluation.success_rate is None and evaluation.successes == (None,) * 10
    assert "success" not in str(evaluation) and "eval/success_rate" not in evaluation.metrics


def test_an_evaluation_survives_json():
    evaluation = replace(outcome(), videos={FIRST_SEED: "a.mp4"}, notes=("a note",))
    data = json.loads(json.dumps(evaluation.to_json(), allow_nan=False))
    assert Evaluation.from_json(data) == evaluation
    assert data["summary"]["success_rate"]["estimate"] == 0.5


def test_one_episode_gives_json_without_nan():
    evaluation = evaluate(RandomPolicy(SPEC, 0), Coin(), seeds=[4])
    json.dumps(evaluation.to_json(), allow_nan=False)
    assert "[no interval]" in str(evaluation)


def test_a_policy_of_another_environment_is_refused():
    other = replace(SPEC, action=replace(SPEC.action, units=("Nm",), control_period=0.1))
    with pytest.raises(SpecMismatch) as error:
        evaluate(RandomPolicy(other, 0), Coin(), seeds=[0])
    assert "The policy was made for another environment than this test/Coin: 2 field(s) differ." in str(error.value)
    assert "action.control_period: 0.1 here, 0.05 there" in str(error.value)


class Failing(Coin):
    """Raises `error` at the second step of the third episode."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def step(self, action):
        if self.seed == FIRST_SEED + 2 and self.count == 1:
            raise self.error
        return super().step(action)


@pytest.mark.parametrize(
    ("error", "raised", "reason"),
    [
        (RobotStopped("stopped", "a person"), RobotStopped, "RobotStopped: The robot may not move. got: stopped: a person"),
        (ZeroDivisionError("of\x1b it"), EnvironmentFailed, "EnvironmentFailed: test/Coin raised an error in step()"),
        (KeyboardInterrupt(), KeyboardInterrupt, "interrupted"),
        (SystemExit(0), SystemExit, "SystemExit: 0"),
    ],
)
def test_early_end_keeps_episodes_that_finished(error, raised, reason):
    kept = []
    with pytest.raises(raised):
        evaluate(RandomPolicy(SPEC, 0), Failing(error), 5, on_incomplete=kept.append)
    (found,) = kept
    assert found.seeds == (FIRST_SEED, FIRST_SEED + 1) and found.lengths == (4, 10) and found.successes == (True, False)
    assert found.incomplete.planned == 5 and found.incomplete.reason.startswith(reason)
    assert f"WARNING  ended early, after 2 of 5 episodes: {reason}" in str(found) and "\x1b" not in str(found)
    again = Evaluation.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found and compare([again], [outcome()])[1] == [FIRST_SEED, FIRST_SEED + 1]


def test_whole_or_empty_evaluation_has_no_early_end():
    kept = []
    policy = RandomPolicy(SPEC, 0)
    whole = evaluate(policy, Coin(), 3, on_incomplete=kept.append)
    with pytest.raises(KeyboardInterrupt):
        evaluate(policy, Failing(KeyboardInterrupt()), seeds=[FIRST_SEED + 2], on_incomplete=kept.append)
    assert kept == [] and whole.incomplete is None and "early" not in str(whole)
    before = {name: value for name, value in whole.to_json().items() if name != "incomplete"}  # of an older version
    assert Evaluation.from_json(before) == whole


def test_policy_runs_on_another_task_with_same_interface():
    other = replace(SPEC, name="test/Dice", max_steps=99)
    assert evaluate(RandomPolicy(other, 0), Coin(), seeds=[0]).environment == "test/Coin"


def test_no_seed_is_an_error():
    with pytest.raises(InvalidSetting, match="An evaluation needs at least one episode"):
        evaluate(RandomPolicy(SPEC, 0), Coin(), seeds=[])


def test_episodes_are_reported_as_they_end():
    heard = []
    evaluate(RandomPolicy(SPEC, 0), Coin(), seeds=[2, 3], on_episode=heard.append)
    assert [episode.seed for episode in heard] == [2, 3]
    assert "side" in heard[0].observations


def test_successes_and_failures_are_filmed_after_the_evaluation(tmp_path):
    evaluation = evaluate(
        RandomPolicy(SPEC, 0),
        Coin(render_mode="rgb_array"),
        seeds=evaluation_seeds(10),
        video=VideoRequest(tmp_path / "videos", "final", episodes=4),
    )
    assert evaluation.notes == ()
    assert sorted(evaluation.videos.values()) == [
        "final-seed1000000-success.mp4",
        "final-seed1000001-failure.mp4",
        "final-seed1000002-success.mp4",
        "final-seed1000003-failure.mp4",
    ]
    first, last = read_frames(tmp_path / "videos" / evaluation.videos[FIRST_SEED], [0.0, 1.0])
    assert first.shape == (32, 48, 3)  # even sides
    assert first[:, :22].max() < 50  # the picture follows the replayed episode: black before it, four bars at its fourth step
    assert last[:, :15].min() > 200 and last[:, 18:22].max() < 50
    (other,) = read_frames(tmp_path / "videos" / evaluation.videos[FIRST_SEED + 3], [0.0])
    assert first[:, 26:].mean() < 10 and abs(other[:, 26:].mean() - 75) < 10  # and its own seed


class SmoothCoin(Coin):
    """Three pictures to a decision, as a list."""

    metadata: ClassVar = {"render_modes": ["rgb_array", "rgb_array_list"]}
    closed = False

    def reset(self, **arguments):
        self.between = 1
        return super().reset(**arguments)

    def step(self, action):
        self.between = 3
        return super().step(action)

    def render(self):
        return [Coin.render(self) for _ in range(self.between)]

    def close(self):
        self.closed = True


def test_videos_use_own_renderer_and_every_frame(tmp_path):
    environment = SmoothCoin()
    stage = SmoothCoin(render_mode=render_mode_for_films(environment))
    request = VideoRequest(tmp_path, episodes=1, stage=lambda: stage)
    evaluation = evaluate(RandomPolicy(SPEC, 0), environment, seeds=[0], video=request)
    assert (environment.drawn, environment.closed, stage.drawn, stage.closed) == (0, False, 1 + 4 * 3, True)
    with av.open(str(tmp_path / evaluation.videos[0])) as container:
        times = [float(frame.time) for frame in container.decode(video=0)]
        duration = container.duration / av.time_base
    assert np.diff(times)[:-1] == pytest.approx(0.05 / 3, abs=1e-3)
    assert len(times) == 13 + 1 and times[-1] - times[-2] == pytest.approx(HOLD, abs=0.01)  # the end stays for the eye
    assert duration == pytest.approx(times[-1], abs=0.03)


def test_the_smoothest_way_to_draw_is_chosen():
    environment = Coin()
    for offered, mode in ((["human", "rgb_array"], "rgb_array"), (["rgb_array", "rgb_array_list"], "rgb_array_list")):
        environment.metadata = {"render_modes": offered}
        assert render_mode_for_films(environment) == mode
    environment.metadata = {}
    assert render_mode_for_films(environment) == "rgb_array"


def test_a_stage_that_cannot_be_made_becomes_a_note(tmp_path):
    def no_stage():
        raise TypeError("unexpected keyword argument 'render_mode'")

    evaluation = evaluate(RandomPolicy(SPEC, 0), Coin(), seeds=[0], video=VideoRequest(tmp_path, stage=no_stage))
    assert evaluation.notes == ("no video: the environment takes no render_mode",)


def test_a_film_has_a_longest_duration(tmp_path):
    environment = Coin(render_mode="rgb_array")
    evaluate(RandomPolicy(SPEC, 0), environment, seeds=[1], video=VideoRequest(tmp_path, episodes=1, longest=0.2))
    assert environment.drawn <= 5


def test_the_request_fills_up_with_the_kind_there_is():
    evaluation_episodes = []
    evaluate(RandomPolicy(SPEC, 0), Coin(), seeds=[0, 2, 4, 6, 8, 1], on_episode=evaluation_episodes.append)
    assert [e.seed for e in VideoRequest(None, episodes=4).choose(evaluation_episodes)] == [0, 2, 4, 1]
    assert [e.seed for e in VideoRequest(None, episodes=4).choose(evaluation_episodes[:5])] == [0, 2, 4, 6]
    assert [e.seed for e in VideoRequest(None, episodes=1).choose(evaluation_episodes)] == [0]


def test_no_picture_never_costs_the_evaluation(tmp_path):
    class NoGL(Coin):
        def render(self):
            raise ImportError("Cannot initialize a EGL device display")

    blind = evaluate(RandomPolicy(SPEC, 0), Coin(), seeds=[0], video=VideoRequest(tmp_path))
    assert len(blind) == 1 and blind.videos == {}
    assert blind.notes[0].startswith("no video: RenderingUnavailable: The environment does not draw. got: render_mode=None")
    failing = evaluate(RandomPolicy(SPEC, 0), NoGL("rgb_array"), seeds=[0], video=VideoRequest(tmp_path))
    assert failing.notes == ("no video: ImportError: Cannot initialize a EGL device display",)
    assert failing.successes == (True,) and "no video: ImportError" in str(failing)


MEASURES = (Measure("way", "km", "that was gone"), Measure("bumps", "1/km", per="way"))


class Walk(Coin):
    """Goes 2 m a step, and bumps at the end of odd seeds; seeds that `broken` names tell nothing."""

    measures = MEASURES

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        told = {"way": 0.002 * self.count, "bumps": float(truncated)}
        return observation, reward, terminated, truncated, info if self.seed in self.broken else {**info, "measures": told}


@pytest.mark.slow
def test_what_an_environment_measures_is_told_with_intervals():
    evaluation = evaluate(RandomPolicy(SPEC, 0), Walk(), seeds=evaluation_seeds(10))
    assert evaluation.measures == MEASURES and evaluation.measured["way"] == pytest.approx((0.008, 0.02) * 5)
    assert evaluation.measured["bumps"] == (0.0, 1.0) * 5
    way, bumps = (evaluation.measure_intervals[name] for name in ("way", "bumps"))
    assert way.estimate == pytest.approx(0.014) and way.low < 0.014 < way.high
    # 5 in 0.14 km; Garwood's limits of a count of 5 are 1.6235 and 11.6683
    assert (bumps.estimate, bumps.low, bumps.high) == pytest.approx((5 / 0.14, 1.6235 / 0.14, 11.6683 / 0.14), rel=1e-4)
    text = str(evaluation)
    assert "measure  way " in text and "5 in 0.14, Garwood 95%" in text
    assert evaluation.metrics["eval/bumps"] == bumps.estimate
    comparisons, _ = compare([evaluation], [evaluation])
    assert set(comparisons) == {"success", "return", "way", "bumps"} and comparisons["bumps"].first_mean == 0.5


def test_missing_measure_is_not_averaged_and_survives_json():
    evaluation = evaluate(RandomPolicy(SPEC, 0), Walk(broken=(FIRST_SEED,)), seeds=evaluation_seeds(4))
    assert np.isnan(evaluation.measured["way"][0]) and evaluation.measure_intervals["way"].estimate == pytest.approx(0.016)
    data = json.loads(json.dumps(evaluation.to_json(), allow_nan=False))
    again = Evaluation.from_json(data)
    assert str(again) == str(evaluation) and data["measured"]["way"][0] is None
    assert data["summary"]["measures"]["bumps"]["estimate"] == pytest.approx(2 / 0.048)


def test_an_environment_says_itself_how_long_its_films_are(tmp_path):
    environment = Coin(render_mode="rgb_array")
    environment.metadata = {**environment.metadata, "film_seconds": 0.1}
    evaluation = evaluate(RandomPolicy(SPEC, 0), environment, seeds=[FIRST_SEED + 1], video=VideoRequest(tmp_path, episodes=1))
    with av.open(str(tmp_path / evaluation.videos[FIRST_SEED + 1])) as container:
        assert container.streams.video[0].frames == 3  # two of 0.05 s, and the last again


def test_pass_at_k_is_unbiased():
    assert pass_at_k(20, 3, 5) == pytest.approx(0.601, abs=1e-3) and pass_at_k(20, 3, 10) == pytest.approx(0.895, abs=1e-3)
    assert pass_at_k(20, 0, 5) == 0.0 and pass_at_k(20, 20, 5) == 1.0 and pass_at_k(4, 3, 2) == 1.0
    random = np.random.default_rng(0)
    chance, k = 0.2, 5  # the mean over many sets of attempts is the true chance, that of the plain formula is not
    drawn = random.binomial(20, chance, 20_000)
    assert np.mean([pass_at_k(20, each, k) for each in drawn]) == pytest.approx(1 - 0.8**k, abs=5e-3)
    assert np.mean(1 - (1 - drawn / 20) ** k) < 1 - 0.8**k - 0.02


def test_attempts_are_grouped_by_seed():
    found = evaluate(RandomPolicy(SPEC, 0), Coin(), seeds=[seed for seed in range(4) for _ in range(10)])
    assert {k: share.estimate for k, share in found.pass_at.items()} == {1: 0.5, 5: 0.5}  # even seeds always, odd ones never
    text = str(found)
    assert "0 to 3, 10 attempts at each" in text and "pass@5 50.0%" in text
    assert found.to_json()["summary"]["pass_at"].keys() == {"1", "5"}
    assert Evaluation.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert outcome().pass_at == {} and "pass@" not in str(outcome())
    assert evaluate(RandomPolicy(SPEC, 0), Coin(has_success=False), seeds=[1, 1]).pass_at == {}


class Guarded(Coin):
    """A guard changes every command, every second one, or none; it also has what a robot has."""

    def __init__(self, every=1):
        super().__init__()
        self.every = every

    def step(self, action):
        *found, info = super().step(action)
        changed = self.every and self.count % self.every == 0
        return *found, {**info, "executed_action": np.zeros(1, np.float32), "guard": ["speed"] if changed else []}

    def hold(self):
        """Move nothing."""


@pytest.mark.parametrize(
    ("every", "said"),
    [
        (1, "executed as proposed: 0 of 28 commands; speed 28"),
        (2, "executed as proposed: 14 of 28 commands; speed 14"),
        (0, "executed as proposed: 28 of 28 commands"),
    ],
)
def test_evaluation_says_which_commands_were_executed(every, said):
    evaluation = evaluate(RandomPolicy(SPEC, 0), Guarded(every), seeds=evaluation_seeds(4))
    assert f"  commands {said}\n" in str(evaluation)
    assert ("WARNING  no command was executed" in str(evaluation)) == (every == 1)
    again = Evaluation.from_json(json.loads(json.dumps(evaluation.to_json())))
    assert again.commands == evaluation.commands and str(again) == str(evaluation)
    assert evaluation.metrics["eval/executed_as_proposed"] == evaluation.commands.as_proposed / 28


def test_nothing_is_said_of_commands_where_nothing_changes_them():
    assert outcome().commands is None and "executed as proposed" not in str(outcome())


@pytest.mark.parametrize(("every", "status"), [(1, 1), (2, 0), (None, 0)])
def test_evaluate_ends_with_1_if_no_command_was_executed(every, status, monkeypatch, tmp_path, capsys):
    environment = Coin() if every is None else Guarded(every)
    evaluation = evaluate(RandomPolicy(SPEC, 0), environment, seeds=evaluation_seeds(2))
    run = SimpleNamespace(path=tmp_path, report=tmp_path / "report.html", evaluate=lambda *_, **__: evaluation)
    monkeypatch.setattr("robo_rl.open_run", lambda *_, **__: run)
    assert evaluate_command.run(evaluate_command.Evaluate("latest")) == status
    assert ("WARNING" in capsys.readouterr().out) == bool(status)


def test_limits_of_a_run_replace_those_of_the_environment():
    evaluation = outcome()
    costly = replace(
        evaluation,
        measures=(Measure("cost_hazard", "1", limit=3.0), Measure("cost_zone", "1", limit=3.0)),
        measured={"cost_hazard": (0.0, 2.0) * 5, "cost_zone": (0.0, 4.0) * 5},
    ).with_limits({"hazard": 0.0, "other": 1.0})
    assert "above the limit of 0 in 50% [24%, 76%] of the episodes" in str(costly)
    assert "above the limit of 3 in 50%" in str(costly)
    assert costly.metrics["eval/cost_hazard_exceeded"] == 0.5
