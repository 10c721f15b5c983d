"""The rater `person`, who compares segments on a local web page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from typing_extensions import override

from robo_datasets.comparison_page.server import ComparisonPage
from robo_rl.rewards.chat.question import data_url
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.images.picture_reward import pictures_of
from robo_rl.rewards.preferences.raters import Preference, Rater, Segment


@dataclass(frozen=True)
class PersonRater(Rater):
    """Person who compares two pictures, or two clips, side by side and presses a key."""

    name: str = ""
    """Name of the person; answers are stored by it."""
    camera: str = "front"
    """Camera to show: the observation camera_<name>, or an observation's full name."""
    port: int = 8643
    """Port on 127.0.0.1, which no other machine reaches; 0 takes any free one."""

    @property
    @override
    def kind(self) -> Literal["human"]:
        return "human"

    @property
    @override
    def identity(self) -> tuple[str, str]:
        return f"person {self.name}".strip(), hash_of(self.name.encode(), self.camera.encode())

    @property
    def address(self) -> str:
        """URL of the page, served until the program ends."""
        return self._page.server.url

    def expect(self, total: int) -> None:
        """Tell the person how many comparisons are to come."""
        self._page.total = total

    @override
    def compare(self, first: Segment, second: Segment) -> Preference:
        """Wait for the person's answer without a time limit."""
        instructions = [part.episode.instruction or "" for part in (first, second)]
        return self._page.put({"first": self._clip(first), "second": self._clip(second), "instructions": instructions})

    def _clip(self, segment: Segment) -> list[str]:
        """Return the pictures after each step of a segment."""
        pictures: Any = pictures_of(segment.episode.observations, self.camera)
        return [data_url(picture) for picture in pictures[segment.start + 1 : segment.stop + 1]]

    @cached_property
    def _page(self) -> ComparisonPage:
        return ComparisonPage(self.port)
