"""Searching reward programs: what is chosen, what is shown, what goes wrong, what is never done twice."""

import json
from collections.abc import Sequence
from itertools import chain

import numpy as np
import pytest

from robo_papers.icpl.candidates import KeptTrainer, Outcome, TrainedCandidate, best_of
from robo_papers.icpl.eureka import Eureka, EurekaConfig
from robo_papers.icpl.icpl import ICPL, ICPLConfig
from robo_papers.icpl.preferring import ChanceComparer, KeptComparer, OracleComparer, RaterComparer, extremes
from robo_papers.icpl.prompts import reflection, trace
from robo_papers.icpl.record import WINNER, keep_round
from robo_papers.icpl.rounds import diversity
from robo_papers.icpl.rule_writer import ProgramRule, RuleWriter
from robo_rl.errors import OutOfReplies, RunError
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.log import CallLog
from robo_rl.rewards.chat.question import Answer
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.writing.prompts import RewardTask
from robo_rl.rewards.writing.record import begin, keep_program
from robo_rl.rewards.writing.writer import Writer

TASK = RewardTask("bring the point to the goal", "class Batch:\n    distance: (N,)  # [m]", "np: abs", 50)
COLUMNS = ("distance", "previous_distance", "action")
BEST = np.array([0.6, -0.3])
RULE = ProgramRule(
    "two weights, made by rule",
    "none",
    "def reward(batch):\n    a = {a}\n    b = {b}\n    total = (a + b) * batch['distance']\n    return total, {'all': total}",
    {name: (-1.0, 1.0) for name in "ab"},
)


def hidden_score(source: str) -> float:
    """Returns 1 for the best weights, less with the squared distance from them."""
    weights = RULE.read(source)
    return float(np.exp(-np.sum((np.array([weights[name] for name in "ab"]) - BEST) ** 2)))


class Trainer:
    """Trains nothing: the score is a formula of the program's weights."""

    def __init__(self, score=hidden_score):
        self.score, self.trained = score, []

    def train(self, program, seed):
        self.trained.append((program.hash, seed))
        score = self.score(program.source)
        if isinstance(score, str):
            return Outcome(failure=score)
        course = tuple(score * part / 12 for part in range(1, 13))
        terms = {"all": tuple(float(part) for part in range(12)), "total": (0.25,) * 12}
        return Outcome(score, tuple(range(12)), course, terms)


class Listed:
    """A source that answers by (purpose, number of the prompt of that purpose, sample); keeps what it was asked."""

    identity = "listed", "0" * 64

    def __init__(self, replies: dict[str, Sequence[Sequence[str]]]):
        self.replies, self.asked = replies, []

    def ask(self, questions):
        for number, question in enumerate(questions):
            self.asked.append(question)
            lists = self.replies[question.purpose]
            texts = lists[min(question.round, len(lists) - 1)]
            text = texts[question.sample] if question.sample < len(texts) else ""
            yield number, Answer("ok" if text else "garbage", {}, text, "listed", origin="pack")

    def report(self):
        return "listed"


def program(a=0.0, b=0.0) -> str:
    return "Here it is.\n```python\n" + RULE.filled({"a": a, "b": b}) + "\n```"


def model_of(source, log=None) -> ModelClient:
    return ModelClient(source, log=CallLog(log))


def writer_of(source, log=None, attempt=lambda program: ("ok", "")) -> Writer:
    return Writer(model_of(source, log), COLUMNS, attempt)


class WatchedRule(RuleWriter):
    """The rule, with every prompt that it was asked."""

    def ask(self, questions):
        asked = self.__dict__.setdefault("asked", [])
        return super().ask(asked.append(question) or question for question in questions)


def eureka(source, trainer=None, **config):
    trainer = trainer or Trainer()
    return Eureka(writer_of(source), trainer, TASK, EurekaConfig(**({"rounds": 3, "programs": 2} | config)))


def icpl(source, comparer=None, trainer=None, **config):
    return ICPL(writer_of(source), trainer or Trainer(), TASK, ICPLConfig(**config), comparer or OracleComparer())


def scores(rounds):
    return [each.incumbent.outcome.score for each in rounds]


# what is chosen


def test_model_that_repeats_itself_is_not_paid_on():
    """12 equal programs: two rounds show it, and the next prompt would be the same; so nothing more is sent."""
    source = Listed({"write": [[program(0.5, 0.5)] * 3], "improve": [[program(0.5, 0.5)] * 99]})
    trainer = Trainer()
    search = eureka(source, trainer, rounds=4, programs=3)
    assert len([*search.rounds()]) == 2 and len(source.asked) == 6
    assert "the model repeats itself: 6 equal answers" in search.ended


