"""ONI: its three rewards against values worked out by hand, its questions, its double, and runs that repeat themselves."""

import json
import time
from dataclasses import replace
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from factories import rest_slow
from robo_papers.oni.annotator import Label
from robo_papers.oni.arrivals import record_of
from robo_papers.oni.caption_rewards import Classification, Ranking, classification_loss, ranking_loss
from robo_papers.oni.network import Fit
from robo_papers.oni.questions import AnnotationRule
from robo_papers.oni.reward import ONIClassification, ONIRanking, ONIRetrieval
from robo_policies.learners.ppo import PPOConfig
from robo_policies.networks.policy_value import PolicyValueNetwork
from robo_policies.sb3 import algorithms as sb3
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.errors import InvalidSetting
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.spec.environment import specification
from robo_rl.training.on_policy import Normalization
from robo_rl.types import Episode

DOOR_KEY = "minigrid/MiniGrid-DoorKey-5x5-v0"
KINDS = {"oni-retrieval": ONIRetrieval, "oni-classification": ONIClassification, "oni-ranking": ONIRanking}
KEY, WALL = "You pick up a yellow key. Ahead: nothing.", "Ahead: a wall."


def sigmoid(value):
    return 1 / (1 + exp(-value))


# losses and rewards


def test_the_loss_of_classification_is_the_cross_entropy():
    found = classification_loss(torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1.0, 0.0, 0.0]))
    expected = -(log(sigmoid(2.0)) + log(1 - sigmoid(-1.0)) + log(1 - sigmoid(0.5))) / 3
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_ranking_loss_is_bradley_terry_with_half_ties():
    first, second, labels = (torch.tensor(part) for part in ([1.0, 0.2, -1.0], [3.0, 0.0, 2.0], [1.0, 0.0, 0.5]))
    better = [exp(two) / (exp(one) + exp(two)) for one, two in ((1.0, 3.0), (0.2, 0.0), (-1.0, 2.0))]
    expected = -(log(better[0]) + log(1 - better[1]) + 0.5 * (log(better[2]) + log(1 - better[2]))) / 3
    assert float(ranking_loss(first, second, labels)) == pytest.approx(expected, rel=1e-6)


def test_classification_starts_neutral_and_generalises():
    kind = Classification(Fit(steps=200), threshold=0.5, most_labels=100)
    assert not kind.values([KEY, WALL]).valid.any()
    colours = ("red", "green", "blue", "grey")
    good = [f"You pick up a {colour} key. Ahead: nothing." for colour in colours]
    bad = [f"Ahead: a locked {colour} door." for colour in colours]
    kind.learn([Label((caption,), float(caption in good)) for caption in [*good, *bad]])
    found = kind.values([*good, *bad, KEY, "Ahead: a locked yellow door."])
    values, known = found.values, found.valid
    assert known.all() and values.tolist() == [1.0] * 4 + [0.0] * 4 + [1.0, 0.0]
    assert kind.metrics["annotation/agreement"] == 1.0


def test_classification_stops_at_its_label_limit():
    kind = Classification(Fit(), threshold=0.5, most_labels=2)
    assert kind.wanted({"a": 1, "b": 1}) == [("a",), ("b",)]
    kind.learn([Label(("a",), 1.0)])
    before = kind.state_dict()["fitter"]["weights"]["output.bias"].clone()
    kind.learn([Label(("b",), 0.0)])
    assert kind.wanted({"c": 1}) == [] and torch.equal(before, kind.state_dict()["fitter"]["weights"]["output.bias"].clone())


class Given:
    """A fitter whose network says what it is told to."""

    is_fitted = True

    def __init__(self, outputs):
        self._outputs = outputs

    def outputs(self, captions):
        return np.array([self._outputs[caption] for caption in captions])


