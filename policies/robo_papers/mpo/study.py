"""A rubric that can be hacked on a small grid: fixed, rewritten by a meta judge, and rewritten by one that believes the scores.

python -m robo_papers.mpo.study --seeds 3

The judge reads pictures and the words of the rubric; the meta judge finds episodes whose scores and success disagree. Both
follow rules.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_papers.mpo.rubrics import Criterion, Rubric, RubricReward, Sample, rewritten
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.models import Terms
from robo_rl.rewards.chat.question import Answer, Question
from robo_rl.rewards.chat.store import AnswerStore

Floats = npt.NDArray[np.float64]
SIZE, LONGEST, EPISODES, UPDATES, EVERY, RATE = 5, 14, 32, 300, 30, 6.0
GOAL, BIN = (4, 4), (2, 2)
INSTRUCTION = "drive to the lower right corner"
NEARNESS = Criterion(name="ends_near_the_corner", levels=("far away", "half of the way", "near", "next to it", "there"))
BUSY = Criterion(name="time_at_the_bin", levels=("hardly ever", "at times", "often", "most of the time"), weight=4)
IDLE = Criterion(name="lingers_at_the_bin", levels=("most of the time", "often", "at times", "hardly ever"), weight=5)
FIRST = Rubric((NEARNESS, BUSY))


def where(picture: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Return the place (row, column) of the agent in a picture (5, 5, 3)."""
    row, column = np.unravel_index(int(picture[..., 0].argmax()), (SIZE, SIZE))
    return int(row), int(column)


def drawn(cells: list[tuple[int, int]]) -> npt.NDArray[np.uint8]:
    """Draw a picture (5, 5, 3) of each of T places: (T, 5, 5, 3)."""
    pictures = np.zeros((len(cells), SIZE, SIZE, 3), np.uint8)
    for number, cell in enumerate(cells):
        pictures[number, *cell] = 255
    return pictures


