"""Learning from a dataset by one option, going on online in the same run, and studies, as typed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from factories import make_dataset, make_spec, random_episode
from robo_app.arguments.free_settings import Group, gather
from robo_app.arguments.run_selection import runs_of
from robo_app.experiments.inputs import Asked, Compared
from robo_app.experiments.plan import read_plan
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.figures import figures_of, normalised
from robo_datasets.labelling import shuffle
from robo_datasets.labels import label_sets
from robo_rl.errors import InvalidSetting, RunError, UnknownName
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.runs.run import Run, find_run
from robo_rl.spec.environment import ArraySpec

TASK = "robo/ArmReach-v0"
TINY = """
environment: {{}}
algorithm: {algorithm}
learner: {{network: {{hidden: [8], normalization_rows: 100}}, batch_size: 16}}
steps: 40
log_every: 20
checkpoint_every: 20
evaluation: {{episodes: 1, every: 25, episodes_during: 1, videos: 0}}
"""


@pytest.fixture
def dataset() -> Path:
    path = Path("data")
    dispatch(
        [
            "record",
            TASK,
            "--episodes",
            "4",
            "--out",
            str(path),
            "--environment.arguments.max_steps",
            "20",
            "--environment.arguments.action_repeat",
            "2",
        ]
    )
    return path


@pytest.fixture
def recipe() -> str:
    Path("tiny.yaml").write_text(TINY.format(algorithm="iql"))
    return "tiny.yaml"


def parameters(run: Run) -> dict[str, np.ndarray]:
    newest = sorted((run.path / "checkpoints").iterdir())[-1]
    return load_file(newest / "learner.safetensors")


@pytest.mark.slow
def test_the_environment_is_that_of_the_dataset(dataset, recipe, capsys):
    assert dispatch(["train", recipe, "--dataset", str(dataset)]) == 0
    run = find_run("latest", Path("runs"))
    text = (run.path / "recipe.yaml").read_text()
    assert f"name: {TASK}" in text and "action_repeat: 2" in text and "episodes: 4" in text
    assert "regret" not in run.description
    assert "4 episodes of data" in capsys.readouterr().out


@pytest.mark.slow
def test_the_dataset_may_grow_between_two_halves_of_a_run(dataset, recipe):
    """What was recorded later changes nothing of a run that is resumed."""
    assert dispatch(["train", recipe, "--dataset", str(dataset)]) == 0
    first = find_run("latest", Path("runs"))
    dispatch(
        [
            "record",
            TASK,
            "--append",
            "--seed",
            "4",
            "--out",
            str(dataset),
            "--environment.arguments.max_steps",
            "20",
            "--environment.arguments.action_repeat",
            "2",
        ]
    )
    resumed = ["train", str(first.path / "recipe.yaml"), "--out", "again", "--name", "again"]
    assert dispatch(resumed) == 0
    again = parameters(find_run("latest", Path("again")))
    assert all(np.array_equal(again[name], value) for name, value in parameters(first).items())


@pytest.mark.slow
def test_both_phases_at_once_equal_one_after_the_other(dataset, recipe, capsys):
    """`--then online` at the start, and `resume --then online` after the end, lead to the same parameters, bit for bit."""
    order = ["train", recipe, "--dataset", str(dataset)]
    assert dispatch([*order, "--then", "online", "--online.steps", "30", "--out", "both"]) == 0
    both = find_run("latest", Path("both"))
    assert 0.0 <= both.description["regret"] <= 1.0
    assert "regret" in capsys.readouterr().out
    assert dispatch([*order, "--out", "one"]) == 0
    one = find_run("latest", Path("one"))
    assert dispatch(["resume", str(one.path), "--then", "online", "--online-steps", "30"]) == 0
    assert [line["step"] for line in both.metrics()][-1] == [line["step"] for line in one.metrics()][-1] == 70
    assert all(np.array_equal(parameters(both)[name], value) for name, value in parameters(one).items())
    assert {int(file.stem) for file in (both.path / "evaluations").iterdir()} == {25, 50}


@pytest.mark.slow
def test_a_kill_in_the_online_phase_costs_nothing(dataset, recipe):
    online = ["--then", "online", "--online.steps", "40"]
    assert dispatch(["train", recipe, "--dataset", str(dataset), *online, "--out", "whole"]) == 0
    whole = find_run("latest", Path("whole"))
    killer = Path(__file__).with_name("train_and_die.py")
    order = [sys.executable, killer, whole.path / "recipe.yaml", "killed", "step", "67"]
    killed = subprocess.run(order, capture_output=True, timeout=200, check=False)
    assert killed.returncode == -signal.SIGKILL
    run = find_run("latest", Path("killed"))
    assert dispatch(["resume", str(run.path)]) == 0
    assert [(event["step"], event["kind"]) for event in run.description["resumes"]] == [(60, "exact")]
    assert all(np.array_equal(parameters(whole)[name], value) for name, value in parameters(run).items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny.yaml"], "names no environment, and no dataset that was recorded in one"),
        (["arm-pick-sac", "--then", "online"], "The learner sac cannot be trained with an online phase"),
        (["tiny.yaml", "--dataset", "data", "--online.offline-fraction", "1.0"], "between 0 and 1"),
    ],
)
def test_what_cannot_be_is_one_error(dataset, recipe, arguments, message):
    with pytest.raises(InvalidSetting, match=message):
        dispatch(["train", *arguments])


def test_a_dataset_that_names_no_environment(dataset, recipe):
    Dataset(dataset).describe({"how": "by hand"})
    with pytest.raises(InvalidSetting, match="does not say how its environment is made"):
        dispatch(["train", recipe, "--dataset", str(dataset)])


# ------------------------------------------------------------------------------------------------ studies
STUDY = """
summary: Two learners on two tiny datasets.
sources:
  reach: {recipe: source.yaml}
