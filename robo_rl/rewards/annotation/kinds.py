"""What makes rewards of labels: the promise that retrieval, classification and ranking keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from robo_rl.rewards.annotation.annotator import Label
from robo_rl.rewards.annotation.desk import Query
from robo_rl.types import Labels, Metrics, StateDict


class CaptionRewards(Protocol):
    """r_llm of captions, from the labels that are known."""

    @property
    def metrics(self) -> Metrics:
        """Scalars of the last fit, where there is one."""

    def wanted(self, visits: Mapping[str, int]) -> Sequence[Query]:
        """Takes in how often captions were met, the newest last, and returns what to ask, the most wanted last."""

    def learn(self, labels: Sequence[Label]) -> None:
        """Takes in labels that have arrived."""

    def values(self, captions: Sequence[str]) -> Labels:
        """Return r_llm of V distinct captions."""

    def restore(self, labels: Sequence[Label]) -> None:
        """Takes in labels that were learnt from before the state was saved; called before `load_state_dict`."""

    def state_dict(self) -> StateDict:
        """Returns everything but the labels."""

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
