"""How many commands of a policy were executed as proposed, and why the others were changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from robo_rl.environments.stepping import VERDICTS
from robo_rl.types import AS_PROPOSED, ActionSource, Episode

REASONS = VERDICTS[0]


@dataclass(frozen=True)
class Commands:
    """Numbers of commands that were executed as proposed, or changed, in the episodes of an evaluation."""

    total: int
    """Number of commands, one per step."""
    as_proposed: int
    """Number of commands that were executed as the policy proposed them."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """Reason of the guard, or source such as "human" -> number of changed commands; a command may have several reasons."""

    @property
    def warning(self) -> str:
        """Warning in words if not one command was executed as proposed; otherwise ""."""
        if self.as_proposed or not self.total:
            return ""
        return "no command was executed as the policy proposed it: these figures are of what changed them, not of the policy"

    def __str__(self) -> str:
        reasons = "".join(f"; {reason} {count}" for reason, count in self.changed.items())
        return f"executed as proposed: {self.as_proposed} of {self.total} commands{reasons}"


def commands_of(episodes: Sequence[Episode]) -> Commands:
    """Count the commands of recorded episodes."""
    changed = Counter[str]()
    for episode in episodes:
        reasons: Mapping[str, Sequence[str]] = episode.metadata.get(REASONS, {})
        for step in np.flatnonzero(~np.isin(episode.sources, AS_PROPOSED)):
            changed.update(reasons.get(str(step)) or [ActionSource(int(episode.sources[step])).name.lower()])
    as_proposed = sum(int(np.isin(episode.sources, AS_PROPOSED).sum()) for episode in episodes)
    return Commands(sum(map(len, episodes)), as_proposed, dict(changed.most_common()))
