"""Active questions: ask a rater those comparisons whose answers say most about the rater, by a model of several people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robo_app.rewards.preference_rows import Rows, pairs_of
from robo_datasets.dataset import Dataset
from robo_datasets.preference_collection import Question, collect_preferences
from robo_datasets.preferences import PreferenceSet
from robo_papers.vpl.model import Answers, Posterior, information_gain
from robo_papers.vpl.reward import SavedUsers
from robo_rl.rewards.preferences.preference_reward import Pairs
from robo_rl.rewards.preferences.raters import Rater


def ask_actively(
    dataset: Dataset, rater: Rater, drawn: Sequence[Question], *, pairs: int, length: int, name: str, folder: str
) -> tuple[int, Posterior]:
    """Ask a rater, of the questions drawn, always the one whose answer says most, until there are `pairs` answers.

    Each answer is durable at once. Returns the number of new answers and the posterior of the rater then. Raises SpecMismatch
    for a model of another dataset.
    """
    users = SavedUsers(folder)
    users.spec.require(dataset.spec, what=f"The users of {folder} compared episodes of another environment")
    rows, identity = Rows(dataset, dataset.entries()), ":".join(rater.identity)
    questions = list(dict.fromkeys(drawn))
    segments = [rows.segment((entry.identity, start, start + length)) for each in questions for entry, start in each]
    candidates = Pairs(np.stack(segments[::2]), np.stack(segments[1::2]), np.zeros(len(questions), np.float32))
    own = [each for each in PreferenceSet(dataset, name) if each.rater == identity]
    answered = {(each.first, each.second) for each in own}
    ends = [tuple((entry.identity, start, start + length) for entry, start in each) for each in questions]
    left, asked = np.array([each not in answered for each in ends], np.bool_), 0
    posterior = _known(users, dataset, name, identity, rows)
    while len(own) + asked < pairs and left.any():
        gains = np.where(left, information_gain(users.model, posterior, candidates), -np.inf)
        best = int(gains.argmax())
        left[best] = False
        if not collect_preferences(dataset, rater, [questions[best]], length, name):
            break  # the rater cannot be reached
        asked += 1
        posterior = _known(users, dataset, name, identity, rows)
    return asked, posterior


def _known(users: SavedUsers, dataset: Dataset, name: str, identity: str, rows: Rows) -> Posterior:
    """Return the posterior of a rater."""
    usable = [each for each in PreferenceSet(dataset, name) if each.rater == identity and each.label != "skip"]
    size = len(users.model.mean)
    nothing = np.zeros((0, 1, size), np.float32)
    none = Pairs(nothing, nothing, np.zeros(0, np.float32))
    return users.model.posterior(Answers.of(pairs_of(usable, rows) if usable else none))
