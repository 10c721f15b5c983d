"""robo-rl reward check, explain, show and references, and programs that come with the package, as typed."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from robo_app.recipes.environments import RecipeEnvironments
from robo_app.recipes.online_reward import require_same_reward, reward_of
from robo_app.recipes.recipe import read_recipe
from robo_app.recipes.reward_file import program_file, read_reward, shipped_programs
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_rl.errors import InvalidProgram, InvalidSetting, UnknownName
from robo_rl.rewards.programs.runner import end_workers
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.runs.run import find_run
from robo_sims.arm.family import FAMILY

FIRST = """def reward(batch):
    distance = np.linalg.norm(batch["goal_from_gripper"], axis=1)
    return -distance, {"distance": -distance}
"""


@pytest.fixture(scope="module", autouse=True)
def _workers_end():
    yield
    end_workers()


@pytest.fixture
def recorded():
    path = Path("data/reach")
    dispatch(["record", "robo/ArmReach-v0", "--policy", "mix:scripted=0.5,random=0.5", "--episodes", "4", "--out", str(path)])
    return path


def correlation(episode, values):
    return spearmanr(np.cumsum(values), np.cumsum(episode.rewards)).statistic


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arm_pick", "arm_push", "arm_reach"])
def test_shipped_program_agrees_with_task_progress(name):
    """Without it ever seeing progress or success: the environment's dense reward adds up to both."""
    model = read_reward(f"program:{name}", {})
    environment = FAMILY.make(f"Arm{name.removeprefix('arm_').title()}-v0", reward="dense")
    expert, idler = environment.scripted_policy(seed=0), RandomPolicy(environment.environment_spec, 0)
    sums = []
    for seed in (0, 1):
        done, idle = rollout(environment, expert, seed=seed), rollout(environment, idler, seed=seed)
        assert done.success and not idle.success
        values = model.label(done).values
        assert correlation(done, values) > 0.98
        assert correlation(done, -values) < 0.0, "the comparison can fail"
        sums.append((values.sum(), model.label(idle).values.sum()))
    assert min(best for best, _ in sums) > max(worst for _, worst in sums) + 0.5


def test_programs_are_found_by_path_and_by_name(tmp_path):
    assert shipped_programs() == ["arm_pick", "arm_push", "arm_reach"]
    (tmp_path / "mine.py").write_text(FIRST)
    assert program_file(str(tmp_path / "mine.py")) == tmp_path / "mine.py" and program_file("arm_push").exists()
    model = read_reward(f"program:{tmp_path / 'mine.py'}", {"every": 7})
    assert model.every == 7 and model.identity == read_reward("program", {"path": str(tmp_path / "mine.py")}).identity
    with pytest.raises(InvalidProgram, match="cannot be read"):
        _ = read_reward("program:nowhere.py", {}).identity
    with pytest.raises(UnknownName, match="arm_pick, arm_push, arm_reach") as told:
        read_reward("program:arm_psh", {})
    assert "did you mean 'arm_push'" in str(told.value) and "the path of a .py file" in str(told.value)
    with pytest.raises(UnknownName, match="'pth'"):
        read_reward("program:arm_push", {"pth": 1})


