"""robo-rl push and pull: what arrives is what was sent, in a folder, a store and the hub; secrets and code do not travel."""

import json
import shutil

import fsspec
import huggingface_hub.constants
import numpy as np
import pytest
import yaml
from hub_stand_in import hub

import robo_rl
from factories import axes, make_episode, make_spec
from robo_app.sharing.manifest import NAME, Manifest
from robo_app.sharing.transfer import pull, push
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting, RunError
from robo_rl.runs.run import Run
from robo_rl.spec.environment import ArraySpec

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")  # of the hub's client, for httpx
RECIPE = {
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 20}},
    "log_every": 10,
    "checkpoint_every": 20,
    "evaluation": {"episodes": 2, "every": 30, "episodes_during": 1, "videos": 0},
    "algorithm": "sac",
    "learner": {"network": {"hidden": [8, 8]}, "batch_size": 16, "replay": {"learning_starts": 10}},
    "steps": 45,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return robo_rl.train(RECIPE, out=tmp_path_factory.mktemp("runs"))


@pytest.fixture
def dataset(tmp_path):
    spec = make_spec("toy", ArraySpec("position", (2,), unit="m"), action=axes("a"))
    made = Dataset.create(tmp_path / "toy", spec, {"recipe": "none"})
    with made.writer() as writer:
        for number in range(3):
            writer.add(make_episode({"position": np.full((5, 2), number, np.float32)}, spec_fingerprint=spec.fingerprint))
    return made


@pytest.fixture
def store():
    files = fsspec.filesystem("memory")
    yield "memory://bucket/it"
    files.store.clear()
    files.pseudo_dirs[:] = [""]


