"""Criticism of spans of time as rewards of steps, after Text2Grad.

Wang et al. 2025, "Text2Grad: Reinforcement Learning from Natural Language Feedback", arXiv:2505.22338, criticises spans of a
text and rewards its words one by one. Here the text is a recorded episode, and a criticism says from when to when something was
good or poor. Summed over an episode it would teach little: only the place tells an agent which step to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting

_TIME = r"(\d++(?:\.\d++)?+)"
_NOTE = re.compile(rf"\s*+{_TIME}\s*+(?:-|to)\s*+{_TIME}\s*+s?+\s*+[,:]?+\s*+(good|poor)\b\s*+[,:]?+\s*+(.*+)", re.DOTALL)
"""Every part takes all it can for good, because notes come with foreign datasets: going back over spaces takes minutes."""
Paid = Literal["each", "last", "shared"]


@dataclass(frozen=True)
class SpanFeedback:
    """A remark on a recorded episode: its span of time, and whether it was good or poor."""

    start: float
    """[s] begin of the span, since the beginning of the episode"""
    stop: float
    """[s] end of the span, since the beginning of the episode"""
    is_good: bool
    text: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise InvalidSetting(
                "A span of time runs backwards.", got=f"{self.start} to {self.stop} s", allowed="start to stop"
            )

    @classmethod
    def read(cls, note: str) -> SpanFeedback | None:
        """Read a remark such as "2.1-3.0 s poor: gripper too fast"; return None for any other note."""
        found = _NOTE.fullmatch(note)
        if found is None:
            return None
        start, stop, sign, text = found.groups()
        return cls(float(start), float(stop), sign == "good", text.strip())


def span_rewards(
    times: npt.NDArray[np.float64], spans: Iterable[SpanFeedback], *, paid: Paid = "each"
) -> tuple[npt.NDArray[np.float64], Sequence[SpanFeedback]]:
    """Return rewards (T,) of the steps between times (T + 1,) [s], and the spans in which no step lies.

    A step counts if its action lies in the span: the action of step t is taken at time t. paid: 1 or -1 for "each" step of a
    span, for its "last" one, or "shared" over them. Spans add up.
    """
    begun = times[:-1] - times[0]
    rewards, missed = np.zeros(len(begun)), []
    for span in spans:
        steps = np.flatnonzero((begun >= span.start - 1e-9) & (begun <= span.stop + 1e-9))
        if not steps.size:
            missed.append(span)
            continue
        sign = 1.0 if span.is_good else -1.0
        chosen = steps[-1:] if paid == "last" else steps
        rewards[chosen] += sign / len(steps) if paid == "shared" else sign
    return rewards, missed
