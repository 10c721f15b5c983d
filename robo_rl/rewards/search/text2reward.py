"""Text2Reward (Xie et al. 2024): a dense reward program from a sentence, mended by its errors and by a person's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robo_rl.errors import require_allowed
from robo_rl.rewards.search.candidate import Candidate
from robo_rl.rewards.search.prompts import Example, Feedback, RewardTask, after_feedback, at, opening
from robo_rl.rewards.search.writing import Writer


@dataclass(frozen=True)
class Text2RewardConfig:
    """How a program is asked for."""

    repairs: int = 5
    """How often the model is told what is wrong with its program; the released code asks again without end, untold."""
    temperature: float = 0.7
    """Of sampling, as in the released code."""

    def __post_init__(self) -> None:
        require_allowed(
            self, {"repairs": (self.repairs >= 0, "0 or more"), "temperature": (0 <= self.temperature <= 2, "0 to 2")}
        )


def write(
    writer: Writer,
    task: RewardTask,
    config: Text2RewardConfig,
    *,
    examples: Sequence[Example] = (),
    rounds: Sequence[Feedback] = (),
) -> Candidate:
    """Returns the program of the round that follows the feedback so far, or what is wrong with the last attempt at it.

    Without feedback this is the first round: zero-shot, or few-shot with examples.
    """
    prompt = at(after_feedback(opening(task, examples), rounds), config.temperature)
    (candidate,) = writer.candidates(prompt, 1, round=len(rounds) + 1, repairs=config.repairs)
    return candidate