@pytest.mark.parametrize("seed", range(5))
def test_icpl_with_oracle_is_monotone_and_near_best(seed):
    found = scores(icpl(RuleWriter(RULE, seed)).rounds())
    assert len(found) == 5 and found == sorted(found)
    assert found[-1] >= 0.95


@pytest.mark.parametrize("seed", range(3))
def test_icpl_with_reversed_answers_comes_nowhere(seed):
    found = scores(icpl(RuleWriter(RULE, seed), OracleComparer(mistakes=1.0)).rounds())
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.5


@pytest.mark.slow
def test_icpl_with_random_answers_is_worse_than_oracle():
    seeds = range(3)
    oracle, chance = (
        [scores(icpl(RuleWriter(RULE, seed), comparer).rounds())[-1] for seed in seeds]
        for comparer in (OracleComparer(), ChanceComparer())
    )
    assert np.mean(oracle) > np.mean(chance) + 0.1


@pytest.mark.parametrize("seed", range(3))
def test_eureka_never_loses_ground_and_comes_near_the_best(seed):
    found = scores(eureka(RuleWriter(RULE, seed), rounds=5, programs=6).rounds())
    assert found == sorted(found) and found[-1] >= 0.95


def test_eureka_selects_by_success_not_by_program_reward():
    class Boastful(Trainer):
        def train(self, program, seed):
            score = hidden_score(program.source)
            return Outcome(score, (1,), (score,), {"total": (1e6 * (1 - score),)})

    (found,) = eureka(Listed({"write": [[program(a=-1), program(a=0.6, b=-0.3)]]}), Boastful(), rounds=1).rounds()
    assert found.incumbent.index == 1


def test_equal_scores_are_ordered_by_training_success():
    def candidate(index, *successes):
        return TrainedCandidate(1, index, outcome=Outcome(0.5, tuple(range(len(successes))), successes))

    assert best_of([candidate(0, 0.0, 0.5), candidate(1, 0.4, 0.5), candidate(2, 0.4, 0.5)]).index == 1
    assert best_of([]) is None


# indices


def test_a_reply_without_a_program_shifts_nothing():
    replies = [["There is no code here.", program(a=0.6, b=-0.3), "```python\ndef pay(batch):\n    return 1\n```", program()]]
    source = Listed({"write": replies, "improve": [["nothing"]]})
    first, _ = eureka(source, rounds=2, programs=4).rounds()
    assert [each.status for each in first.candidates] == ["no code", "ok", "signature", "ok"]
    assert [each.is_scored for each in first.candidates] == [False, True, False, True]
    best = first.incumbent
    assert best.index == 1 and best.outcome.score == pytest.approx(1.0) and "a = 0.6" in best.program.source
    shown = source.asked[-1].messages  # the improved prompt: the program, then what came of that very program
    assert best.program.source in shown[-2].text
    assert "success of the final policy in new situations: 1" in shown[-1].text


def test_icpl_resamples_unusable_and_accepts_fewer():
    replies = [["no program", program(a=1), "no program", program(b=1), "no program", program(b=-1)]]
    source = Listed({"write": replies, "prefer": [[]]})
    first, second = icpl(source, programs=3, rounds=2, attempts=2).rounds()
    assert [each.index for each in first.candidates] == list(range(6))
    assert sum(each.is_scored for each in first.candidates) == 3
    assert len(second.candidates) == 6 and not any(each.is_scored for each in second.candidates)
    assert second.incumbent is first.incumbent


# what fails


def test_a_round_that_fails_whole_is_told_why():
    broken = "```python\ndef reward(batch):\n    return batch['speed'], {'speed': batch['speed']}\n```"
    source = Listed({"write": [["nothing", broken, broken]], "failed": [[program(a=0.6)]]})
    first, second = eureka(source, rounds=2, programs=3).rounds()
    assert first.incumbent is None and "commonest error (2 of 3)" in first.warnings[0]
    words = source.asked[-1].messages[-1].text
    assert "None of 3 programs could be used" in words and "(2 of 3)" in words and "speed" in words
    assert broken in source.asked[-1].messages[-2].text
    assert second.incumbent.outcome.score == pytest.approx(hidden_score(program(a=0.6)))