def test_ranking_rewards_are_standardised_above_threshold():
    kind = Ranking(Fit(), threshold=-0.5, pairs=4, most_labels=100)
    assert not kind.values(["a"]).valid.any()
    kind.wanted({"a": 3, "b": 1})
    kind.wanted({"a": 3, "c": 1})
    kind._fitter = Given({"a": 1.0, "b": 3.0, "c": -1.0, "new": 1.2})
    mean = (6 * 1.0 + 3.0 - 1.0) / 8
    deviation = sqrt((6 * (1 - mean) ** 2 + (3 - mean) ** 2 + (-1 - mean) ** 2) / 8)
    found = kind.values(["a", "b", "c", "new"])
    values, known = found.values, found.valid
    assert known.all()
    assert values.tolist() == pytest.approx([(1 - mean) / deviation, (3 - mean) / deviation, 0.0, (1.2 - mean) / deviation])


def test_ranking_asks_new_pairs_with_new_captions_last():
    kind = Ranking(Fit(), threshold=-0.5, pairs=3, most_labels=100)
    assert kind.wanted({"a": 1}) == []
    pairs = kind.wanted({"b": 1})
    assert pairs == [("a", "b")]
    kind.learn([Label(("a", "b"), 1.0)])
    assert kind.wanted({"a": 5}) == []
    wanted = kind.wanted({"c": 1})
    assert "c" in wanted[-1] and ("a", "b") not in wanted and all(one < two for one, two in wanted)


def test_ranking_learns_an_order():
    kind = Ranking(Fit(steps=100), threshold=-9.0, pairs=4, most_labels=100)
    captions = [WALL, "You carry a yellow key.", KEY]
    kind.wanted(dict.fromkeys(captions, 1))
    kind.learn([Label((min(pair), max(pair)), float(captions.index(max(pair)) > captions.index(min(pair))))
                for pair in ((WALL, captions[1]), (WALL, KEY), (captions[1], KEY))])  # fmt: skip
    values = kind.values(captions).values
    assert values[0] < values[1] < values[2]


@pytest.mark.parametrize("make", [lambda: Classification(Fit(), threshold=0.5, most_labels=100),
                                  lambda: Ranking(Fit(), threshold=-0.5, pairs=4, most_labels=100)])  # fmt: skip
def test_a_fitted_reward_goes_on_from_a_checkpoint_to_the_bit(make, tmp_path):
    whole, captions = make(), [f"caption {number}." for number in range(6)]
    labels = [Label(query, 1.0) for query in whole.wanted(dict.fromkeys(captions, 2))]
    whole.learn(labels[:2])
    whole.values(captions)
    save_checkpoint(tmp_path, Checkpoint(1, {"kind": whole.state_dict()}))
    resumed = make()
    resumed.restore(labels[:2])
    resumed.load_state_dict(load_checkpoint(tmp_path).parts["kind"])
    assert np.array_equal(whole.values(captions).values, resumed.values(captions).values)
    for kind in (whole, resumed):
        kind.learn(labels[2:])
    assert np.array_equal(whole.values(captions).values, resumed.values(captions).values)
    assert [*whole.wanted({"caption 7.": 1})] == [*resumed.wanted({"caption 7.": 1})]


# questions


def test_what_is_asked_and_answered_is_in_the_log(tmp_path):
    reward = ONIRetrieval(goal="reach the goal", log=str(tmp_path / "calls.jsonl"))
    assert reward.questions().answers([(KEY,), (WALL,)]) == [(1.0, "ok"), (0.0, "ok")]
    reward.model.close()
    records = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    asked = records[0]["messages"][-1]["text"]
    assert asked.startswith("The agent is to reach the goal.") and asked.endswith(f"\n\nDescription: {KEY}")
    assert [record["llm"] for record in records] == ["rule (no model)"] * 2 and records[0]["purpose"] == "annotate"
    assert records[0]["content"] == {"reason": "by rule: rank 1", "helps": True} and records[0]["temperature"] == 0.1


def test_pair_label_ignores_display_order():
    questions = ONIRanking().questions()
    doors = [f"You open a {colour} door." for colour in ("red", "green", "blue", "grey", "purple", "yellow")]
    pairs = [(KEY, door) for door in doors] + [(door, KEY) for door in doors] + [(WALL, "Ahead: nothing.")]
    shown_first = {questions.prompt(pair).messages[-1].text.partition("First description: ")[2][:8] for pair in pairs[:6]}
    assert shown_first == {KEY[:8], "You open"}
    assert [value for value, _ in questions.answers(pairs)] == [1.0] * 6 + [0.0] * 6 + [0.5]


