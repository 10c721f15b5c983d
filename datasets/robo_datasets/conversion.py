"""Convert datasets to and from foreign formats: report what is lost, store it in a side file, and restore it at import."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_datasets.atomic_write import atomic_write
from robo_datasets.dataset import Dataset
from robo_datasets.episode_file import episode_arrays
from robo_datasets.formats.adjustments import NONE, Adjustments
from robo_datasets.formats.extremes import Extremes
from robo_datasets.formats.hdf5_file import damage_of_hdf5
from robo_datasets.formats.importer import EpisodeImporter, held, importer_of
from robo_datasets.formats.recording import FACTS, About, DetectedReader, Foreign, Format, MappedReader, Reader, Recording
from robo_datasets.formats.side_file import Kept, SideFile, SideFileWriter, opened, rows_alike, side_path
from robo_datasets.hdf5_arrays import created_hdf5
from robo_datasets.labels import LabelSet, label_sets
from robo_datasets.remarks import Remarks, remarks_for
from robo_rl.entry_points import known, load
from robo_rl.errors import BrokenPlugin, DatasetError, InvalidSetting, RoboRLError, fix_of
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import ActionSource, Episode

WORDS = {
    "episode": "whole episodes: of one action, and no observation after it, nothing is left without the side file",
    "final observation": "the observation after the last action; without it an episode that was cut loses its last action",
    "policy_actions": "proposed actions that differ from the executed ones (policy_actions)",
    "sources": "the actor: policy, person, script or guard (sources), interventions included",
    "interventions": "interventions by a person",
    "imagined": "which steps a learned world imagined",
    "timestamps": "real times (timestamps); steps follow each other at the control period",
    "clock": "the clock's time at the start of an episode (timestamps); times count from there",
    "terminated": "terminated or truncated: the format merges them",
    "truncated": "terminated or truncated: the format merges them",
    "stop_reason": "why the episode ended (stop_reason)",
    "success": "success",
    "seed": "seed",
    "instruction": "instruction",
    "metadata": "further notes on an episode (metadata), the actor's name included",
}
RESTORED = "restored to the bit from the side file"
Progress = Callable[[int], None]


def losses(form: Format, dataset: Dataset, remarks: Remarks | None = None) -> list[str]:
    """Return one line for each kind of data that an export would lose, with the number of episodes that have it.

    Args:
        form: Format of the export.
        dataset: Dataset to be exported.
        remarks: Collector that receives every episode on the way; None for none.
    """
    counts: Counter[str] = Counter()
    last = _LastRewards()
    for episode in dataset:
        if remarks is not None:
            remarks.add(episode)
        found = [*_lost(form, episode, dataset.spec)]
        counts.update(dict.fromkeys(found).keys())
        if WORDS["final observation"] in found and not episode.terminated:
            last.add(episode.rewards, len(episode) - 1)
    lines = [f"{words}: {count} of {len(dataset)} episodes" for words, count in counts.items()] + last.lines()
    lines += [f"rewards of models: the label set {name!r}" for name in label_sets(dataset)]
    if dataset.catalogue.all_notes():
        lines.append("notes on episodes")
    return lines


def export(
    form: Format, dataset: Dataset, out: Path, *, keep_losses: bool = True, progress: Progress = lambda done: None
) -> None:
    """Write a dataset in a foreign format, read it back, and store the differences in a side file.

    Args:
        form: Format of the export.
        dataset: Dataset to export.
        out: File or folder of the export, which must not exist.
        keep_losses: True to write the side file.
        progress: Called with the number of finished episodes.

    Raises:
        DatasetError: The dataset has no episodes, or episodes without a step; or the export cannot be written. Nothing is then
            left at `out`.
    """
    if len(dataset) == 0:
        raise DatasetError(f"{dataset.path} has no episodes.", fix="record some first")
    if empty := sum(not entry.steps for entry in dataset.entries()):
        raise DatasetError(
            f"{dataset.path} has episodes without a step, which no format holds.",
            got=f"{empty} of {len(dataset)}",
            fix="leave them out: robo-rl data filter DATASET --out NEW --select.least-steps 1",
        )
    with atomic_write(out, side_path(out)) as draft:
        is_judged = all(entry.success is not None for entry in dataset.entries())
        about = About(dataset.spec, out.stem if form.suffix else out.name, is_judged, dataset.card)
        try:
            form.write(_counted((form.reduced(episode, dataset.spec) for episode in dataset), progress), about, draft)
            if keep_losses:
                _write_side_file(form, dataset, draft)
        except OSError as error:
            raise DatasetError(f"{out} could not be written; nothing of it is left.", got=error, fix=fix_of(error)) from error


def import_dataset(
    form: Reader,
    source: Path,
    out: Path,
    *,
    spec: EnvironmentSpec | None = None,
    card: Mapping[str, Any] | None = None,
    adjustments: Adjustments = NONE,
    shown: Mapping[str, float] | None = None,
    progress: Progress = lambda done: None,
) -> list[str]:
    """Make a dataset of foreign data.

    If there is a side file, and neither `spec` nor `adjustments` are given, all that the export lost is restored from it.

    Args:
        form: Format of the data.
        source: File or folder of the data.
        out: Folder of the new dataset, which must not exist.
        spec: Spec of the environment that the data must fit; None for the spec in the data, else one derived from the data.
        card: Further entries of the dataset's card.
        adjustments: Changes of the data that the user asks for.
        shown: Observation -> largest magnitude in the environment, with which the data are compared; None for no comparison.
        progress: Called with the number of finished episodes.

    Returns:
        Remarks for the user: what is missing, inferred or changed.

    Raises:
        DatasetError: The data cannot be read, or no episode is left. Nothing is then left at `out`.
        SpecMismatch: The data do not fit `spec`. Nothing is then left at `out`.
    """
    with _reading(form, source), ExitStack() as stack:
        foreign = form.read(source)
        path = side_path(source)
        is_restored = spec is None and adjustments.is_none and path.exists()
        side = stack.enter_context(opened(path)) if is_restored else None
        import_ = _Import(form, foreign, importer_of(foreign, spec, adjustments), side, source, shown or {})
        if side is not None and not import_.restores_all():
            import_ = _Import(form, foreign, importer_of(foreign), None, source, {})
            import_.notes.append(f"{path.name} is of other episodes than lie here now: nothing is restored from it")
        with atomic_write(out, side_path(out)) as draft:
            import_.run(draft, {"imported_from": str(source), "format": form.name, **(card or {})}, progress)
    return import_.notes


def with_exact_pictures(form: Format) -> Format:
    """Return the variant of a format that writes pictures without loss; the format itself if it has no other variant."""
    exact: Format = getattr(form, "exact", form)
    return exact


def with_mapping(form: DetectedReader, path: Path | None) -> DetectedReader:
    """Return a format that reads by the mapping in a YAML file; the format itself if the path is None.

    Raises InvalidSetting if the format takes no mapping.
    """
    if path is None:
        return form
    if not isinstance(form, MappedReader):
        what = f"{form.name} takes no mapping: its files say what is an observation and what an action."
        raise InvalidSetting(what, got=f"--mapping {path}", fix="leave --mapping out")
    return form.mapped(path)


def writable(form: DetectedReader) -> Format:
    """Check that a format can be exported, and return it; raises InvalidSetting if it can only be imported."""
    if not isinstance(form, Format):
        names = [each.name for each in formats() if isinstance(each, Format)]
        raise InvalidSetting(f"{form.name} is read alone.", got=f"--to {form.name}", allowed=", ".join(sorted(names)))
    return form


def formats() -> list[DetectedReader]:
    """Return all installed formats. One that cannot be loaded is left out."""
    found = []
    for name in known("formats"):
        with suppress(BrokenPlugin):  # `robo-rl doctor` names it
            found.append(load("formats", name))
    return found


def recognized(source: Path) -> DetectedReader:
    """Return the format of a file or folder; raises DatasetError if no format, or more than one, recognises it."""
    if not source.exists():
        raise DatasetError(f"{source} does not exist.", fix="name a file or a folder")
    found = [form for form in formats() if form.recognizes(source)]
    if not found and (damage := damage_of_hdf5(source)) is not None:
        raise DatasetError(
            f"{source} is an HDF5 file that cannot be read.", got=damage, fix="copy it again: it is cut or changed"
        )
    if len(found) != 1:
        convert_first = "convert it to one of these first, with its own tools; a format of yours: docs/data/dataset-formats.md"
        raise DatasetError(
            f"{source} is {'of no known format' if not found else 'of several formats'}.",
            got=", ".join(form.name for form in found) or None,
            allowed=", ".join(known("formats")),
            fix="name it with --from" if found else convert_first,
        )
    return found[0]


class _Import:
    """State of one import: the foreign data, the importer, the side file if there is one, and the remarks so far."""

    def __init__(
        self,
        form: Reader,
        foreign: Foreign,
        importer: EpisodeImporter,
        side: SideFile | None,
        source: Path,
        shown: Mapping[str, float],
    ) -> None:
        self._form, self._foreign, self._importer, self._side, self._source = form, foreign, importer, side, source
        self._shown = shown
        self._spec = importer.spec if side is None else side.spec
        self.notes: list[str] = []

    def restores_all(self) -> bool:
        """Return whether the side file fits: the data have the same spec as at the export.

        If the spec of the data differs from that of the dataset, every episode must also be in the side file, unchanged.
        """
        assert self._side is not None
        if self._side.read_as != self._importer.spec.fingerprint:
            return False
        if self._side.spec.fingerprint == self._importer.spec.fingerprint:
            return True
        known_digests = {kept.digest for kept in self._side.kept}
        return all(recording.digest in known_digests for recording in self._foreign.recordings())

    def run(self, out: Path, card: dict[str, Any], progress: Progress) -> None:
        """Make the dataset in the folder `out`; the remarks are then in `notes`."""
        side, counts = self._side, Counter[str]()
        waiting: dict[str, list[Kept]] = defaultdict(list)
        for stored in [] if side is None else reversed(side.kept):
            waiting[stored.digest].append(stored)
        dataset = Dataset.create(out, self._spec, card if side is None else side.card)
        remarks, last, extremes = remarks_for(dataset), _LastRewards(), Extremes()
        with dataset.writer() as writer:
            for done, recording in enumerate(self._foreign.recordings(), 1):
                episode = self._episode(recording, done)
                kept = stack.pop() if side is not None and (stack := waiting[recording.digest]) else None
                if side is not None and kept is not None:
                    writer.add(side.restore(kept, episode), identity=kept.identity)
                    for note in side.notes(kept):
                        dataset.catalogue.note(kept.identity, note)
                else:
                    if recording.rewards is not None:
                        last.add(recording.rewards, 0 if episode is None else len(episode))
                    if episode is not None:
                        writer.add(episode)
                        remarks.add(episode)
                        extremes.add(episode)
                counts.update(_remarks(recording, episode, kept, side))
                progress(done)
        present = {entry.identity for entry in dataset.entries()}
        if side is not None:
            _restore_labels(dataset, side)
        if not present:
            raise DatasetError("No episode is left of the data.", got="; ".join(counts) or None, fix="look at the file")
        if counts[RESTORED] < done:
            foreign = self._foreign
            missing = [] if foreign.spec is None else [n for n in foreign.spec.observation if n not in self._spec.observation]
            self.notes += [f"observation {name} is not in the file" for name in missing]
            self.notes += [*foreign.notes, *self._importer.notes]
        self.notes += [f"{words}: {count} of {done} episodes" for words, count in counts.items()]
        self.notes += [*last.lines(), *remarks.lines(), *extremes.lines(self._shown, self._spec)]
        if side is None:
            dataset.describe(dataset.card | {"remarks": [*self._importer.adjustments.lines(), *self.notes]})

    def _episode(self, recording: Recording, number: int) -> Episode | None:
        """Convert a recording to an episode, None if no step is left; raises DatasetError, with the name of the recording."""
        try:
            return self._importer.episode(recording)
        except (RoboRLError, ValueError) as error:
            name = recording.name or f"number {number}"
            raise DatasetError(f"Episode {name} of {self._source} cannot be read. {error}") from error


class _LastRewards:
    """Sum of the rewards that are lost because the last action of an episode is left out."""

    def __init__(self) -> None:
        self._left_out: list[float] = []
        self._all: list[float] = []

    def add(self, rewards: npt.NDArray[Any], kept: int) -> None:
        """Add an episode: rewards (T,) of all its steps, of which the first `kept` are kept."""
        if kept < len(rewards):
            self._left_out.append(float(np.sum(rewards[kept:])))
            self._all.append(float(np.sum(rewards)))

    def lines(self) -> list[str]:
        """Return a remark on the lost reward; no line if nothing is lost."""
        if not any(self._left_out):
            return []
        lost = f"{fmean(self._left_out):.6g} of {fmean(self._all):.6g} in the mean of {len(self._all)} episodes"
        return [f"reward of the last action is left out with it: {lost} (--keep-last keeps both at import)"]


def _restore_labels(dataset: Dataset, side: SideFile) -> None:
    """Store the labels of the side file in the dataset, for the episodes that the dataset has."""
    present, sets = {entry.identity for entry in dataset.entries()}, dict[str, LabelSet]()
    with ExitStack() as stack:
        for name, identity, labels in side.labels():
            if name not in sets:
                sets[name] = LabelSet(dataset, name)
                stack.enter_context(sets[name].held())
            if identity in present:
                sets[name].add(identity, labels)


def _remarks(recording: Recording, episode: Episode | None, kept: Kept | None, side: SideFile | None) -> Iterator[str]:
    if kept is not None:
        yield RESTORED
        return
    yield from recording.remarks
    if side is not None:
        yield "changed since they were exported, so not restored from the side file"
    if episode is None:
        yield "left out: one action, and no observation after it"
        return
    yield from _rounded(recording, episode)
    changes = episode.metadata.get("imported", {})
    yield "the actor is not known, the executed action stands for the proposed one"
    words = {
        ("timestamps", "missing"): "no real times: steps follow each other at the control period",
        ("end", "inferred"): "not marked whether the task ended or was cut: taken as truncated",
        ("final_observation", "missing"): "the observation after the last action is missing: the last action is left out",
        ("final_observation", "repeated"): "the observation after the last action is missing: the one before stands in for it",
        ("rewards", "missing"): "no rewards: 0 is stored, label them before you learn from rewards",
    }
    yield from (words[item] for item in changes.items())


def _rounded(recording: Recording, episode: Episode) -> Iterator[str]:
    """Yield a remark for each array that is kept with fewer digits than in the file."""
    found: dict[str, tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]] = {
        f"observation {name}": (values, episode.observations.get(name)) for name, values in recording.observations.items()
    }
    found |= {"rewards": (recording.rewards, episode.rewards), "actions": (recording.actions, episode.actions)}
    for name, (values, kept) in found.items():
        if values is not None and kept is not None and values.dtype == np.float64 and kept.dtype == np.float32:
            yield f"{name} {'is' if name.startswith('observation') else 'are'} float64 in the file, and kept as float32"


def _lost(form: Format, episode: Episode, spec: EnvironmentSpec) -> Iterator[str]:
    """Yield a phrase for each part of an episode that an import without the side file would not restore."""
    recording = form.reduced(episode, spec)
    if not recording.has_final_observation:
        yield WORDS["final observation"]
    importer = EpisodeImporter(held(spec, recording.observations))
    found = importer.episode(recording)
    if found is None:
        yield WORDS["episode"]
        return
    yield from (WORDS[name] for name in FACTS if getattr(found, name) != getattr(episode, name))
    if episode.metadata:
        yield WORDS["metadata"]
    if (episode.sources == ActionSource.HUMAN).any():
        yield WORDS["interventions"]
    if (episode.sources == ActionSource.IMAGINED).any():
        yield WORDS["imagined"]
    changed = form.approximated(spec)
    back = episode_arrays(found)
    for path, array in episode_arrays(episode).items():
        group, _, name = path.rpartition("/")
        # If the observation after the last action is missing, report that, not that every array is shorter.
        least = len(array) if recording.has_final_observation else len(found)
        if group == "observations" and name in changed:
            yield f"observation {name} to the bit: {changed[name]}"
        elif path not in back or rows_alike(array, back.get(path)) < least:
            is_shifted = path == "timestamps" and rows_alike(array - array[0], back[path]) >= least
            yield (
                WORDS["clock"]
                if is_shifted
                else f"costs ({name})"
                if group == "costs"
                else f"{group.removesuffix('s').replace('_', ' ')} {name}"
                if group
                else WORDS.get(name, name)
            )


def _write_side_file(form: Format, dataset: Dataset, draft: Path) -> None:
    foreign = form.read(draft)
    importer = importer_of(foreign)
    with created_hdf5(side_path(draft)) as file:
        side = SideFileWriter(file, form.name, dataset, importer.spec)
        for entry, recording in zip_longest(dataset.entries(), foreign.recordings()):
            if entry is None or recording is None:
                raise DatasetError(f"The {form.name} file has not as many episodes as the dataset when read back.")
            episode = dataset.read(entry)
            side.add(entry, episode, recording.digest, importer.episode(recording))
        side.add_labels()


@contextmanager
def _reading(form: Reader, source: Path) -> Iterator[None]:
    """Turn the errors that libraries raise inside the context, on damaged or hostile files, into DatasetError."""
    try:
        yield
    except RoboRLError:
        raise
    except (
        *(OSError, EOFError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError),
        AssertionError,
    ) as error:
        raise DatasetError(
            f"{source} cannot be read as {form.name}.", got=f"{type(error).__name__}: {' '.join(str(error).split())}"
        ) from error


def _counted(recordings: Iterator[Recording], progress: Progress) -> Iterator[Recording]:
    for done, recording in enumerate(recordings, 1):
        yield recording
        progress(done)