def test_failed_training_is_invalid_and_search_continues():
    trainer = Trainer(lambda source: "the terms became infinite" if "a = 0.9" in source else hidden_score(source))
    (found,) = eureka(Listed({"write": [[program(a=0.9), program(a=0.5)]]}), trainer, rounds=1).rounds()
    assert (found.candidates[0].status, found.candidates[0].reason) == ("training", "the terms became infinite")
    assert found.incumbent.index == 1


def test_probation_refuses_before_anything_is_trained():
    trainer = Trainer()
    writer = writer_of(Listed({"write": [[program(), program(a=1)]]}), attempt=lambda _: ("constant", "it never changes"))
    (found,) = Eureka(writer, trainer, TASK, EurekaConfig(rounds=1, programs=2)).rounds()
    assert {(each.status, each.reason) for each in found.candidates} == {("constant", "it never changes")}
    assert trainer.trained == []


def test_a_collapsed_population_is_warned_of():
    (found,) = eureka(Listed({"write": [[program(a=0.1), program(a=0.2)]]}), rounds=1).rounds()
    assert found.diversity.distinct == 2 and "nearly the same (2 of 2 programs are different" in found.warnings[0]
    other = RewardProgram.parse("def reward(batch):\n    x = np.tanh(batch['distance'])\n    return x, {'x': x}")
    spread = diversity([found.candidates[0].program, other])
    assert spread.distance > 0.3 and not spread.is_collapsed
    assert diversity([other, other]).is_collapsed and not diversity([other]).is_collapsed


# budget


def test_training_budget_ends_search_and_duplicates_are_free():
    trainer = Trainer()
    source = Listed({"write": [[program(a=0.1), program(a=0.1), program(a=0.2), program(a=0.3)]]})
    search = eureka(source, trainer, programs=4, budget=2)
    (found,) = search.rounds()
    assert len(trainer.trained) == 2 and search.ended == "the budget of trainings is spent"
    assert [each.status for each in found.candidates] == ["ok", "ok", "ok", "budget"]


def test_a_search_ends_where_the_replies_of_the_model_end():
    class Short(Listed):
        def ask(self, questions):
            first = next(questions)
            if first.purpose == "improve":
                raise OutOfReplies("The pack is at its end.")
            return super().ask(chain([first], questions))

    search = eureka(Short({"write": [[program(), program(a=1)]]}))
    assert len([*search.rounds()]) == 1 and search.ended == "the budget of the model is spent"


# what is shown


def test_a_prompt_that_comes_again_brings_other_replies():
    rule = WatchedRule(RULE, 1)
    worse_later = Trainer(lambda source: hidden_score(source) if hidden_score(source) < 0 else 0.5)  # nothing improves
    rounds = [*eureka(rule, worse_later, rounds=4).rounds()]
    assert rounds[2].incumbent is rounds[1].incumbent
    hashes = [[each.program.hash for each in round.candidates] for round in rounds]
    assert len({name for names in hashes for name in names}) == 8


def test_the_hidden_score_is_in_no_prompt_of_icpl():
    def prompts(score):
        rule = WatchedRule(RULE, 3)
        rounds = [*icpl(rule, trainer=Trainer(score), rounds=3).rounds()]
        return rule.asked, [each.outcome.score for round in rounds for each in round.candidates]

    asked, told = prompts(hidden_score)
    others, other = prompts(lambda source: 0.1 + 0.7351926 * hidden_score(source))  # of the same order
    assert told != other and asked == others
    words = "\n".join(message.text for prompt in asked for message in prompt.messages)
    assert {prompt.purpose for prompt in asked} == {"write", "prefer", "difference"}
    assert "all: 0, 1, " in words and "success" not in words.lower()


def test_icpl_shows_best_worst_and_changes():
    rule = WatchedRule(RULE, 0)
    rounds = [*icpl(rule, rounds=3).rounds()]
    last = [prompt for prompt in rule.asked if prompt.purpose == "prefer"][-1]
    assert rounds[1].incumbent.program.source.strip() in last.messages[-2].text
    assert rounds[1].worst.program.source.strip() in last.messages[-1].text
    assert "How the good programs changed" in last.messages[-1].text and "went from" in last.messages[-1].text


def test_a_reflection_shows_ten_values_and_all_extremes():
    values = [0.0] * 50 + [7.0] + [1.0] * 50
    assert trace(values).count(",") == 9 + 2 and "max 7, mean 0.564, min 0" in trace(values)
    assert trace([1.0, 2.0]) == "1, 2; max 2, mean 1.5, min 1" and trace([]) == "no value"
    lines = reflection(Outcome(0.25, (1, 2), (0.0, 0.5), {"total": (1.0,), "near": (2.0,)})).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "near",
        "total",
        "success",
        "success of the final policy in new situations",
    ]
    assert lines[-1].endswith(": 0.25")