def test_the_double_errs_for_the_same_captions_every_time():
    captions = [(f"You pick up a red key. Number {number}.",) for number in range(60)]
    answers = ONIRetrieval(rule=AnnotationRule(errors=0.2, garbage=0.1)).questions().answers(captions)
    assert answers == ONIRetrieval(rule=AnnotationRule(errors=0.2, garbage=0.1)).questions().answers(captions)
    statuses = [status for _, status in answers]
    assert 1 <= statuses.count("garbage") <= 15 and all(value is None for value, status in answers if status != "ok")
    assert 4 <= [value for value, _ in answers].count(0.0) <= 22
    assert answers != ONIRetrieval(rule=AnnotationRule(errors=0.2, garbage=0.1, seed=1)).questions().answers(captions)


# settings


@pytest.mark.parametrize("name", KINDS)
def test_entry_points_give_rewards_also_online(name):
    reward = KINDS[name]()
    assert reward.identity[0] == name
    assert reward.identity == replace(reward, batch=3, log="x").identity != replace(reward, goal="go").identity
    environment = make_environment(DOOR_KEY)
    online = reward.online(specification(environment), weight=2.0, discount=0.99)
    assert online.identity["llm"] == "rule (no model)" and online.visible(specification(environment)) is not None


def test_an_environment_that_cannot_be_described_is_refused():
    spec = specification(make_environment("gymnasium/InvertedPendulum-v5"))
    with pytest.raises(InvalidSetting, match="The captioner minigrid cannot describe gymnasium/InvertedPendulum-v5"):
        ONIRetrieval().online(spec, weight=1.0, discount=None)


def test_foreign_replies_are_refused_before_learning():
    spec = specification(make_environment(DOOR_KEY))
    with pytest.raises(InvalidSetting, match=rf"(?s)another environment.*got:     {DOOR_KEY}.*allowed: robo/ArmReach-v0"):
        ONIRetrieval(llm="pack:point-example").online(spec, weight=1.0, discount=None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"count_exponent": -1.0}, "'count_exponent' is out of range"),
        ({"batch": 0}, "'batch' is out of range"),
        ({"intrinsic_weight": float("nan")}, "'intrinsic_weight' is out of range"),
    ],
)
def test_a_setting_out_of_range_is_refused(settings, words):
    with pytest.raises(InvalidSetting, match=words):
        ONIRetrieval(**settings)


def test_a_rule_that_is_no_expression_is_refused():
    with pytest.raises(InvalidSetting, match=r"'\(' is not a regular expression"):
        AnnotationRule(progress=("(",))


def test_a_run_without_a_record_cannot_be_replayed(tmp_path):
    spec = specification(make_environment(DOOR_KEY))
    with pytest.raises(InvalidSetting, match="is not a run"):
        ONIRetrieval(replay=str(tmp_path)).online(spec, weight=1.0, discount=None)
    save_checkpoint(tmp_path / "checkpoints", Checkpoint(1, {"learner": {}}))
    with pytest.raises(InvalidSetting, match="has no record of labels"):
        ONIRetrieval(replay=str(tmp_path)).online(spec, weight=1.0, discount=None)


def test_demonstrations_are_refused():
    spec = specification(make_environment(DOOR_KEY))
    online = ONIRetrieval().online(spec, weight=1.0, discount=None)
    with pytest.raises(InvalidSetting, match="oni-retrieval cannot reward demonstrations"):
        online.labelled(played(), spec)


def played() -> Episode:
    environment = make_environment(DOOR_KEY)
    return rollout(environment, RandomPolicy(specification(environment), 0), seed=0)


def test_a_recorded_episode_is_labelled_with_decaying_bonuses():
    episode = played()
    labels = ONIRetrieval().label(episode)
    assert labels.valid.all() and len(labels.values) == len(episode)
    bonuses = {round(float(value), 6) for value in labels.values}
    assert 0.0 in bonuses and bonuses <= {0.0} | {round(0.04 / count**3, 6) for count in range(1, 300)} and len(bonuses) > 2


