"""Studies whose trainings read a reward model that the study fits: folders arrive, a moved study is still its own."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from robo_app.display.markdown_tables import ends
from robo_app.experiments.inputs import differing
from robo_app.experiments.plan import read_plan
from robo_app.experiments.records import Record
from robo_app.experiments.tables import study_facts, study_page
from robo_app.recipes.recipe import to_yaml
from robo_app.training.train_options import recipe_of
from robo_rl.errors import UnknownName
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.measures import Measure
from robo_rl.evaluation.statistics import stratified_bootstrap

STUDY = """
summary: A study in small.
models:
  reach: {fit: embedded, settings: {environment: robo/ArmReach-v0}}
methods:
  plain: {recipe: arm-reach-sac-sparse}
  seen: {recipe: arm-reach-sac-sparse, model: reach, settings: {reward.name: embedded-progress}}
  ended: {recipe: arm-pick-vlm, model: reach}
  added:
    recipe: arm-reach-sac-sparse
    model: reach
    settings: {reward.name: embedded-progress, reward.completion.name: embedded-completion}
"""


@pytest.fixture
def study():
    Path("study.yaml").write_text(STUDY)
    return read_plan("study.yaml")


def models(study):
    """Returns the jobs that learn reward models."""
    return [*study.preparations(Path("out"))][2]


def folders(words) -> dict[str, str]:
    return {word: words[at + 1] for at, word in enumerate(words) if word.endswith(".folder")}


def test_models_are_fitted_first_for_rewards_and_completion(study):
    (job,) = models(study)
    (command,) = job.commands
    assert command[:5] == ["reward", "fit", "embedded", "--out", "out/models/reach"]
    assert folders(study.words("plain", 0, Path("out"))) == {}
    own = {"--reward.settings.folder": "out/models/reach"}
    assert folders(study.words("seen", 0, Path("out"))) == own
    for method in ("ended", "added"):
        found = folders(study.words(method, 0, Path("out")))
        assert found == own | {"--reward.completion.settings.folder": "out/models/reach"}
    (Path("out/models/reach") / "0").mkdir(parents=True)
    assert models(study), "a folder without a manifest is not a model"
    (Path("out/models/reach") / "0" / "MANIFEST.json").write_text("{}")
    assert not models(study)


def test_a_study_that_was_moved_knows_its_runs(study, tmp_path):
    words = study.words("seen", 0, Path("out"))
    (tmp_path / "recipe.yaml").write_text(to_yaml(recipe_of(words)))
    assert differing(tmp_path, study.words("seen", 0, Path("elsewhere"))) == {}
    assert set(differing(tmp_path, [*words, "--reward.settings.mode", "level"])) == {"reward.settings"}


def test_a_model_that_the_study_does_not_have():
    Path("study.yaml").write_text(STUDY.replace("model: reach,", "model: raech,"))
    with pytest.raises(UnknownName, match="model of the experiment study 'raech'"):
        read_plan("study.yaml")


def test_a_method_on_datasets_may_go_on_with_a_model_too():
    text = """
summary: Learning from data, then from pictures.
datasets: {pick: {environment: robo/ArmPick-v0, family: expert}}
models: {pick: {fit: embedded, settings: {environment: robo/ArmPick-v0}}}
methods: {seen: {recipe: offline-iql, model: pick, settings: {then: online, reward.name: embedded-progress}}}
"""
    Path("data.yaml").write_text(text)
    study = read_plan("data.yaml")
    dataset = SimpleNamespace(path=Path("out/data/pick"), card={"return": {"most": 1.0, "least": 0.0}})
    assert folders(study.words("seen", 0, Path("out"), dataset)) == {"--reward.settings.folder": "out/models/pick"}
    Path("data.yaml").write_text(text.replace("model: pick,", "model: pickle,"))
    with pytest.raises(UnknownName, match="model of the experiment data 'pickle'"):
        read_plan("data.yaml")


def test_shipped_study_compares_true_learned_and_shuffled():
    study = read_plan("pictures")
    kinds = {f"{task}-{kind}" for task in ("reach", "pick") for kind in ("true", "vlm", "shuffled")}
    assert {*study.methods} == kinds | {"cloned", "refined-true", "refined-vlm"}


def test_returns_that_are_all_the_same_have_no_interval():
    row = {
        "seeds": [0],
        "returns": [1.0],
        "success": [1.0],
        "while learning": [None],
        "mean": ends(stratified_bootstrap([[1.0, 1.0]], np.mean)),
    }
    assert row["mean"] == [1.0, None, None]
    assert "| sure | 1 | 1 | 100% |  |" in study_page({"methods": {"sure": row}, "claims": []})


def finished(method, crashes, way):
    """A training with an evaluation of as many episodes as there are numbers of crashes, each `way` km long."""
    count = len(crashes)
    evaluation = Evaluation(
        *("drive/Town", "0", None, tuple(range(count)), (1.0,) * count, (5,) * count, (None,) * count, ("end",) * count),
        deterministic=True,
        duration=1.0,
        measures=(Measure("way", "km"), Measure("crashes", "1/km", per="way")),
        measured={"way": (way,) * count, "crashes": crashes},
    )
    return Record(method, "", 0, final=evaluation)


@pytest.mark.slow
def test_claims_accept_measures_and_lower_is_better():
    Path("study.yaml").write_text(
        "summary: Fewer crashes.\nseeds: [0]\nmethods: {careful: {recipe: drive-town}, fast: {recipe: drive-town}}\n"
        "claims: [{better: careful, than: fast, by: crashes, fewer: true}, {better: fast, than: careful, by: way}]\n"
    )
    found = {
        ("careful", "", 0): finished("careful", (0.0,) * 19 + (1.0,), 0.5),
        ("fast", "", 0): finished("fast", (1.0,) * 18 + (0.0, 0.0), 1.0),
    }
    facts = study_facts(read_plan("study.yaml"), found, {})
    assert [claim["holds"] for claim in facts["claims"]] == ["few seeds", "few seeds"]
    thrice = {(method, on, seed): record for (method, on, _), record in found.items() for seed in range(3)}
    assert [claim["holds"] for claim in study_facts(read_plan("study.yaml"), thrice, {})["claims"]] == ["yes", "undecided"]
    page = study_page(facts)
    assert "| careful < fast, crashes | +0.85 [" in page and "| careful | 0.5 | 0.1 [0.00253, 0.557] |" in page


@pytest.mark.slow
def test_driving_study_evaluates_on_unseen_routes():
    study = read_plan("driving")
    for method, _, seed in study.cells():
        recipe = recipe_of(study.words(method, seed, Path("out")))
        assert recipe.evaluation.arguments == {"routes": "test"} and "routes" not in recipe.environment.arguments
    assert recipe.reward.name == "" and recipe.environment.arguments["reward"] == "speed"
