"""The table of the project's structure counts what it says."""

import sys
from pathlib import Path

from robo_bench import structure


def test_files_and_calls_within_a_folder_are_counted(tmp_path, monkeypatch):
    (tmp_path / "counted_outer.py").write_text(
        "import counted_inner\n\ndef go():\n    return [counted_inner.one() for _ in range(3)]\n"
    )
    (tmp_path / "counted_inner.py").write_text("def one():\n    return str(1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    outer = __import__("counted_outer")
    files, calls = structure.traced(outer.go, (str(tmp_path),))
    comprehension = sys.version_info < (3, 12)  # a function of its own until then
    assert (files, calls) == (2, 4 + comprehension)
    assert structure.traced(outer.go, (str(tmp_path / "elsewhere"),)) == (0, 0)


def test_imports_inside_policies_are_followed(tmp_path, monkeypatch):
    learners = tmp_path / "policies" / "robo_policies" / "learners"
    learners.mkdir(parents=True)
    (learners / "method.py").write_text(
        "import math\nfrom robo_policies.learners.shared import x\nfrom robo_rl.types import Batch\n"
    )
    (learners / "shared.py").write_text("def x():\n    from robo_policies.learners import late\n")
    (learners / "late.py").write_text("from robo_policies.learners.method import y\n")
    (learners / "other.py").write_text("")
    monkeypatch.setattr(structure, "ROOT", tmp_path)
    assert {path.stem for path in structure.read_files("method")} == {"method", "shared", "late"}


def test_a_step_passes_through_few_files():
    files, calls = structure.sac_step("reference")
    assert 5 < files <= 20 and files < calls <= 220
    assert 5 < structure.robot_step()[0] <= 20


def test_heirs_of_a_learner_are_found(monkeypatch):
    classes = {"SACConfig": ["NetworkSettings"], "MineConfig": ["SACConfig", "Shared"], "Mine": ["SAC"], "Alone": ["Learned"]}
    monkeypatch.setattr(structure, "learner_classes", lambda: classes)
    assert structure.heirs() == (["Mine"], ["MineConfig"])


def test_steppers_beside_the_rollout_are_named():
    found = structure.steppers()
    assert all((Path(structure.ROOT) / name).exists() for name in found)
    assert not any(name.endswith("episode_loop.py") for name in found)