# runs


def weights(parts: dict[str, Any]) -> dict[str, bytes]:
    return {name: np.asarray(value).tobytes() for name, value in parts["learner"]["networks"].items()}


def ppo() -> PPOConfig:
    return PPOConfig(
        num_envs=4,
        steps_per_env=32,
        batch_size=64,
        epochs=1,
        network=PolicyValueNetwork(hidden=(16,)),
        normalize=Normalization(rewards=False),
    )


def make():
    return make_environment(DOOR_KEY)


make.make_vector = lambda count: make_vector_environment(DOOR_KEY, count, autoreset_mode="SameStep")  # type: ignore[attr-defined]


class Silent:
    """An observer that keeps the newest metrics."""

    def __init__(self, pause):  # [s] after every step, in which labels may come
        self.metrics, self.pause = {}, pause

    def on_metrics(self, step, metrics):
        self.metrics |= metrics

    def on_episode(self, step, **facts): ...

    def on_step(self, step, training):
        time.sleep(self.pause)


def trained(reward, steps=384, state=None, pause=0.0):
    online = reward.online(specification(make()), weight=1.0, discount=0.99)
    training = ppo().training(make, steps=steps, seed=0, reward=online)
    if state is not None:
        training.load_state_dict(state)
    training.run(observer := Silent(pause))
    return training, observer


def saved(folder: Path, training):
    save_checkpoint(folder / "checkpoints", Checkpoint(training.step, training.state_dict()))
    return load_checkpoint(folder / "checkpoints").parts


@pytest.mark.slow
@pytest.mark.parametrize("kind", rest_slow(KINDS.values()), ids=KINDS)
def test_replayed_run_has_same_parameters(kind, tmp_path):
    reward = kind(rule=AnnotationRule(latency_s=0.002), batch=4)
    one, seen = trained(reward, pause=0.02)
    assert seen.metrics["annotation/labels"] > 3 and seen.metrics["reward/missing"] > 0
    first = saved(tmp_path / "one", one)
    assert len(record_of(tmp_path / "one")) == seen.metrics["annotation/labels"]
    assert len({arrival.step for arrival in record_of(tmp_path / "one")}) > 1
    again, told = trained(kind(replay=str(tmp_path / "one")))
    assert weights(saved(tmp_path / "again", again)) == weights(first)
    assert told.metrics["reward/missing"] == seen.metrics["reward/missing"]


@pytest.mark.slow
def test_a_replayed_run_resumes_exactly_and_a_live_one_says_warm(tmp_path):
    one, _ = trained(ONIRanking(rule=AnnotationRule(latency_s=0.002)), pause=0.02)
    saved(tmp_path / "one", one)
    replay = ONIRanking(replay=str(tmp_path / "one"))
    half, _ = trained(replay, steps=256)
    resumed, _ = trained(replay, state=saved(tmp_path / "half", half))
    whole, _ = trained(replay)
    assert resumed.resumed == "exact"
    assert weights(saved(tmp_path / "a", resumed)) == weights(saved(tmp_path / "b", whole))
    live, _ = trained(ONIRetrieval(), steps=128)
    again, _ = trained(ONIRetrieval(), steps=256, state=saved(tmp_path / "live", live))
    assert again.resumed == "warm"


@pytest.mark.slow
def test_labels_outlive_a_resume_with_stable_baselines(tmp_path):
    config = sb3.PPOConfig(n_envs=2, n_steps=32, batch_size=32, n_epochs=1)
    reward = ONIRetrieval().online(specification(make()), weight=1.0, discount=0.99)
    training = config.training(make, steps=256, seed=0, reward=reward)
    training.run(observer := Silent(0.0))
    state = saved(tmp_path, training)
    labels = len(record_of(tmp_path))
    assert labels == observer.metrics["annotation/labels"] > 3
    resumed = config.training(make, steps=320, seed=0, reward=reward)
    resumed.load_state_dict(state)
    assert resumed.rewards.metrics["annotation/labels"] == labels
    resumed.run(again := Silent(0.0))
    assert again.metrics["annotation/labels"] >= labels