@pytest.mark.slow
def test_check_explains_faults_and_sets_exit_status(recorded, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(FIRST)
    mine = str(tmp_path / "mine.py")
    assert dispatch(["reward", "check", mine]) == 0
    assert "it was not run: name an --environment or a --dataset" in capsys.readouterr().out
    assert dispatch(["reward", "check", mine, "--dataset", str(recorded), "--rows", "100"]) == 0
    said = capsys.readouterr().out
    assert "ok      grammar: terms distance; reads goal_from_gripper" in said and "ok      determinism" in said
    assert "passed on" in said and "of robo/ArmReach-v0" in said
    (tmp_path / "mine.py").write_text(FIRST.replace("-distance,", "-distance + np.mean(distance),"))
    assert dispatch(["reward", "check", mine, "--environment", "robo/ArmReach-v0", "--rows", "70"]) == 1
    assert "FAILED on" in capsys.readouterr().out
    (tmp_path / "mine.py").write_text(FIRST.replace("goal_from", "gaol_from"))
    assert dispatch(["reward", "check", mine, "--dataset", str(recorded)]) == 1
    assert "failure unknown column: Line 2: There is no column 'gaol_from_gripper'" in capsys.readouterr().out
    (tmp_path / "mine.py").write_text("import os\n" + FIRST)
    assert dispatch(["reward", "check", mine]) == 1
    with pytest.raises(InvalidSetting, match="Rows come from an environment or from a dataset"):
        dispatch(["reward", "check", mine, "--dataset", "x", "--environment", "y"])
    with pytest.raises(InvalidSetting, match=r"--environment\.arguments\.KEY needs an --environment"):
        dispatch(["reward", "check", mine, "--environment.arguments.action_repeat", "3"])


def test_explain_writes_a_page_and_show_prints_the_program(recorded, capsys):
    dispatch(["reward", "explain", "arm_reach", "--dataset", str(recorded), "--episode", "1", "--out", "new/page.html"])
    page, said = Path("new/page.html").read_text(), capsys.readouterr().out
    assert page.count("<svg") == 3 and "approach" in page and "Added up so far" in page
    assert "approach" in said and "environment's own reward" in said
    with pytest.raises(InvalidSetting, match=r"There is no episode 9(.|\n)*0 to 3"):
        dispatch(["reward", "explain", "arm_reach", "--dataset", str(recorded), "--episode", "9"])
    with pytest.raises(InvalidSetting, match="The reward oracle has no terms"):
        dispatch(["reward", "explain", "oracle", "--dataset", str(recorded)])
    assert dispatch(["reward", "show", "program:arm_reach"]) == 0
    said = capsys.readouterr().out
    assert "terms    approach, arrive, effort" in said and "from     written by hand, comes with robo-rl" in said


@pytest.mark.slow
def test_dataset_is_labelled_by_program_and_references_saved(recorded, capsys):
    dispatch(["label", str(recorded), "--reward", "program:arm_reach", "--name", "written", "--cache", "none"])
    dataset = Dataset(recorded)
    labels = LabelSet(dataset, "written")
    assert labels.count(dataset.entries()) == sum(entry.steps for entry in dataset.entries())
    assert {model for model, _ in labels.makers} == {"program"}
    command = ["reward", "references", "program:arm_reach", "--dataset", str(recorded), "--out", "references.json"]
    assert dispatch(command) == 0
    told = json.loads(Path("references.json").read_text())
    sums = [float(labels.read(entry.identity).values.sum()) for entry in dataset.entries()]
    assert told["scores"] == pytest.approx(sums, rel=1e-5) and told["about"]["model"] == "program"
    with pytest.raises(InvalidSetting, match="is there already"):
        dispatch(command)


RECIPE = """
environment: {{name: robo/ArmReach-v0, arguments: {{max_steps: 8, action_repeat: 3}}}}
algorithm: sac
learner: {{network: {{hidden: [8]}}, batch_size: 8, replay: {{learning_starts: 4}}}}
reward: {reward}
steps: 30
log_every: 10
evaluation: {{episodes: 1, videos: 0}}
"""


@pytest.mark.slow
def test_run_names_its_program_and_refuses_another(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(FIRST)
    Path("tiny.yaml").write_text(RECIPE.format(reward=f"{{name: 'program:{tmp_path / 'mine.py'}', weight: 2.0}}"))
    assert dispatch(["train", "tiny.yaml"]) == 0
    run = find_run("latest", Path("runs"))
    told, newest = run.description["reward"], {name: value for line in run.metrics() for name, value in line.items()}
    assert told["model"] == "program" and told["weight"] == 2.0
    assert -10 < newest["reward/distance"] < 0 and newest["reward/model_return"] == pytest.approx(2 * newest["reward/distance"])
    assert newest["rollout/ep_rew_mean"] == 0.0, "the task's own reward is sparse, and it was not reached"
    recipe = read_recipe("tiny.yaml")
    require_same_reward(run, reward_of(recipe, RecipeEnvironments(recipe)))
    (tmp_path / "mine.py").write_text(FIRST.replace("return -distance", "return -2 * distance"))
    with pytest.raises(InvalidSetting, match=r"The reward has changed since the run (.|\n)*weights"):
        require_same_reward(run, reward_of(recipe, RecipeEnvironments(recipe)))
    with pytest.raises(InvalidSetting, match=r"reward\.hold"):
        dispatch(["train", "tiny.yaml", "--reward.hold", "3"])


@pytest.mark.slow
def test_a_recipe_may_name_a_pipeline(capsys):
    shaped = """
  name: pipeline
  settings:
    sources:
      - {reward: program, settings: {path: PATH}, weight: 0.5, stages: [{stage: bound, settings: {low: -1, high: 1}}]}
      - {environment: true, weight: 2}
    stages: [{stage: delta}]
""".replace("PATH", str(program_file("arm_reach")))
    Path("tiny.yaml").write_text(RECIPE.format(reward=shaped))
    assert dispatch(["train", "tiny.yaml"]) == 0
    run = find_run("latest", Path("runs"))
    newest = {name: value for line in run.metrics() for name, value in line.items()}
    assert {"reward/program/1_bound", "reward/program/approach", "reward/environment", "reward/1_delta"} <= set(newest)
    assert newest["reward/of_environment"] == newest["rollout/ep_rew_mean"] and newest["reward/missing"] == 0.0


def test_program_has_same_name_alone_and_in_pipeline(tmp_path):
    (tmp_path / "mine.py").write_text(FIRST)
    (tmp_path / "mine.yaml").write_text(f"reward: 'program:{tmp_path / 'mine.py'}'\nsettings: {{every: 7}}\n")
    alone = read_reward("program", {"path": str(tmp_path / "mine.py"), "every": 7})
    assert read_reward(str(tmp_path / "mine.yaml"), {}).identity == alone.identity

    def pipeline(*sources):
        return read_reward("pipeline", {"sources": list(sources)})

    mixed = pipeline({"reward": "program:arm_push"}, {"reward": "program:arm_reach", "name": "near", "weight": 0.5})
    path = str(program_file("arm_push"))
    assert [part.name for part in mixed.parts] == ["arm_push", "near"], "in the log they are called as they are named"
    assert mixed.parts[0].model.identity == read_reward("program", {"path": path}).identity
    settings = {"reward": f"program:{tmp_path / 'mine.py'}", "settings": {"every": 7}}
    assert pipeline(settings).parts[0].model == alone
    with pytest.raises(UnknownName, match="arm_pick, arm_push, arm_reach"):
        pipeline({"reward": "program:arm_psh"})
