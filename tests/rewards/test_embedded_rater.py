"""The embedded rater compares by what the model sees: by how much is done, or by how much was gained."""

from __future__ import annotations

import numpy as np
import pytest

from robo_rl.errors import InvalidSetting
from robo_rl.rewards.embedded.rewards import EmbeddedRater
from robo_rl.rewards.preferences.raters import Segment
from robo_rl.types import Episode, Labels


class Brightness:
    """Sees how much is done by how bright a picture is; nothing where it is white."""

    identity = ("brightness", "0")

    def score(self, pictures, firsts, instruction):
        assert len(pictures) == len(firsts) and instruction == "go" and (firsts == firsts[:1]).all()
        level = pictures[:, 0, 0, 0].astype(np.float32)
        return Labels(level / 255, level < 255)


def segment(*levels: int, start: int = 0) -> Segment:
    steps = len(levels) - 1
    pictures = np.broadcast_to(np.array(levels, np.uint8)[:, None, None, None], (steps + 1, 4, 4, 3))
    zeros = np.zeros((steps, 1), np.float32)
    episode = Episode(
        {"camera_front": pictures},
        zeros,
        zeros,
        zeros[:, 0],
        np.zeros(steps, np.int8),
        np.arange(steps + 1.0),
        terminated=False,
        truncated=True,
        stop_reason="time_limit",
        success=None,
        seed=0,
        spec_fingerprint="x",
        instruction="go",
    )
    return Segment(episode, start, steps)


@pytest.mark.parametrize(
    ("compares", "first", "second", "wanted"),
    [
        ("level", segment(0, 200, 200), segment(0, 100, 100), 0.0),
        ("level", segment(250, 10), segment(0, 20), 1.0),  # the picture before the first action does not count
        ("level", segment(0, 100, 200), segment(0, 150, 150), 0.5),
        ("level", segment(0, 100, 255), segment(0, 1, 1), "skip"),
        ("gain", segment(200, 200, 200), segment(0, 50, 100), 1.0),
        ("gain", segment(0, 250, 100), segment(0, 0, 99), 0.5),  # within the margin; what lies between does not count
        ("gain", segment(100, 40), segment(100, 100), 1.0),
        ("gain", segment(0, 9, 9, 200, start=2), segment(0, 100), 0.0),
        ("gain", segment(255, 100), segment(0, 1), "skip"),
    ],
)
def test_segments_are_compared(compares, first, second, wanted):
    rater = EmbeddedRater(folder="x", compares=compares)
    rater.__dict__["_progress"] = Brightness()
    assert rater.compare(first, second) == wanted
    turned = {0.0: 1.0, 1.0: 0.0}.get(wanted, wanted)
    assert rater.compare(second, first) == turned


def test_what_answers_follow_from_is_told_apart():
    def identity(**settings):
        rater = EmbeddedRater(folder="x", **settings)
        rater.__dict__["_progress"] = Brightness()
        return rater.identity

    assert len({identity(), identity(compares="gain"), identity(margin=0.02)}) == 3
    with pytest.raises(InvalidSetting, match="Which fitted reward"):
        EmbeddedRater()
