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
    """Rater that shows a person two pictures or two clips side by side, on a local web page, and waits for a key."""

    name: str = ""
    """Name of the person, under which the answers are stored."""
    camera: str = "front"
    """Camera whose pictures are shown: NAME of an observation camera_NAME, or the full name of an observation."""
    port: int = 8643
    """Port of the page on 127.0.0.1, which no other machine can reach; 0 takes any free port."""

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
        """URL of the page, which is served until the program ends."""
        return self._page.server.url

    def expect(self, total: int) -> None:
        """Show on the page how many comparisons are to come."""
        self._page.total = total

    @override
    def compare(self, first: Segment, second: Segment) -> Preference:
        """Show two segments, and wait for the person's answer without a time limit."""
        instructions = [part.episode.instruction or "" for part in (first, second)]
        return self._page.put({"first": self._clip(first), "second": self._clip(second), "instructions": instructions})

    def _clip(self, segment: Segment) -> list[str]:
        """Return the pictures after each step of a segment, as data URLs."""
        pictures: Any = pictures_of(segment.episode.observations, self.camera)
        return [data_url(picture) for picture in pictures[segment.start + 1 : segment.stop + 1]]

    @cached_property
    def _page(self) -> ComparisonPage:
        return ComparisonPage(self.port)