@dataclass(frozen=True)
class Rules:
    """Judge and meta judge that answer by rules; they know no more than the question says."""

    is_told: bool = True
    """False for a meta judge that does not look at the success of the episodes: it believes the scores."""
    terms: Terms = field(default_factory=Terms)

    @property
    def identity(self) -> tuple[str, str]:
        """Name of this judge, and a hash of its settings."""
        return "rules", str(self.is_told)

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Answer questions by rules: yield (number of the question, answer), in order."""
        for number, question in enumerate(questions):
            words = "\n".join(part for part in question.parts if isinstance(part, str))
            cells = [where(part) for part in question.parts if not isinstance(part, str)]
            found = self._content(question, words, cells)
            yield number, Answer("ok", text=found if isinstance(found, str) else json.dumps(found), model="rules")

    def _content(self, question: Question, words: str, cells: list[tuple[int, int]]) -> Any:
        fields = question.schema.get("properties", {})
        score = float(words.split("from 0 to 1: ")[1][:4]) if "from 0 to 1: " in words else 0.0
        inflated = self.is_told and "not done, as is known" in words and score > 0.5
        if "verdict" in fields:
            return {"verdict": "bad" if inflated else "good"}
        if not question.form:
            return "It is inflated: paid for staying at the bin." if inflated else "It fits."
        if "criteria" in fields:
            names = [each for each in (NEARNESS, BUSY, IDLE) if f"{each.name} (weight" in words]
            if "inflated: paid" in words and IDLE not in names:
                names.append(IDLE)
            return {"criteria": [each.model_dump(mode="json") for each in names]}
        return {"rationale": "", **{name: levels_of(name, cells) for name in fields if name != "rationale"}}


def levels_of(name: str, cells: list[tuple[int, int]]) -> int:
    """Return the level of a criterion of the rubric for a clip, given the grid cells that it visits."""
    if name == NEARNESS.name:
        far = abs(cells[-1][0] - GOAL[0]) + abs(cells[-1][1] - GOAL[1])
        return max(0, 4 - far) if far < 4 else 0
    share = float(np.mean([cell == BIN for cell in cells]))
    busy = int(np.searchsorted([0.1, 0.25, 0.4], share))
    return busy if name == BUSY.name else 3 - busy


def scoring(asking: ModelClient, rubric: Rubric, folder: Path) -> RubricReward:
    """Return the reward of a rubric, which is written to a folder if it is not there."""
    path = folder / f"rubric-{rubric.version}.yaml"
    if not path.exists():
        rubric.write(path)
    reward = RubricReward(judge="chance", rubric=str(path), frames=LONGEST + 1)
    reward.ask_by(asking)
    return reward


def played(policy: Floats, random: np.random.Generator) -> tuple[list[tuple[int, int]], list[int]]:
    """Play an episode from the upper left corner, and return its cells (T + 1) and actions (T)."""
    cells, actions = [(0, 0)], list[int]()
    for _ in range(LONGEST):
        action = int(random.choice(5, p=policy[cells[-1][0] * SIZE + cells[-1][1]]))
        step = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))[action]
        cells.append(tuple(int(np.clip(at + by, 0, SIZE - 1)) for at, by in zip(cells[-1], step, strict=True)))  # type: ignore[arg-type]
        actions.append(action)
    return cells, actions


@dataclass
class Progress:
    """Course of a training, with one entry for each update."""

    success: list[float] = field(default_factory=list)
    agreement: list[float] = field(default_factory=list)
    """Correlation of score and success over the latest episodes that the present rubric scored; NaN if all are alike."""
    versions: list[int] = field(default_factory=list)

    @property
    def last_agreement(self) -> float:
        """Newest correlation of score and success that is known."""
        return [each for each in self.agreement if np.isfinite(each)][-1]


def learned(kind: str, seed: int, folder: Path) -> Progress:
    """Return the figures of policy gradients on scores by a rubric: "fixed", "rewritten", or by a meta judge who "believes".

    All episodes of an update are scored by one version.
    """
    random, logits, found = np.random.default_rng(seed), np.zeros((SIZE * SIZE, 5)), Progress()
    (folder / f"{kind}-{seed}").mkdir()
    asking = ModelClient(Rules(kind != "believes"), store=AnswerStore(str(folder / f"{kind}-{seed}")))
    rubric, samples = FIRST, list[Sample]()
    for update in range(UPDATES):
        reward = scoring(asking, rubric, folder / f"{kind}-{seed}")
        weights = np.exp(logits - logits.max(1, keepdims=True))
        policy = 0.9 * weights / weights.sum(1, keepdims=True) + 0.02
        batch = [played(policy, random) for _ in range(EPISODES)]
        clips = [drawn(cells) for cells, _ in batch]
        scores = np.array([reward.scores_at(each, np.arange(len(each)), INSTRUCTION).values[0] for each in clips], np.float64)
        done = [cells[-1] == GOAL for cells, _ in batch]
        fresh = [Sample(clip, INSTRUCTION, score, success) for clip, score, success in zip(clips, scores, done, strict=True)]
        samples = [*samples, *fresh][-4 * EPISODES :]
        gains = scores - scores.mean()
        for (cells, actions), gain in zip(batch, gains, strict=True):
            for cell, action in zip(cells, actions, strict=False):
                place = cell[0] * SIZE + cell[1]
                logits[place] += RATE * gain / EPISODES * (np.eye(5)[action] - policy[place])
        found.success.append(float(np.mean(done)))
        known = [(each.score, float(each.success is True)) for each in samples]
        varies = len({success for _, success in known}) > 1 and len({score for score, _ in known}) > 1
        found.agreement.append(float(np.corrcoef(np.array(known).T)[0, 1]) if varies else float("nan"))
        found.versions.append(rubric.version)
        if kind != "fixed" and (update + 1) % EVERY == 0:
            result = rewritten(asking, rubric, samples, most=10, seed=update)
            rubric, samples = result.rubric, [] if result.rubric is not rubric else samples
    return found


def main() -> None:
    """Run the study of this module as a command, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    names = {
        "fixed": "fixed",
        "rewritten": "rewritten every 30 updates",
        "believes": "rewritten by one who believes the scores",
    }
    print("| rubric | success over the last ten updates | correlation of score and success | last version |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind, name in names.items():
            runs = [learned(kind, seed, Path(folder)) for seed in range(given.seeds)]
            success = ", ".join(f"{np.mean(run.success[-10:]):.2f}" for run in runs)
            agreement = ", ".join(f"{run.last_agreement:.2f}" for run in runs)
            print(f"| {name} | {success} | {agreement} | {', '.join(str(run.versions[-1]) for run in runs)} |", flush=True)


if __name__ == "__main__":
    main()
