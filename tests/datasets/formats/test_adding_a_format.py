"""A third party adds a format with one file and one entry point; the example is that of docs/data/dataset-formats.md."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.formats.recording import Format
from robo_rl.entry_points import load

PAGE = Path(__file__).parents[3] / "docs" / "data/dataset-formats.md"


def test_the_example_of_the_page(make, cells, tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(\"\"\"Episodes as.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "npz_folder.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "npz_folder", None)
    monkeypatch.delitem(sys.modules, "npz_folder")
    points = {"npz": EntryPoint("npz", "npz_folder:FORMAT", "robo_rl.formats")}
    monkeypatch.setattr("robo_rl.entry_points._declared", lambda group, *path: points if group == "formats" else {})
    assert isinstance(load("formats", "npz"), Format)
    dataset = make(spec=cells["spec"](cells["FLAT"]))
    assert dispatch(["data", "convert", str(dataset.path), "--to", "npz", "--out", str(tmp_path / "out")]) == 0
    assert dispatch(["data", "convert", str(tmp_path / "out"), "--out", str(tmp_path / "back")]) == 0
    assert "restored to the bit from the side file: 3 of 3" in capsys.readouterr().out
    back = Dataset(tmp_path / "back")
    assert all(cells["differing"](*pair) == set() for pair in zip(dataset, back, strict=True))
    assert dispatch(["data", "convert", str(dataset.path), "--to", "npz", "--out", str(tmp_path / "bare"), "--bare"]) == 0
    assert dispatch(["data", "convert", str(tmp_path / "bare"), "--from", "npz", "--out", str(tmp_path / "again")]) == 0
    assert [len(episode) for episode in Dataset(tmp_path / "again")] == [4, 1, 6]
