"""Task of fetching one of several objects that look alike, in which the agent may ask questions at a cost.

After the task of Ramrakhya et al. 2025, "Grounding Multimodal LLMs to Embodied Agents that Ask for Help with Reinforcement
Learning" (Ask-to-Act), arXiv:2504.00907, without its pictures and words: K objects stand in a row, each described by bits; one
of them is meant. A question asks for one bit of it. H is the entropy of the belief, log2 of the objects left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.measures import Measure
from robo_rl.protocols.components import Stateful
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, Observation, ObservationSpec
from robo_rl.types import StateDict
from robo_sims.simulation import Arrays, Simulation, SimulationStep
from robo_sims.task_family import TaskFamily

TASKS = ("Fetch-v0",)
Answers = Literal["true", "shuffled"]
Bonus = Literal["bits", "question"]


class FetchSimulation(Simulation):
    """Simulation: one object of several is to be fetched, by moves, a grasp, and questions about the object's bits.

    reward = success - question_cost per question - step_cost per step + information (H before - H after the question)
    """

    measures = (Measure("questions", "1", "questions asked"),)

    def __init__(
        self,
        task: str,
        *,
        objects: int = 4,
        question_cost: float = 0.05,
        step_cost: float = 0.01,
        information: float = 0.1,
        answers: Answers = "true",
        bonus: Bonus = "bits",
    ) -> None:
        """Objects differ in as few bits as they need; one more bit is the same for all, and asking for it is useless.

        objects: K. information: reward for a bit learned; it adds up to log2 K at most, however often is asked. answers:
        "shuffled" answers by chance, a control. bonus: "question" pays `information` for each question, a control.
        """
        allowed = {
            "objects": (objects, isinstance(objects, int) and objects >= 1, "an integer from 1"),
            "question_cost": (question_cost, question_cost >= 0, "0 or more"),
            "step_cost": (step_cost, step_cost >= 0, "0 or more"),
            "information": (information, information >= 0, "0 or more"),
            "answers": (answers, answers in ("true", "shuffled"), "true or shuffled"),
            "bonus": (bonus, bonus in ("bits", "question"), "bits or question"),
        }
        for name, (value, is_allowed, words) in allowed.items():
            if not is_allowed:
                raise InvalidSetting(f"{name} is out of range.", got=value, allowed=words)
        self._costs, self._information = (question_cost, step_cost), information
        self._answers, self._bonus = answers, bonus
        self.bits = math.ceil(math.log2(objects))
        self._codes = (np.arange(objects)[:, None] >> np.arange(self.bits + 1)) & 1
        self._codes[:, self.bits] = 0
        names = ("left", "right", "grasp", *(f"ask_{bit}" for bit in range(self.bits + 1)))
        self.spec = EnvironmentSpec(
            f"questions/{task}",
            ObservationSpec(
                (
                    ArraySpec("place", (objects,), low=0.0, high=1.0, meaning="one-hot place of the hand"),
                    ArraySpec("candidates", (objects,), low=0.0, high=1.0, meaning="objects that fit all answers, by place"),
                    ArraySpec("bits", (objects, self.bits + 1), low=0.0, high=1.0, meaning="description of each object"),
                )
            ),
            ActionSpec(names, mode="discrete"),
            max_steps=3 * objects + 2 * self.bits + 4,
            success_rule="the grasped object is the one that is meant",
            instruction="fetch the object that is meant; ask if it is not clear",
        )
        self.scripted_policy = lambda seed, noise=0.0: AskingPolicy(self.spec, self.bits, seed, noise)
        self._random = np.random.default_rng()
        self._order, self._place, self._target, self._asked = np.arange(objects), 0, 0, 0
        self._fits = np.ones(objects, np.bool_)

    @property
    def entropy(self) -> float:
        """Entropy H of what is known about the object [bit]: log2 of the number of objects left."""
        return math.log2(max(int(self._fits.sum()), 1))

    @override
    def reset(self, seed: int | None) -> Arrays:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        count = len(self._codes)
        self._order = self._random.permutation(count)
        self._place, self._target = int(self._random.integers(count)), int(self._random.integers(count))
        self._fits, self._asked = np.ones(count, np.bool_), 0
        return self._observe()

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        chosen, (question, each) = int(action), self._costs
        terms = {"success": 0.0, "questions": 0.0, "steps": -each, "information": 0.0}
        grasped = chosen == 2
        if chosen in (0, 1):
            self._place = int(np.clip(self._place + (1 if chosen else -1), 0, len(self._codes) - 1))
        elif not grasped:
            terms |= {"questions": -question, "information": self._information * self._ask(chosen - 3)}
        success = grasped and self._place == self._target
        terms["success"] = float(success)
        measures = {"questions": float(self._asked)}
        return SimulationStep(
            self._observe(), sum(terms.values()), grasped, success=success, reward_terms=terms, measures=measures
        )

    def _ask(self, bit: int) -> float:
        """Ask for a bit of the object that is meant; returns the bits learned, or 1 for the control."""
        before = self.entropy
        described = self._codes[self._order][:, bit]
        answer = int(described[self._target]) if self._answers == "true" else int(self._random.integers(2))
        left = self._fits & (described == answer)
        self._fits = left if left.any() else self._fits
        self._asked += 1
        return 1.0 if self._bonus == "question" else before - self.entropy

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        """Draw a row of squares (H, W, 3): candidates blue, other objects grey, a dark frame for the hand."""
        picture = np.full((64, 64 * len(self._codes), 3), 230, np.uint8)
        for place, fits in enumerate(self._fits):
            picture[16:48, 64 * place + 16 : 64 * place + 48] = (50, 80, 200) if fits else (180, 180, 180)
        picture[4:10, 64 * self._place + 4 : 64 * self._place + 60] = 20
        return picture

    @override
    def close(self) -> None:
        """Do nothing: the simulation holds nothing that must be closed."""

    def _observe(self) -> Arrays:
        place = np.eye(len(self._codes), dtype=np.float32)[self._place]
        bits = self._codes[self._order].astype(np.float32)
        return {"place": place, "candidates": self._fits.astype(np.float32), "bits": bits}


class AskingPolicy(Stateful):
    """Scripted expert: asks for one bit after the other until one object is left, then goes there."""

    def __init__(self, spec: EnvironmentSpec, bits: int, seed: int, noise: float) -> None:
        self.environment_spec, self._bits, self._noise = spec, bits, noise
        self._random = np.random.default_rng(seed)
        self._next = 0

    def reset(self) -> None:
        """Begin an episode with the question for the first bit."""
        self._next = 0

    def act(self, observation: Observation, *, deterministic: bool = False) -> npt.NDArray[np.int64]:
        """Return the action of the next question, move or grasp, an int64 scalar."""
        if not deterministic and self._random.random() < self._noise:
            return np.asarray(self._random.integers(self.environment_spec.action.size))
        left = np.flatnonzero(observation["candidates"])
        if len(left) > 1 and self._next < self._bits:
            self._next += 1
            return np.asarray(2 + self._next)
        away = int(left[0]) - int(np.argmax(observation["place"]))
        return np.asarray(2 if not away else int(away > 0))

    @override
    def state_dict(self) -> StateDict:
        return {"random": self._random.bit_generator.state, "next": self._next}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._random.bit_generator.state, self._next = state["random"], int(state["next"])


def best_questions(objects: int, question_cost: float) -> int:
    """Return the n with the largest success probability, min(1, 2^n / K), minus the cost of n questions; steps are free."""
    worth = [min(1.0, 2.0**count / objects) - question_cost * count for count in range(math.ceil(math.log2(objects)) + 1)]
    return int(np.argmax(worth))


def _tasks() -> Iterable[str]:
    return TASKS


FAMILY = TaskFamily("questions", _tasks, FetchSimulation, drawing=("render_mode",))
"""Family of the environments "questions/...": one of several objects that look alike, with questions that cost something."""