datasets:
  reach-replay: {source: reach, family: replay}
  reach-random: {source: reach, family: random, episodes: 3}
settings: {steps: 20, evaluation.episodes: 2, evaluation.videos: 0, evaluation.every: 0}
methods:
  bc: {recipe: bc.yaml, only: [reach-replay]}
  iql: {recipe: iql.yaml, return_span: 1000, only: [reach-replay]}
seeds: [0, 1]
claims:
  - {better: iql, than: bc, datasets: [replay]}
"""
SOURCE = f"""
environment: {{name: {TASK}, arguments: {{max_steps: 15, reward: dense}}}}
algorithm: sac
learner: {{network: {{hidden: [8, 8]}}, batch_size: 16, replay: {{learning_starts: 10}}}}
steps: 60
log_every: 0
evaluation: {{episodes: 1, every: 30, episodes_during: 1, videos: 0}}
"""


@pytest.fixture
def study() -> str:
    Path("study.yaml").write_text(STUDY)
    Path("source.yaml").write_text(SOURCE)
    for algorithm in ("bc", "iql"):
        text = TINY.format(algorithm=algorithm)
        Path(f"{algorithm}.yaml").write_text(text)
    return "study.yaml"


@pytest.mark.slow
def test_a_study_runs_its_jobs_as_processes(study):
    assert dispatch(["experiment", study, "--out", "out", "--jobs", "2"]) == 0
    assert len([*Path("out/runs").glob("*/evaluation.json")]) == 4
    assert "report" in Path("out/logs/bc--reach-replay-0.log").read_text()


@pytest.mark.slow
def test_a_study_makes_what_is_missing_and_nothing_twice(study, in_this_process, capsys):
    order = ["experiment", study, "--out", "out"]
    assert dispatch(order) == 0
    assert len([*Path("out/runs").iterdir()]) == 4
    facts = json.loads(Path("out/archive.json").read_text())["table"]
    cell = facts["datasets"]["reach-replay"]["methods"]["iql"]
    assert cell["seeds"] == [0, 1] and np.isclose(cell["score"], np.mean(cell["scores"]), atol=0.01)
    assert facts["datasets"]["reach-random"]["methods"] == {}
    (claim,) = facts["claims"]
    other = facts["datasets"]["reach-replay"]["methods"]["bc"]
    assert claim["difference"] == pytest.approx(cell["score"] - other["score"])
    assert claim["holds"] == "few seeds" and claim["low"] <= claim["difference"] <= claim["high"]
    assert "| reach-replay |" in capsys.readouterr().out
    victim = next(path for path in Path("out/runs").iterdir() if path.name.endswith("iql--reach-replay-1"))
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("evaluation.json")}
    (victim / "evaluation.json").unlink()  # as after a kill at the end of a training
    assert dispatch(order) == 0
    after = {path: path.stat().st_mtime_ns for path in Path("out").rglob("evaluation.json")}
    assert {path for path in before if before[path] != after[path]} == {victim / "evaluation.json"}
    assert json.loads(Path("out/archive.json").read_text())["table"]["datasets"]["reach-replay"]["methods"]["iql"] == cell
    stranger = Run(victim)  # as if it had learnt from the dataset before that was made again
    stranger.describe(dataset=stranger.description["dataset"] | {"content": "other"})
    assert dispatch([*order, "--table"]) == 0
    cells = json.loads(Path("out/archive.json").read_text())["table"]["datasets"]["reach-replay"]["methods"]
    assert cells["iql"]["seeds"] == [0] and cells["bc"]["seeds"] == [0, 1]


ONLINE = """  gone-on:
    recipe: iql.yaml
    settings: {then: online, online.steps: 20, evaluation.every: 10, evaluation.episodes-during: 2}
    only: [reach-replay]
