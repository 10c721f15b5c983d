"""Rewards from one sentence with goal-baseline regularisation: VLM-RM (Rocamonde et al. 2024, arXiv:2310.12921).

Differs from the authors' code: the mean of several sentences is brought to length 1 again, because at alpha = 0 the reward
would be no cosine otherwise; goal and baseline may have different numbers of sentences; a goal that the model does not tell
from the baseline is an error instead of a division by about zero; the reward follows from a closed form without the D x D
matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.images.similarity import SHORTEST, Direction, SimilarityReward


@dataclass(frozen=True, kw_only=True)
class VLMRM(SimilarityReward):
    """Reward of VLM-RM (Rocamonde et al. 2024): similarity of a picture and a goal sentence, with a baseline sentence.

    The direction from the baseline to the goal counts more than all other differences (regularisation).
    """

    method: ClassVar[str] = "vlm-rm"
    goal: tuple[str, ...] = ()
    """Goal in one or more wordings; empty for the instruction."""
    baseline: tuple[str, ...] = ()
    """Description of any picture of the scene, such as "a robot"; needed if alpha is above 0."""
    alpha: float = 0.5
    """Strength of the regularisation, 0 to 1: 0 gives the cosine, at 1 only the direction from baseline to goal counts. Default
    of the authors' README."""

    def __post_init__(self) -> None:
        super().__post_init__()
        words = "one or more sentences that say what any picture shows, or alpha=0"
        allowed = {"alpha": (0 <= self.alpha <= 1, "0 to 1"), "baseline": (bool(self.baseline) or self.alpha == 0, words)}
        require_allowed(self, allowed)

    @property
    @override
    def words(self) -> Mapping[str, Sequence[str]]:
        return {"goal": self.goal, "baseline": self.baseline}

    @property
    def hears_instruction(self) -> bool:
        """True if `goal` is empty, so that the instruction is the goal."""
        return not self.goal

    def values(self, pictures: Direction, instruction: str | None) -> npt.NDArray[np.float64]:
        """Return rewards (N,), at most 1.

        Raises InvalidSetting if there is no goal, or the model does not separate it from the baseline.
        """
        goal = self.direction(self._goal(instruction))
        if self.alpha == 0:
            return regularised(pictures, goal, np.zeros_like(goal), 0.0)
        difference = goal - self.direction(self.baseline)
        if np.linalg.norm(difference) < SHORTEST:
            raise InvalidSetting(
                "The image-text model does not tell goal from baseline.",
                got=f"{list(self._goal(instruction))} and {list(self.baseline)}",
                fix="other words; a baseline says what any picture shows",
            )
        return regularised(pictures, goal, difference, self.alpha)

    def _goal(self, instruction: str | None) -> Sequence[str]:
        if not self.goal and not instruction:
            raise InvalidSetting(
                "Nothing says what shall be done.", got="no goal, and an episode without instruction", fix="set `goal`"
            )
        return self.goal or [str(instruction)]


def regularised(s: Direction, g: Direction, d: Direction, alpha: float) -> npt.NDArray[np.float64]:
    """Return the regularised rewards r = 1 - |M (s - g)|^2 / 2 (N,) of VLM-RM, M = alpha P + (1 - alpha) I.

    P projects onto d. As P M = P and (I - P) M = (1 - alpha) (I - P), the square is (1 - alpha)^2 |s - g|^2 + (1 - (1 -
    alpha)^2) |P (s - g)|^2.

    Args:
        s: (N, D) embedded pictures.
        g: (D,) goal.
        d: (D,) difference between goal and baseline.
        alpha: Strength of the regularisation.
    """
    rest = (1 - alpha) ** 2
    away = s - g
    squared = rest * np.einsum("nd,nd->n", away, away)
    if rest < 1:
        squared += (1 - rest) * np.einsum("nd,d->n", away, d) ** 2 / np.einsum("d,d->", d, d)
    return np.asarray(1 - squared / 2)
