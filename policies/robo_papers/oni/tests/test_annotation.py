"""Labels that arrive beside the training: it never waits, nothing is asked twice, and what is missing is no label."""

import threading
import time
import warnings
from collections import Counter

import numpy as np
import pytest

from factories import make_spec
from robo_papers.oni.annotator import MOST_FAILED, AnnotatorStopped, BackgroundAnnotator, Label, QueryQueue
from robo_papers.oni.arrivals import Arrival, RecordedAnnotator
from robo_papers.oni.reward import ONIRetrieval
from robo_rl.errors import JudgeUnavailable, RewardUnavailable
from robo_rl.rewards.step_rewards.online_scoring import OnlineScoring
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.spec.environment import ActionSpec, ArraySpec

WORDS = make_spec("test/Words", ArraySpec("word", (1,)), action=ActionSpec(("a",), (0,), (0,), ("1",), mode="discrete"))
DEADLINE = 20.0  # s; what takes so long has failed


class Words:
    """A captioner of observations that are numbers already."""

    def look(self, observations):
        return np.array(observations["word"])

    def captions(self, before, actions, after):
        return [f"{before[row, 0]:.0f}>{after[row, 0]:.0f}" for row in range(len(actions))]


class Model:
    """Answers in the place of `Questions`: each call waits until it is let through."""

    def __init__(self, labels=lambda query: 1.0, status="ok", is_open=True):
        self.labels, self.status = labels, status
        self.asked, self.open = [], threading.Event()
        if is_open:
            self.open.set()

    def answers(self, queries):
        self.asked.append(list(queries))
        self.open.wait(DEADLINE)
        return [(self.labels(query), "ok") if self.status == "ok" else (None, self.status) for query in queries]


class Dead:
    def answers(self, queries):
        raise JudgeUnavailable("The server rejects the key.", got="HTTP 401")


def annotator(model, *, capacity=100, batch=2, tries=3):
    return BackgroundAnnotator(model, capacity=capacity, batch=batch, tries=tries)


def rewards(given, *, weight=1.0, environment_weight=1.0, exponent=3.0, limit=10.0):
    class Given(ONIRetrieval):
        repeats_itself = isinstance(given, RecordedAnnotator)
        captions_of = Words()

        def annotator(self):
            return given

    settings = {"environment_weight": environment_weight, "intrinsic_weight": 0.5, "limit": limit, "count_exponent": exponent}
    return OnlineScoring(Given(**settings), Place(WORDS, weight=weight))


def word(number):
    return {"word": np.array([float(number)])}


def steps(running, numbers, *, reward=0.0, ended=False, index=0):
    for left, number in zip(reversed(range(len(numbers))), numbers, strict=True):
        terminated = ended and not left
        running.add(index, word(number), action=np.int64(0), reward=reward, terminated=terminated, truncated=False)


def begun(given, **settings):
    running = rewards(given, **settings)
    running.begin(0, word(0), None)
    return running


