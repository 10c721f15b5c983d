"""Archives of runs: read in place, removed at exit, refused if damaged or too large."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from robo_rl.errors import RunError
from robo_rl.runs import archive
from robo_rl.runs.archive import resolve_archive


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("20260101-000000-sac-0/recipe.yaml", "steps: 5\n" * 100)
        opened.writestr("../../outside.txt", "x")
    return path


def test_pattern_leads_into_the_archive(study):
    place = Path(resolve_archive(f"{study}/*-sac-*"))
    assert [path.name for path in place.parent.glob(place.name)] == ["20260101-000000-sac-0"]
    assert Path(resolve_archive(str(study))) == place.parent, "unpacked once"


def test_no_entry_is_written_outside(study):
    folder = Path(resolve_archive(str(study)))
    assert (folder / "outside.txt").exists()
    assert not (folder.parent / "outside.txt").exists()


@pytest.mark.parametrize("name", ["latest", "runs/*-sac-*", "absent.zip/*", "20260101-000000-sac-0"])
def test_other_names_are_unchanged(name):
    assert resolve_archive(name) == name


def test_folder_is_removed_at_exit(study):
    program = f"from robo_rl.runs.archive import resolve_archive as r; print(r({str(study)!r}))"
    folder = subprocess.check_output([sys.executable, "-c", program], text=True).strip()
    assert folder and not Path(folder).exists()


@pytest.mark.parametrize("damage", [slice(0, 40), slice(60, None)])
def test_damaged_archive_is_one_error(study, damage):
    study.write_bytes(study.read_bytes()[damage])
    with pytest.raises(RunError, match="is damaged"):
        resolve_archive(str(study))


def test_any_changed_byte_is_an_error_or_harmless(study):
    sound = study.read_bytes()
    for index in range(len(sound)):
        archive._unpack.cache_clear()
        study.write_bytes(sound[:index] + bytes([sound[index] ^ 0xFF]) + sound[index + 1 :])
        try:
            resolve_archive(str(study))
        except RunError:
            continue


def test_bomb_is_refused(study, monkeypatch):
    monkeypatch.setattr(archive, "LARGEST", 500)
    with pytest.raises(RunError, match="too large"):
        resolve_archive(str(study))