# who compares


def test_seven_questions_find_best_and_worst_of_six():
    asked = []

    class Counting:
        identity = "counting", "0"

        def compare(self, first, second):
            asked.append((first, second))
            return float(second > first)

    assert extremes(Counting(), [3, 1, 4, 1.5, 9, 2]) == (9, 1)
    assert len(asked) == 7
    assert extremes(Counting(), [5]) == (5, 5)


def test_answers_are_kept_and_not_asked_for_again(tmp_path):
    asked = []

    class Person:
        identity = "person anna", "0"

        def compare(self, first, second):
            asked.append((first.name, second.name))
            return "skip" if len(asked) == 2 else float(second.merit > first.merit)

    runs = [
        scores(icpl(RuleWriter(RULE, 2), KeptComparer(Person(), tmp_path / "comparisons.jsonl"), rounds=2).rounds())
        for _ in range(2)
    ]
    assert runs[0] == runs[1] and len(asked) == 7 + 7 + 1
    assert json.loads((tmp_path / "comparisons.jsonl").read_text().splitlines()[1])["answer"] == "skip"


# killed and gone on with


class Killed(BaseException):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 4, 9])
def test_a_search_that_was_killed_goes_on_and_does_nothing_twice(tmp_path, after):
    class Mortal(Trainer):
        def train(self, program, seed):
            if len(self.trained) == after:
                raise Killed
            return super().train(program, seed)

    def search(trainer, rule, folder):
        begin(folder, {"task": "none"})
        kept = KeptTrainer(trainer, folder / "trainings")
        config = ICPLConfig(rounds=3, programs=4)
        comparer = KeptComparer(OracleComparer(), folder / "comparisons.jsonl")
        model = model_of(rule, folder / "calls.jsonl")
        try:
            writer = Writer(model, COLUMNS, lambda _: ("ok", ""))
            rounds = [*ICPL(writer, kept, TASK, config, comparer).rounds()]
            for each in rounds:
                keep_round(each, folder)
        finally:
            model.close()
        keep_program(rounds[-1].incumbent, folder / WINNER)
        return (folder / WINNER).read_text()

    whole = search(Trainer(), WatchedRule(RULE, 5), tmp_path / "whole")
    mortal, first, second, later = Mortal(), WatchedRule(RULE, 5), WatchedRule(RULE, 5), Trainer()
    with pytest.raises(Killed):
        search(mortal, first, tmp_path / "killed")
    assert search(later, second, tmp_path / "killed") == whole
    assert not {*mortal.trained} & {*later.trained} and len(mortal.trained) + len(later.trained) == 12
    asked = [(prompt.hash, prompt.purpose) for prompt in [*first.asked, *getattr(second, "asked", [])]]
    assert len(asked) == 3 * 4 + len([purpose for _, purpose in asked if purpose == "difference"])
    rounds = [json.loads((tmp_path / name / "rounds" / "3" / "round.json").read_text()) for name in ("whole", "killed")]
    assert rounds[0] == rounds[1]


def test_the_folder_of_another_search_is_refused(tmp_path):
    begin(tmp_path, {"method": "icpl", "seed": 0})
    begin(tmp_path, {"method": "icpl", "seed": 1})  # nothing was kept in between: a first command that failed binds nobody
    (tmp_path / "rounds").mkdir()
    begin(tmp_path, {"method": "icpl", "seed": 1})
    with pytest.raises(RunError, match="holds a search with other settings") as told:
        begin(tmp_path, {"method": "icpl", "seed": 2})
    assert "seed: 2, there 1" in str(told.value) and "another --out" in str(told.value)


@pytest.mark.parametrize(
    ("answers", "told"), [([1.0, "skip", 1.0], 1.0), ([0.0, 1.0], 0.5), (["skip", 0.0], 0.0), (["skip", "skip"], "skip")]
)
def test_rater_sees_same_starts_and_majority_decides(answers, told):
    seen = []

    class Rater:
        identity, kind = ("rater", "0"), "human"

        def compare(self, first, second):
            seen.append((first.episode, second.episode))
            return answers[len(seen) - 1]

    def episodes(candidate):
        return [f"{candidate.name} start {start}" for start in range(len(answers))]

    comparer = RaterComparer(Rater(), episodes)
    assert comparer.compare(TrainedCandidate(1, 0), TrainedCandidate(1, 1)) == told
    assert seen == [(f"1-0 start {start}", f"1-1 start {start}") for start in range(len(answers))]