@pytest.fixture
def served(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setenv("HF_TOKEN", "hf_" + "a" * 30)
    with hub(large=20_000) as state:
        monkeypatch.setenv("HF_ENDPOINT", state.endpoint)
        yield state


@pytest.mark.slow
def test_a_run_comes_back_from_a_folder(trained, tmp_path, capsys):
    assert dispatch(["push", str(trained.path), str(tmp_path / "there")]) == 0
    assert dispatch(["pull", str(tmp_path / "there"), "--out", str(tmp_path / "back")]) == 0
    assert "all as they were sent" in capsys.readouterr().out
    back = Run(tmp_path / "back")
    observation = {name: np.ones(array.shape, array.dtype) for name, array in trained.spec.observation.items()}
    actions = [each.policy().act(observation, deterministic=True) for each in (trained, back)]
    np.testing.assert_array_equal(*actions)
    assert back.evaluation == trained.evaluation
    assert not [*(tmp_path / "there").rglob("replay.*"), *(tmp_path / "there").rglob("*.html")]


def test_a_resumable_run_brings_its_memory(trained, tmp_path):
    push(trained.path, str(tmp_path / "there"), resumable=True)
    assert [path.name for path in (tmp_path / "there").rglob("replay.safetensors")] == ["replay.safetensors"]


def test_a_run_comes_back_from_a_store(trained, store, tmp_path):
    sent = push(trained.path, store)
    assert pull(store, tmp_path / "back") == sent
    assert Run(tmp_path / "back").checkpoints == (45,)


@pytest.mark.slow
def test_a_run_comes_back_from_the_hub(trained, served, tmp_path):
    sent = push(trained.path, "hf://me/reach")
    assert pull("hf://me/reach", tmp_path / "back") == sent
    assert served.tokens == {"Bearer hf_" + "a" * 30}
    assert len(served.commits) == 1 and "lfsFile" in served.commits[0] and "file" in served.commits[0]
    push(trained.path, "hf://me/reach", resumable=True)  # another commit
    push(trained.path, "hf://me/reach")
    assert served.commits[-1].count("deletedFile") == 4, "the replay memory of the commit before is removed"


@pytest.mark.slow
def test_the_card_has_the_result_and_the_interface(trained, served):
    push(trained.path, "hf://me/reach")
    card = served.repositories["model/me/reach"]["README.md"].decode()
    _, front, body = card.split("---\n", 2)
    facts = yaml.safe_load(front)
    assert facts["library_name"] == "robo-rl" and "sac" in facts["tags"]
    metrics = facts["model-index"][0]["results"][0]["metrics"]
    assert metrics[0]["value"] == pytest.approx(trained.evaluation.mean_return.estimate, abs=1e-3)
    assert "hf://me/reach" in body and "robo/ArmReach-v0" in body and "`joint_position`" in body


@pytest.mark.slow
def test_a_dataset_comes_back_from_the_hub(dataset, served, tmp_path):
    push(dataset.path, "hf://datasets/me/toy")
    pull("hf://datasets/me/toy", tmp_path / "back")
    back = Dataset(tmp_path / "back")
    assert [entry.identity for entry in back.entries()] == [entry.identity for entry in dataset.entries()]
    assert sum(len(episode) for episode in back) == 12
    with back.writer() as writer:  # it can be added to
        writer.add(next(iter(dataset)))


@pytest.mark.slow
def test_the_kind_of_repository_must_fit(dataset, served):
    with pytest.raises(InvalidSetting, match="hf://datasets/USER/NAME"):
        push(dataset.path, "hf://me/toy")
    with pytest.raises(InvalidSetting, match="names no repository"):
        push(dataset.path, "hf://datasets/toy")


def test_a_push_that_fails_leaves_nothing(trained, tmp_path, monkeypatch):
    real, copied = shutil.copyfile, []

    def fail_late(source, target):
        copied.append(target)
        if len(copied) > 3:
            raise OSError(28, "No space left on device")
        return real(source, target)

    monkeypatch.setattr(shutil, "copyfile", fail_late)
    with pytest.raises(RunError, match="does not work"):
        push(trained.path, str(tmp_path / "there"))
    assert [*tmp_path.iterdir()] == []


def test_a_push_without_its_manifest_is_not_pulled(trained, store, tmp_path):
    push(trained.path, store)
    fsspec.filesystem("memory").rm(f"/bucket/it/{NAME}")
    with pytest.raises(RunError, match=r"robo-rl\.json|does not work"):
        pull(store, tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("change", [lambda content: content[:-1] + b" ", lambda content: content + b" "])
def test_a_changed_file_is_refused(trained, tmp_path, change):
    push(trained.path, str(tmp_path / "there"))
    path = tmp_path / "there" / "recipe.yaml"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RunError, match=r"recipe\.yaml did not arrive"):
        pull(str(tmp_path / "there"), tmp_path / "back")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["there"]


@pytest.mark.parametrize("name", ["../out.json", "/etc/x.json", "policy.pkl", "model.pt", "page.html", "run.py", "a\\b.json"])
def test_paths_that_leave_or_run_are_refused(name):
    content = json.dumps({"format": 1, "kind": "run", "name": "x", "files": {name: {"bytes": 1, "sha256": "0"}}}).encode()
    with pytest.raises(RunError, match="not taken"):
        Manifest.from_bytes(content, "here")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": 1}', b'{"files": {"a": 1}}', b"[" * 100_000])
def test_a_damaged_manifest_is_refused(content):
    with pytest.raises(RunError, match="damaged"):
        Manifest.from_bytes(content, "here")


@pytest.mark.parametrize("secret", ["hf_" + "b" * 30, "sk-" + "c" * 30, "-----BEGIN RSA PRIVATE KEY-----", "AKIA" + "D" * 16])
def test_a_token_does_not_travel(trained, tmp_path, secret):
    run = tmp_path / "run"
    shutil.copytree(trained.path, run)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"command": f"robo-rl train --key {secret}"}))
    with pytest.raises(InvalidSetting, match=r"run\.json holds what looks like a token") as refused:
        push(run, str(tmp_path / "there"))
    assert secret not in str(refused.value) and not (tmp_path / "there").exists()


def test_a_link_does_not_travel(trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained.path, run)
    (run / "evaluation.json").unlink()
    (run / "evaluation.json").symlink_to("/etc/passwd")
    with pytest.raises((InvalidSetting, RunError), match="plain file"):
        push(run, str(tmp_path / "there"))


def test_nothing_is_written_over(trained, store, tmp_path):
    push(trained.path, store)
    with pytest.raises(InvalidSetting, match="taken"):
        push(trained.path, store)
    (tmp_path / "back").mkdir()
    with pytest.raises(InvalidSetting, match="exists"):
        pull(store, tmp_path / "back")


def test_a_store_without_its_client_says_so(trained):
    with pytest.raises((InvalidSetting, RunError), match=r"s3fs|not installed|does not work"):
        push(trained.path, "s3://bucket/it")
