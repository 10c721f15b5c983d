"""LeRobotDataset v3.0: https://huggingface.co/docs/lerobot/lerobot-dataset-v3, as of the source of lerobot 0.4.4.

    meta/info.json, stats.json, tasks.parquet, episodes/chunk-000/file-000.parquet; robo_rl.json adds our spec
    data/chunk-000/file-000.parquet         one row for each step
    videos/<key>/chunk-000/file-000.mp4     cameras, many episodes in a film

LeRobot has one frame per action, so the observation after the last action is missing. Its `timestamp` is frame / fps; we add
`observation.wall_time`, the real time [s] since the start of the episode. Of the flags, `next.terminated` is our addition, and
`next.reward`, `next.done`, `next.truncated` and `next.success` are LeRobot's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from typing_extensions import override

from robo_datasets.formats.lerobot_layout import INFO, picture_key, plan
from robo_datasets.formats.lerobot_reader import read
from robo_datasets.formats.lerobot_writer import write
from robo_datasets.formats.recording import About, Foreign, Format, Recording
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode


class LeRobot(Format):
    """Format of a folder that `lerobot.datasets.lerobot_dataset.LeRobotDataset` opens."""

    name = "lerobot"
    suffix = ""

    def __init__(self, *, as_videos: bool = True) -> None:
        """Create the format. as_videos: True to write pictures as lossy videos, LeRobot's default; False for exact PNG."""
        self._as_videos = as_videos

    @property
    def exact(self) -> LeRobot:
        """The same format with pictures as PNG, without loss."""
        return LeRobot(as_videos=False)

    @override
    def recognizes(self, source: Path) -> bool:
        return (source / INFO).is_file()

    @override
    def reduced(self, episode: Episode, spec: EnvironmentSpec) -> Recording:
        names = [name for feature in plan(spec, as_videos=self._as_videos).values() for name in feature.names]
        return Recording(
            {name: episode.observations[name][:-1] for name in names},
            episode.actions,
            episode.rewards,
            terminated=episode.terminated,
            truncated=episode.truncated,
            stop_reason=episode.stop_reason,
            success=episode.success,
            seed=episode.seed,
            instruction=episode.instruction,
            timestamps=episode.timestamps[:-1] - episode.timestamps[0],  # lerobot's loader gives them as float32
        )

    @override
    def approximated(self, spec: EnvironmentSpec) -> Mapping[str, str]:
        """Return camera -> "lossy video", for the cameras that are stored as video."""
        kinds = {key: feature.kind for key, feature in plan(spec, as_videos=self._as_videos).items()}
        return {name: "lossy video" for name in spec.observation if kinds.get(picture_key(name)) == "video"}

    @override
    def write(self, recordings: Iterable[Recording], about: About, out: Path) -> None:
        write(recordings, about, plan(about.spec, as_videos=self._as_videos), out)

    @override
    def read(self, source: Path) -> Foreign:
        """Open the folder; raises DatasetError, or MissingExtra if pyarrow is not installed."""
        return read(source)


FORMAT = LeRobot()
