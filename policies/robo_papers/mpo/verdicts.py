"""Verdicts of a language model in this process on scores, where it is known whether they fit.

python -m robo_papers.mpo.verdicts --cases 12
"""

from __future__ import annotations

from robo_bench.local_model import INSTRUCTION, asked_for, choices
from robo_papers.mpo.rubrics import META, Rubric, VerdictForm
from robo_rl.rewards.chat.question import Question
from robo_rl.rewards.judges.heads import worded


def verdicts(count: int) -> list[tuple[Question, str]]:
    """Return `count` test questions for a meta judge, each with its right answer.

    A question asks whether the judge's score of an episode fits; the outcome of the episode is known.
    """
    found = list[tuple[Question, str]]()
    for number in range(count):
        is_done, fits = number % 2 == 0, number % 4 < 2
        score = 0.95 if is_done == fits else 0.05
        facts = f"The judge's score, from 0 to 1: {score}\nThe task was {'done' if is_done else 'not done'}, as is known."
        task = worded("The task of the robot: <task>{instruction}</task>", f"{INSTRUCTION} {number}")
        words = "Does the score fit what the clip shows of the task? good: yes; ok: more or less; bad: no."
        asked = Question((f"The rubric:\n{Rubric().words}", f"{task}\n{facts}", words), VerdictForm, META)
        found.append((asked, "good" if fits else "bad"))
    return found


if __name__ == "__main__":
    model, count = asked_for("robo_papers.mpo.verdicts", __doc__)
    print(choices(model, "meta judge: does a score fit?", verdicts(count), "verdict").row())