seeds"""


@pytest.mark.slow
def test_a_study_tells_what_going_on_online_cost(study, in_this_process, capsys):
    Path(study).write_text(STUDY.replace("seeds", ONLINE, 1))
    assert dispatch(["experiment", study, "--out", "out"]) == 0
    facts = json.loads(Path("out/archive.json").read_text())["table"]
    cells = facts["datasets"]["reach-replay"]["methods"]
    assert "online" not in cells["iql"]
    runs = [Run(path) for path in sorted(Path("out/runs").glob("*-gone-on--reach-replay-?"), key=lambda path: path.name[-1])]
    online = cells["gone-on"]["online"]
    assert online["regret"] == [run.description["regret"] for run in runs]
    assert np.allclose(online["after"], cells["gone-on"]["scores"], atol=0.01)
    reference = facts["datasets"]["reach-replay"]["reference"]
    for run, before in zip(runs, online["before"], strict=True):
        evaluation = Evaluation.from_json(json.loads((run.path / "evaluations" / "0000000020.json").read_text()))
        assert before == pytest.approx(np.mean([normalised(value, reference) for value in evaluation.returns]), abs=1e-3)
    shown = capsys.readouterr().out
    assert "| dataset | data | bc | iql |" in shown and "| reach-replay | gone-on |" in shown


LABELLED = """
summary: Learning from labels.
datasets:
  reach-play: {environment: robo/ArmReach-v0, arguments: {max_steps: 15, reward: dense}, family: play, episodes: 3}
labels:
  compared: {rater: oracle, settings: {mistakes: 0.2}, pairs: 30}
  asked: {reward: constant, settings: {value: 2.0}}
  control: {shuffled: compared}
settings: {steps: 20, evaluation.episodes: 2, evaluation.videos: 0, evaluation.every: 0}
methods:
  true: {recipe: iql.yaml, return_span: 1000}
  compared: {recipe: iql.yaml, return_span: 1000, labels: compared}
  control: {recipe: iql.yaml, labels: control}
seeds: [0]
claims:
  - {better: compared, than: "true", datasets: [play], share: 0.8}
  - {better: compared, than: control, datasets: [play]}
