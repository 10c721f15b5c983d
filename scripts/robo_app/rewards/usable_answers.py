"""Check that the models behind a reward or a rater gave usable answers; a model that never did is an error."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from robo_app.cluster.node_answers import parts_of
from robo_rl.errors import RewardUnavailable
from robo_rl.rewards.chat.client import SILENT, ModelClient, counted, remedy
from robo_rl.rewards.judges.rewards import WithJudge


class Answered(NamedTuple):
    """Answers of one model in this process, counted by status; answers taken from the cache count, too."""

    name: str
    statuses: Counter[str]
    remedy: str
    """What a user can do about useless answers of the model; "" if there are none."""

    @property
    def is_useless(self) -> bool:
        """True if the model was asked and gave no usable answer."""
        return self.statuses.total() > 0 and not self.statuses["ok"]


def answered_by(model: Any) -> list[Answered]:
    """Return the answers of each judge and language model of a reward (sources of a pipeline included) or of a rater."""
    found = []
    for part in parts_of(model):
        if isinstance(part, WithJudge):
            asking = part.asking
            found.append(Answered(asking.identity[0], asking.statuses, remedy(asking.statuses, asking.model)))
        elif isinstance(
            language := getattr(part, "__dict__", {}).get("model"), ModelClient
        ):  # made by its first question, if there was one
            found.append(Answered(language.identity[0], language.statuses, remedy(language.statuses)))
    return found


def require_usable(answered: list[Answered], claim: str, *, has_none: bool) -> None:
    """Raise RewardUnavailable if no label or score was made at all, or if a model never gave a usable answer.

    Args:
        answered: Answers by status, one entry for each model.
        claim: What was achieved, such as "0 of 9 steps have a label"; the error begins with it.
        has_none: True if nothing was achieved.
    """
    useless = [each for each in answered if each.is_useless]
    if not has_none and not useless:
        return
    worst = useless or answered
    got = "; ".join(f"{each.name}: {counted(each.statuses) or 'no answer'}" for each in worst)
    helps = [each.remedy for each in worst if each.remedy]
    raise RewardUnavailable(
        f"{claim}, from no usable answer." if useless else f"{claim}.",
        got=got or "a model that gives none for these episodes",
        allowed="one usable answer at least",
        fix="; ".join(helps) or "look at the model, and at the episodes that it is to judge",
    )


def gaps_explained(answered: list[Answered], *, is_elsewhere: bool) -> str:
    """Say which missing labels the same command, run again, would ask a model for once more, and which gaps it keeps.

    Args:
        answered: Answers by status, one entry for each model that was asked.
        is_elsewhere: True if other processes asked the models, so that their answers are not known here.
    """
    if is_elsewhere:
        return "the same command asks again for answers that never came; others are kept"
    statuses: Counter[str] = sum((each.statuses for each in answered), Counter())
    silent, useless = (
        {name: count for name, count in statuses.items() if (name in SILENT) is kind and name != "ok"} for kind in (True, False)
    )
    parts = [f"{counted(silent)}, asked for again by the same command"] if silent else []
    helps = next((each.remedy for each in answered if each.remedy), "")
    parts += [f"{counted(useless)}, kept and not asked for again ({helps})"] if useless else []
    return "; ".join(parts) or "the model has none for the others"