def until(condition):
    """Waits for something that another thread does."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.001)


def settled(given):
    """Waits until nothing waits and nothing is being asked but what has arrived."""
    until(lambda: given._queries.sizes[0] == 0 and given._outcomes.qsize() == given._queries.sizes[1])


# time


def test_no_step_waits_for_a_server_that_never_answers():
    model = Model(is_open=False)
    running = begun(given := annotator(model))
    for start in range(0, 100, 10):
        steps(running, range(start, start + 10), reward=1.0)
        found = running.score()
        values, known, ends = found.labels.values, found.labels.valid, found.ends
        assert values.tolist() == [1.0] * 10 and known.all() and not ends.any()
    assert running.metrics["reward/missing"] == 1.0 and running.metrics["annotation/labels"] == 0
    assert given._queries.sizes[1] <= 2  # what was asked first is still under way
    model.open.set()


def test_a_caption_pays_only_after_its_label_has_arrived():
    model = Model(is_open=False)
    running = begun(given := annotator(model))
    steps(running, [1], ended=True)
    assert running.score().labels.values.tolist() == [0.0]
    running.begin(0, word(0), None)
    steps(running, [1], ended=True)
    assert running.score().labels.values.tolist() == [0.0]  # asked, not answered
    model.open.set()
    settled(given)
    running.begin(0, word(0), None)
    steps(running, [1], ended=True)
    assert running.score().labels.values.tolist() == [0.5]
    assert sum(map(len, model.asked)) == 1


def test_a_label_counts_for_steps_that_waited_while_it_arrived():
    running = begun(given := annotator(Model()))
    steps(running, [1], ended=True)
    running.score()
    settled(given)
    running.begin(0, word(0), None)
    steps(running, [1, 2])
    assert running.score().labels.values.tolist() == [0.5, 0.0]


def test_labels_enter_once_per_step_for_replay():
    running = begun(given := annotator(Model()))
    steps(running, [1])
    running.score()
    settled(given)
    running.score()
    assert running.metrics["annotation/labels"] == 0
    steps(running, [2])
    running.score()
    assert [saved[0] for saved in running.state_dict()["memory"]["parts"]["annotated"]["arrivals"]] == [2]


# order


def test_overload_asks_newest_first_and_drops_oldest():
    model = Model(is_open=False)
    given = annotator(model, capacity=4, batch=3)
    given.submit([("first",)])
    until(lambda: model.asked == [[("first",)]])
    given.submit([(str(number),) for number in range(10)])
    given.submit([("7",)])  # seen again: now the newest
    assert given.metrics["annotation/waiting"] == 4 and given.metrics["annotation/dropped"] == 6
    model.open.set()
    settled(given)
    assert model.asked == [[("first",)], [("7",), ("9",), ("8",)], [("6",)]]


def test_a_caption_is_under_way_once_at_most():
    under_way, most, lock = Counter(), Counter(), threading.Lock()

    class Counting(Model):
        def answers(self, queries):
            with lock:
                under_way.update(queries)
                for query in queries:
                    most[query] = max(most[query], under_way[query])
            found = super().answers(queries)
            with lock:
                under_way.subtract(queries)
            return found

    given = annotator(Counting())
    labels = []
    for _ in range(200):
        unlabelled = [(name,) for name in "abcdef" if (name,) not in {label.query for label in labels}]
        given.submit(unlabelled)
        labels += given.arrived(0)
    settled(given)
    labels += given.arrived(0)
    assert sorted(labels) == [Label((name,), 1.0) for name in "abcdef"]
    assert set(most.values()) == {1}


def test_a_closed_desk_sends_everybody_home():
    waiting = QueryQueue(3)
    taker = threading.Thread(target=lambda: taken.append(waiting.take(1)))
    taken: list = []
    taker.start()
    waiting.close()
    taker.join(DEADLINE)
    assert taken == [None]


# faults


@pytest.mark.filterwarnings("ignore:None of the first:UserWarning")
@pytest.mark.parametrize(("status", "times"), [("unreachable", 3), ("too many requests", 3), ("garbage", 1), ("refused", 1)])
def test_a_fault_of_the_server_is_a_status_and_never_a_label(status, times):
    model = Model(status=status)
    running = begun(given := annotator(model))
    for _ in range(5):
        steps(running, [1, 0])
        assert not running.score().labels.values.any()
        settled(given)
    assert Counter(query for batch in model.asked for query in batch) == {("0>1",): times, ("1>0",): times}
    told = running.metrics
    assert told[f"annotation/status_{status.replace(' ', '_')}"] == 2 * times
    assert told["annotation/failed"] == 1.0 and told["annotation/labels"] == 0 and told["reward/missing"] == 1.0


def test_dead_annotator_warns_once_and_rewards_continue():
    model = Model()
    running = begun(given := annotator(model))
    steps(running, [1, 0])
    running.score()
    settled(given)
    steps(running, [1])
    running.score()
    model.answers = Dead().answers
    steps(running, [7])
    running.score()
    until(given._outcomes.qsize)
    steps(running, [0, 1], ended=True)
    with pytest.warns(AnnotatorStopped) as caught:
        running.score()
    (warning,) = caught
    assert str(warning.message).startswith("The annotator has stopped: The server rejects the key. got: HTTP 401 Rewards go on")
    assert "2 labels" in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert running.metrics["annotation/stopped"] == 1.0, "every line of the log says so"
            running.begin(0, word(0), None)
            steps(running, [1, 9], ended=True)
            assert running.score().labels.values.tolist() == [0.5, 0.0]


def test_dead_annotator_without_labels_ends_training():
    running = begun(given := annotator(Dead()))
    steps(running, [1, 0])
    running.score()
    until(given._outcomes.qsize)
    steps(running, [1])
    with pytest.raises(RewardUnavailable, match=r"stopped before any caption had a label(.|\n)*rejects the key"):
        running.score()
    assert running.metrics["annotation/stopped"] == 1.0


@pytest.mark.parametrize("good", [0, 1])
def test_repeated_invalid_answers_end_training(good):
    model = Model()
    running = begun(given := annotator(model))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in range(good + MOST_FAILED):
            model.status = "ok" if number < good else "garbage"
            steps(running, [number + 1])
            running.score()
            settled(given)
    said = ["None of the first 5 answers of the annotator is a label: 5 garbage."]
    assert [str(each.message) for each in told] == ([] if good else said), "once, and only before the first label"
    steps(running, [0])
    with pytest.raises(RewardUnavailable, match=rf"(?s)last {MOST_FAILED} answers .*{MOST_FAILED} garbage.*{good} labels"):
        running.score()


# rewards


def test_reward_is_paper_sum_and_counts_reset_per_episode():
    running = begun(RecordedAnnotator([Arrival(0, Label(("0>0",), 1.0))]), weight=2.0, environment_weight=10.0, exponent=3.0)
    steps(running, [0, 0, 0], reward=0.25, ended=True)
    running.begin(0, word(0), None)
    steps(running, [0])
    expected = [2 * (10 * own + 0.5 * 1.0 / count**3) for own, count in [(0.25, 1), (0.25, 2), (0.25, 3), (0.0, 1)]]
    assert running.score().labels.values.tolist() == pytest.approx(expected)
    assert running.metrics["reward/model_return"] == pytest.approx(2 * 0.5 * (1 + 1 / 8 + 1 / 27))


def test_the_sum_is_kept_within_its_limit():
    running = begun(RecordedAnnotator([]), limit=3.0)
    steps(running, [1, 2], reward=7.0)
    steps(running, [3], reward=-7.0)
    assert running.score().labels.values.tolist() == [3.0, 3.0, -3.0]


def test_invalid_environment_reward_is_unknown_if_used():
    for weight, is_known in ((1.0, False), (0.0, True)):
        running = begun(RecordedAnnotator([]), environment_weight=weight)
        steps(running, [1], reward=float("nan"))
        found = running.score()
        values, known, _ = found.labels.values, found.labels.valid, found.ends
        assert values.tolist() == [0.0] and known.tolist() == [is_known]


def test_counts_of_two_environments_are_apart():
    running = rewards(RecordedAnnotator([Arrival(0, Label(("0>0",), 1.0))]))
    for index in (0, 1):
        running.begin(index, word(0), None)
    for index in (0, 1, 0):
        steps(running, [0], index=index)
    assert running.score().labels.values.tolist() == pytest.approx([0.5, 0.5, 0.5 / 8])


def test_steps_of_all_environments_at_once_are_those_one_by_one():
    random, found = np.random.default_rng(0), []
    numbers, ended = random.integers(0, 3, (20, 3)).astype(float), random.random((20, 3)) < 0.2
    for at_once in (True, False):
        labels = [Arrival(0, Label((f"{one}>{two}",), 1.0)) for one in range(3) for two in range(3)]
        running = rewards(RecordedAnnotator(labels))
        for index in range(3):
            running.begin(index, word(0), None)
        for now, is_over in zip(numbers, ended, strict=True):
            if at_once:
                shown = {"word": now[:, None].copy()}
                zeros = np.zeros(3)
                running.add_all(shown, actions=zeros, rewards=zeros, terminated=is_over, truncated=is_over & False)
                shown["word"][:] = -1  # the caller's arrays may change
            for index in range(3):
                if not at_once:
                    steps(running, [now[index]], ended=bool(is_over[index]), index=index)
                if is_over[index]:
                    running.begin(index, word(0), None)
        found.append(running.score().labels.values)
    assert np.array_equal(*found) and found[0].any()


# going on


def test_restart_restores_table_and_repeats_open_queries(tmp_path):
    model = Model(is_open=True)
    running = begun(given := annotator(model))
    steps(running, [1, 0])
    running.score()
    settled(given)
    steps(running, [1])
    running.score()
    model.open.clear()
    steps(running, [5, 1])
    running.score()
    save_checkpoint(tmp_path, Checkpoint(1, {"rewards": running.state_dict()}))
    model.open.set()

    after = Model(is_open=False)
    restarted = begun(annotator(after))
    restarted.load_state_dict(load_checkpoint(tmp_path).parts["rewards"])
    until(lambda: after.asked)
    assert sorted(after.asked[0]) == [("1>5",), ("5>1",)]
    assert restarted.metrics["annotation/labels"] == 2 and not restarted.repeats_itself
    restarted.restart()
    restarted.begin(0, word(0), None)
    steps(restarted, [1, 0])
    assert restarted.score().labels.values.tolist() == [0.5, 0.5]
    assert len(after.asked) == 1
    after.open.set()


def test_what_waits_goes_on_from_a_checkpoint_to_the_bit(tmp_path):
    labels = [Arrival(3, Label(("1>2",), 1.0)), Arrival(6, Label(("2>1",), 1.0))]
    numbers = [1, 2, 1, 2, 1, 2, 1, 2]
    whole = begun(RecordedAnnotator(labels))
    steps(whole, numbers[:5])
    cut = begun(RecordedAnnotator(labels))
    steps(cut, numbers[:5])
    save_checkpoint(tmp_path, Checkpoint(1, {"rewards": cut.state_dict()}))
    resumed = rewards(RecordedAnnotator(labels))
    resumed.load_state_dict(load_checkpoint(tmp_path).parts["rewards"])
    for running in (whole, resumed):
        steps(running, numbers[5:])
    one, other = whole.score().labels.values, resumed.score().labels.values
    assert np.array_equal(one, other) and len(one) == 8 and one.any()
    assert whole.metrics == resumed.metrics and resumed.repeats_itself
