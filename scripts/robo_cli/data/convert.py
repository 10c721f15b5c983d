"""robo-rl data convert: to a foreign format and back; data that does not fit is listed first and kept next to the export."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.arguments.free_settings import EnvironmentArguments
from robo_app.display.display import display
from robo_app.recording.environment_of_data import environment_of_data
from robo_datasets.atomic_write import require_free
from robo_datasets.conversion import export, import_dataset, losses, recognized, with_exact_pictures, with_mapping, writable
from robo_datasets.dataset import DESCRIPTION, Dataset
from robo_datasets.formats.adjustments import NONE, Adjustments
from robo_datasets.formats.recording import DetectedReader, Format
from robo_datasets.formats.side_file import NAME, side_path
from robo_datasets.remarks import remarks_for
from robo_rl.entry_points import load
from robo_rl.errors import DatasetNotFound, InvalidSetting

EXAMPLES = """robo-rl data convert data/pick --to minari --out ~/.minari/datasets/pick-v0
robo-rl data convert data/pick --to robomimic --out pick.hdf5
robo-rl data convert pick.hdf5 --out data/again
robo-rl data convert halfcheetah_medium-v2.hdf5 --from d4rl --environment gymnasium/HalfCheetah-v5 --clip --out data/medium
robo-rl data convert so101 --out data/so101 --action-ranges gripper 100 0 --turns images_top 180
robo-rl data convert bags/monday --mapping bag.yaml --out data/monday"""


@dataclass(frozen=True)
class Convert:
    """Write a dataset in a foreign format (--to), or make one of foreign data; data without a place there is listed first."""

    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SOURCE")]
    out: Path
    """File (robomimic, d4rl) or folder (minari, lerobot) to write, or folder of the new dataset."""
    to: Annotated[str | None, tyro.conf.arg(metavar="FORMAT")] = None
    """minari, robomimic, d4rl, lerobot, or one that another package brings."""
    from_: Annotated[str | None, tyro.conf.arg(name="from", metavar="FORMAT")] = None
    """Format of SOURCE; detected by default."""
    mapping: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """YAML file that says which topics of a bag (rosbag) or features (rlds) are observations and actions."""
    bare: bool = False
    """Keep nothing next to the export: data without a place in the format is lost."""
    environment: Annotated[str | None, tyro.conf.arg(metavar="ENV")] = None
    """Environment of the data, "family/task"; by default from the file, or from its shapes."""
    adjustments: Annotated[Adjustments, tyro.conf.OmitArgPrefixes] = NONE
    exact_pictures: bool = False
    """Write pictures as PNG where the format has a lossy film by default (lerobot)."""
    arguments: EnvironmentArguments = field(default_factory=dict)
    """Setting of the environment, such as --environment.arguments.action_repeat 3"""


def convert(arguments: Convert) -> int:
    """Convert, showing progress."""
    if not arguments.source.exists():
        raise DatasetNotFound(f"{arguments.source} does not exist.", fix="name a file or a folder")
    is_ours = (arguments.source / DESCRIPTION).is_file()
    if arguments.to is not None and not arguments.adjustments.is_none:
        what = "Data are adjusted when they come in, not when they go out."
        raise InvalidSetting(what, got=f"--to {arguments.to}", fix="leave the options of imports out")
    if is_ours and arguments.to is not None:
        return _export(arguments, writable(load("formats", arguments.to)))
    if is_ours or arguments.to is not None:
        raise InvalidSetting(
            f"{arguments.source} is {'a' if is_ours else 'no'} dataset of robo_rl.",
            got=f"--to {arguments.to}",
            allowed="--to for such a dataset, --from for anything else",
            fix="robo-rl data convert --help",
        )
    form = recognized(arguments.source) if arguments.from_ is None else load("formats", arguments.from_)
    return _import(arguments, with_mapping(form, arguments.mapping))


def _export(arguments: Convert, form: Format) -> int:
    dataset = Dataset(arguments.source)
    require_free(arguments.out.absolute(), side_path(arguments.out.absolute()))
    if arguments.exact_pictures:
        form = with_exact_pictures(form)
    remarks = remarks_for(dataset)
    lost = losses(form, dataset, remarks) or ["nothing: it holds all of this dataset"]
    print(f"{form.name} cannot hold:", *lost, sep="\n  - ")
    for line in remarks.lines():
        print(f"remark: {line}")
    if not arguments.bare:
        print(f"It is kept in {side_path(arguments.out) if form.suffix else arguments.out / NAME}.")
    with display(f"convert to {form.name}", len(dataset), "episodes") as shown:
        export(form, dataset, arguments.out, keep_losses=not arguments.bare, progress=lambda done: shown.update(done, {}))
    print(f"{len(dataset)} episodes in {arguments.out}; `robo-rl data convert {arguments.out} --out DATASET` reads them back")
    return 0


def _import(arguments: Convert, form: DetectedReader) -> int:
    known = environment_of_data(arguments.environment, arguments.arguments)
    notes = import_dataset(form, arguments.source, arguments.out, adjustments=arguments.adjustments, **known._asdict())
    print(f"read as {form.name}:", *notes, sep="\n  - ")
    print(f"{len(Dataset(arguments.out))} episodes in {arguments.out}; `robo-rl data info {arguments.out}` describes them")
    return 0