"""


@pytest.mark.slow
def test_a_study_labels_its_datasets(study, in_this_process, capsys):
    Path("labelled.yaml").write_text(LABELLED.replace("  true:", '  "true":'))
    order = ["experiment", "labelled.yaml", "--out", "out"]
    assert dispatch(order) == 0
    data = Dataset(Path("out/data/reach-play"))
    assert label_sets(data) == ["asked", "compared", "control"]
    learnt_from = {Run(path).description["dataset"].get("labels") for path in Path("out/runs").iterdir()}
    assert learnt_from == {None, "compared", "control"}
    facts = json.loads(Path("out/archive.json").read_text())["table"]
    cells = facts["datasets"]["reach-play"]["methods"]
    share, other = facts["claims"]
    assert share["difference"] == pytest.approx(cells["compared"]["score"] - 0.8 * cells["true"]["score"], abs=0.02)
    assert other["difference"] == pytest.approx(cells["compared"]["score"] - cells["control"]["score"], abs=0.02)
    assert "| compared > 80% of true |" in capsys.readouterr().out
    runs = {*Path("out/runs").iterdir()}
    assert dispatch(order) == 0
    assert {*Path("out/runs").iterdir()} == runs, "nothing is made twice"
    changed = LABELLED.replace("  true:", '  "true":').replace("mistakes: 0.2", "mistakes: 0.3")
    Path("labelled.yaml").write_text(changed)
    with pytest.raises(RunError, match=r"(?s)reach-play--compared.json was made with other settings.*0.2.*now.*0.3"):
        dispatch(order)
    Path("labelled.yaml").write_text(LABELLED.replace("  true:", '  "true":'))
    shuffle(data, "compared", "control-2", seed=1)
    assert dispatch(["label", str(data.path), "--name", "control", "--shuffled", "compared"]) == 0
    Path("out/data/reach-play/labels/control.sqlite").unlink()  # labels of another deal
    Path("out/data/reach-play/labels/control-2.sqlite").rename("out/data/reach-play/labels/control.sqlite")
    assert dispatch([*order, "--table"]) == 0
    cells = json.loads(Path("out/archive.json").read_text())["table"]["datasets"]["reach-play"]["methods"]
    assert "control" not in cells and "compared" in cells


def test_settings_of_labels_arrive_as_they_were_written(tmp_path):
    settings = {"nothing": None, "words": "pick: the cube", "number": "1", "several": [1, "a"], "inner": {"max_tokens": None}}
    for labels in (Asked("vlm-rm", settings), Compared("judge", settings)):
        command = labels.commands("mine", tmp_path / "data", tmp_path)[0]
        group = Group("reward.settings" if command[0] == "label" else "rater.settings")
        assert json.loads(gather(command, [group])[-1]) == settings


@pytest.mark.slow
def test_training_counts_only_with_current_study_settings(study, in_this_process):
    order = ["experiment", study, "--out", "out"]
    assert dispatch(order) == 0
    first = {*Path("out/runs").iterdir()}
    Path(study).write_text(STUDY.replace("return_span: 1000", "return_span: 500"))
    assert dispatch([*order, "--table"]) == 0
    cells = json.loads(Path("out/archive.json").read_text())["table"]["datasets"]["reach-replay"]["methods"]
    assert "iql" not in cells and cells["bc"]["seeds"] == [0, 1]
    assert dispatch(order) == 0
    anew = {*Path("out/runs").iterdir()} - first
    assert {path.name.split("-", 2)[2] for path in anew} == {"iql--reach-replay-0", "iql--reach-replay-1"}
    Path(study).write_text(STUDY)
    assert dispatch(order) == 0, "what was trained with these settings is still there"
    assert {*Path("out/runs").iterdir()} == first | anew


def test_run_of_method_with_same_suffix_is_ignored(tmp_path):
    for name in ("20260101-000000-bc--some-data-0", "20260102-000000-td3-bc--some-data-0", "20260103-000000-bc--some-data-10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").touch()
    assert [path.name for path in runs_of("bc--some-data", 0, tmp_path)] == ["20260101-000000-bc--some-data-0"]


CHANGES = [  # file, before, after, message
    ("source.yaml", "batch_size: 16", "batch_size: 8", "reach-10 was made with other settings.*learner.batch_size: 16, now 8"),
    ("source.yaml", "reward: dense", "reward: sparse", "environment.arguments"),
    ("study.yaml", "episodes: 3", "episodes: 4", "reach-random was made with other settings.*planned: 3, now 4"),
    ("study.yaml", "family: replay", "family: random", "family: replay, now random"),
]


@pytest.mark.slow
def test_foreign_sources_and_datasets_are_refused_untouched(study, in_this_process):
    assert dispatch(["experiment", study, "--out", "out"]) == 0
    made = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*") if path.is_file()}
    for file, before, after, message in CHANGES:
        text = Path(file).read_text()
        assert before in text
        Path(file).write_text(text.replace(before, after))
        with pytest.raises(RunError, match=f"(?s){message}"):
            dispatch(["experiment", study, "--out", "out"])
        assert made == {path: path.stat().st_mtime_ns for path in Path("out").rglob("*") if path.is_file()}
        Path(file).write_text(text)


@pytest.mark.slow
def test_a_job_that_fails_is_named_and_the_others_are_done(study, in_this_process):
    Path("iql.yaml").write_text(TINY.format(algorithm="iql").replace("hidden: [8]", "hidden: [0]"))
    with pytest.raises(RunError, match="2 of 4 jobs failed") as failure:
        dispatch(["experiment", study, "--out", "out"])
    assert "iql--reach-replay-0.log" in str(failure.value)
    assert len([*Path("out/runs").glob("*/evaluation.json")]) == 2


def test_the_scale_of_rewards_follows_from_the_returns(study):
    plan = read_plan(study)
    assert plan.settings_of("iql", "reach-replay", 10.0)["learner.reward-scale"] == pytest.approx(100.0)
    assert "learner.reward-scale" not in plan.settings_of("bc", "reach-replay", 10.0)


@pytest.mark.parametrize(
    ("before", "after", "error", "message"),
    [
        ("source: reach, family: replay", "source: raech, family: replay", UnknownName, "raech"),
        ("only: [reach-replay]", "only: [reach]", UnknownName, "dataset of the experiment"),
        ("seeds: [0, 1]", "seeds: [0, 0]", InvalidSetting, "all different"),
        ("seeds: [0, 1]", "labels: {a: {shuffled: b}}", UnknownName, "label set of the experiment"),
        ("seeds: [0, 1]", "labels: {a: {rater: oracle, model: b}}", UnknownName, "model of the experiment"),
        ("source: reach, family: replay", "family: replay", InvalidSetting, "neither"),
        ("return_span: 1000", "retrun_span: 1.0", InvalidSetting, "retrun_span"),
    ],
)
def test_a_study_with_a_mistake_is_one_error(study, before, after, error, message):
    Path(study).write_text(STUDY.replace(before, after))
    with pytest.raises(error, match=message):
        read_plan(study)


@pytest.mark.parametrize("name", ["offline", "foreign-offline", "foreign-door"])
def test_studies_that_come_with_the_package_are_sound(name):
    plan = read_plan(name)
    assert {"bc", "td3-bc", "iql", "rebrac"} <= set(plan.methods)
    assert len([*plan.cells()]) == len({*plan.cells()})


PUBLIC = """
summary: Cloning of a public set.
datasets:
  car: {get: donkeycar, folder: files}
methods: {bc: {recipe: offline-bc}}
"""


def test_a_study_learns_from_a_public_set():
    Path("public.yaml").write_text(PUBLIC)
    plan, out = read_plan("public.yaml"), Path("out")
    (job,) = [job for jobs in plan.preparations(out) for job in jobs]
    assert job.commands == [["data", "get", "donkeycar", "--out", "out/data/car", "--from", "files"]]
    assert plan.trainings(out) == {}
    spec = make_spec("imported/donkeycar", ArraySpec("distance", (1,)))
    dataset = make_dataset(out / "data" / "car", spec, [random_episode(spec)])
    dataset.describe({"public_set": "donkeycar"} | figures_of(dataset.entries()))
    trainings = plan.trainings(out)
    assert [*trainings] == [("bc", "car", seed) for seed in (0, 1, 2)]
    assert [job for jobs in plan.preparations(out) for job in jobs] == []
    assert all("out/data/car" in training.words for training in trainings.values())
    dataset.describe(dataset.card | {"public_set": "cs285-halfcheetah"})
    with pytest.raises(RunError, match="made with other settings"):
        plan.trainings(out)
