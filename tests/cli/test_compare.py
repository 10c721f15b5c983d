import json
from dataclasses import replace
from pathlib import Path

import pytest

from factories import axes, make_spec
from robo_app.arguments.run_selection import find_runs
from robo_cli.experiments.compare import Compare, run
from robo_cli.experiments.report import Report
from robo_cli.experiments.report import run as run_report
from robo_rl.errors import InvalidSetting, RunError, RunNotFound, SpecMismatch, UnknownName
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.runs.run import Run
from robo_rl.spec.environment import ArraySpec

SPEC = make_spec(
    "test/Task",
    ArraySpec("position", (2,), unit="m"),
    action=axes("x", unit="m/s", mode="joint_velocity", control_period=0.05),
    success_rule="it is there",
)


@pytest.fixture
def make(tmp_path):
    """Returns make(name, seed, successes, ...) -> name of a run folder with that final evaluation."""

    def make_run(name, seed, successes, *, spec=SPEC, first_seed=1_000_000, recipe=""):
        recipe = f"name: {name}\nseed: {seed}\n{recipe}"
        folder = Run.create(tmp_path, recipe_name=name, seed=seed, recipe=recipe, spec=spec).path
        outcome = Evaluation(
            environment=spec.name,
            spec_fingerprint=spec.fingerprint,
            success_rule=spec.success_rule,
            seeds=tuple(range(first_seed, first_seed + len(successes))),
            returns=tuple(-1.0 if success is None else 2.0 * success for success in successes),
            lengths=(5,) * len(successes),
            successes=tuple(successes),
            stop_reasons=("time_limit",) * len(successes),
            deterministic=True,
            duration=1.0,
        )
        (folder / "evaluation.json").write_text(json.dumps(outcome.to_json()))
        return folder.name

    return make_run


def compare(tmp_path, capsys, first, second, **arguments):
    assert run(Compare(first, second, runs=tmp_path, **arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_two_runs_are_compared_in_pairs(make, tmp_path, capsys):
    worse, better = make("sac", 0, [False] * 18 + [True] * 2), make("rlpd", 0, [True] * 20)
    text = compare(tmp_path, capsys, worse, better)
    rows = {line[:18].strip(): line[18:].split() for line in text.splitlines()}
    assert rows["A"] == ["10.0%", "0.2"] and rows["B"] == ["100.0%", "2"]
    assert rows["B - A"][0] == "+90.0%" and rows["B - A"][3] == "+1.8"
    assert rows["McNemar exact p"] == ["7.6e-06"]  # 2 / 2^18
    assert "one training seed a side: the intervals cover evaluation episodes, not training" in text
    assert max(map(len, text.splitlines()[2:9])) <= 80


@pytest.mark.slow
def test_groups_of_training_seeds_are_chosen_by_a_pattern(make, tmp_path, capsys):
    for seed in (0, 1, 2):
        make("sac", seed, [seed == 0] * 20)
        make("rlpd", seed, [True] * 20)
    text = compare(tmp_path, capsys, "*-sac-*", str(tmp_path / "*-rlpd-*"))
    assert "3 and 3 training runs: the intervals cover training and evaluation" in text
    rows = {line[:18].strip(): line[18:].split() for line in text.splitlines()}
    assert rows["A"][0] == "33.3%" and rows["McNemar exact p"] == []  # McNemar pairs single runs only
    mixed = compare(tmp_path, capsys, "*-sac-*", "*-rlpd-0")
    assert "one side has a single training seed" in mixed


def test_what_differs_in_the_recipes_is_told(make, tmp_path, capsys):
    def rate(lr):
        return f"steps: 10\nlearner: {{lr: {lr}, hidden: [8]}}\nonly: {{key{lr}: 1}}\n"

    for seed, lr in enumerate((0.1, 0.2)):
        make("task-a", seed, [1, 0], recipe=rate(lr))
        make("task-b", seed, [1, 1], recipe=rate(0.1))
        make("task-c", seed, [1, 1], recipe=rate(0.1) + "".join(f"key{key}: {seed + key}\n" for key in range(7)))
    assert "recipes differ in learner.lr: A 0.1 or 0.2, B 0.1\n" in compare(tmp_path, capsys, "*task-a*", "*task-b*")
    assert "recipes" not in compare(tmp_path, capsys, "*task-b-0", "*task-b-1")  # the seed alone
    said = compare(tmp_path, capsys, "*task-c-0", "*task-c-1")
    assert "differ in key0: A 0, B 1; key1: A 1, B 2;" in said and "; and 2 more, which --json lists\n" in said
    make("task-d", 0, [1, 1], recipe=rate(0.1) + "environment: {arguments: {mass: 2}}\n")
    make("task-e", 0, [1, 1], recipe=rate(0.1) + "environment: {arguments: {}}\n")
    said = compare(tmp_path, capsys, "*task-d-0", "*task-e-0")
    assert "recipes differ in environment.arguments: A {'mass': 2}, B {}\n" in said
    found = json.loads(compare(tmp_path, capsys, "*task-a-1", "*task-b-0", json=True))
    assert found["recipes differ in"] == {"learner.lr": [[0.2], [0.1]]}


@pytest.mark.slow
def test_json_holds_everything(make, tmp_path, capsys):
    a, b = make("a", 0, [False, True, True]), make("b", 0, [True, True, True, True])
    data = json.loads(compare(tmp_path, capsys, a, b, json=True))
    assert data["first"] == [a] and data["second"] == [b] and data["seeds"] == [1_000_000, 1_000_001, 1_000_002]
    assert data["comparisons"]["success"]["mean_difference"]["estimate"] == pytest.approx(1 / 3)
    assert data["comparisons"]["return"]["p_value"] is None


@pytest.mark.slow
def test_one_shared_seed_gives_valid_json_without_interval(make, tmp_path, capsys):
    a, b = make("a", 0, [True, True]), make("b", 0, [True], first_seed=1_000_001)
    text = compare(tmp_path, capsys, a, b, json=True)
    assert "NaN" not in text and json.loads(text)["comparisons"]["return"]["mean_difference"]["low"] is None


@pytest.mark.slow
def test_compare_uses_common_success_and_reports_cut_episodes(make, tmp_path, capsys):
    a = make("a", 0, [None, False, False, False, True, True, None, False])
    b = make("b", 0, [True, True, True, None, True, True, None, False])
    text = compare(tmp_path, capsys, a, b)
    assert "8 shared evaluation seeds" in text
    assert "success on 5 of them; 3 more left out, whose episode was cut before its outcome was known" in text
    found = json.loads(compare(tmp_path, capsys, a, b, json=True))["comparisons"]
    assert found["success"]["mean_difference"]["estimate"] == pytest.approx(2 / 5) and found["success"]["episodes"] == 5
    assert found["success"]["p_value"] == 0.5 and found["return"]["episodes"] == 8


def test_a_task_without_success_is_compared_by_return(make, tmp_path, capsys):
    a, b = make("a", 0, [None] * 5), make("b", 0, [None] * 5)
    assert list(json.loads(compare(tmp_path, capsys, a, b, json=True))["comparisons"]) == ["return"]


def test_runs_of_two_specs_are_refused(make, tmp_path, capsys):
    a = make("a", 0, [True])
    b = make("b", 0, [True], spec=replace(SPEC, action=replace(SPEC.action, control_period=0.1)))
    with pytest.raises(SpecMismatch) as error:
        compare(tmp_path, capsys, a, b)
    assert f"{a} and {b} cannot be compared: 1 field(s) differ." in str(error.value)
    assert "action.control_period: 0.05 here, 0.1 there" in str(error.value)


def test_what_cannot_be_compared_says_why(make, tmp_path, capsys):
    a, b = make("a", 0, [True]), make("b", 0, [True], first_seed=7)
    with pytest.raises(
        InvalidSetting, match=r"share no evaluation seed\.\n  do: +evaluate them with the same evaluation\.seed"
    ):
        compare(tmp_path, capsys, a, b)
    (tmp_path / b / "evaluation.json").unlink()
    with pytest.raises(RunError, match=rf"{b} has no final evaluation\.\n  do: +finish it: robo-rl resume {b}"):
        compare(tmp_path, capsys, a, b)
    with pytest.raises(RunNotFound, match=r"No run matches '\*-none-\*'\.\n  got: +\*-none-\*"):
        find_runs("*-none-*", tmp_path)
    with pytest.raises(UnknownName, match="Unknown run"):
        find_runs("none", tmp_path)


@pytest.mark.slow
def test_what_evaluations_told_is_compared_file_by_file(make, tmp_path, capsys):
    for seed in (0, 1):
        for name, successes in (("sac", [seed == 0] * 20), ("rlpd", [True] * 20)):
            run_folder = tmp_path / make(name, seed, successes)
            (run_folder / "evaluation.json").rename(tmp_path / f"{name}-{seed}.json")
    text = compare(tmp_path, capsys, str(tmp_path / "sac-*.json"), str(tmp_path / "rlpd-[01].json"))
    assert f"A  {tmp_path / 'sac-0.json'}, {tmp_path / 'sac-1.json'}" in text and "2 and 2 training runs" in text
    assert "+50.0%" in text
    mixed = json.loads(compare(tmp_path, capsys, str(tmp_path / "sac-1.json"), make("other", 0, [True] * 20), json=True))
    assert mixed["comparisons"]["success"]["mean_difference"]["estimate"] == 1.0


@pytest.mark.slow
def test_evaluations_of_one_training_are_no_trainings(make, tmp_path, capsys):
    other = make("b", 0, [True] * 3)
    told = json.loads((tmp_path / other / "evaluation.json").read_text())
    for step, seed in ((10, 3), (20, 3)):
        (tmp_path / f"{step}[1].json").write_text(json.dumps(told | {"training_seed": seed, "deterministic": False}))
    with pytest.raises(InvalidSetting, match=r"one training tell nothing(.|\n)*10\[1\]\.json of training seed 3"):
        compare(tmp_path, capsys, str(tmp_path / "*.json"), other)
    text = compare(tmp_path, capsys, str(tmp_path / "20[1].json"), other)  # there is a file of that very name
    assert "some drew their actions by chance" in text


def test_a_run_whose_name_ends_like_a_file_is_a_run(make, tmp_path, capsys):
    a, b = make("a", 0, [True] * 3), make("b", 0, [True] * 3)
    (tmp_path / a).rename(tmp_path / "mine.json")
    assert "A  mine.json\n" in compare(tmp_path, capsys, str(tmp_path / "mine.json"), b)


def test_files_of_two_specs_and_other_files_are_refused(make, tmp_path, capsys):
    for name, spec in (("a", SPEC), ("b", replace(SPEC, action=replace(SPEC.action, control_period=0.1)))):
        (tmp_path / make(name, 0, [True], spec=spec) / "evaluation.json").rename(tmp_path / f"{name}.json")
    a, b, c = (str(tmp_path / f"{name}.json") for name in "abc")
    with pytest.raises(SpecMismatch, match=r"a\.json and .*b\.json cannot be compared(.|\n)*spec: test/Task, spec "):
        compare(tmp_path, capsys, a, b)
    with pytest.raises(RunNotFound, match=r"No file matches"):
        compare(tmp_path, capsys, a, c)
    told = json.loads(Path(a).read_text())
    wrong = ({"seeds": 3}, told | {"seeds": 3}, told | {"returns": []}, told | {"seeds": []})
    for content in ("{", "[]", "[" * 100_000, "{}", *map(json.dumps, wrong)):
        (tmp_path / "c.json").write_text(content)
        with pytest.raises(RunError, match=r"c\.json holds no evaluation(.|\n)*robo-rl evaluate RUN --json"):
            compare(tmp_path, capsys, a, c)


@pytest.mark.slow
def test_many_measures_have_a_line_each(make, tmp_path, capsys):
    names = [make("a", 0, [False, True]), make("b", 0, [True, True])]
    for count, name in enumerate(names, 1):
        path = tmp_path / name / "evaluation.json"
        told = json.loads(path.read_text())
        told["measures"] = [{"name": each} for each in ("hits", "score")]
        path.write_text(json.dumps(told | {"measured": {"hits": [3.0 * count, 0.0], "score": [50.0, 50.0]}}))
    rows = {line.split()[0]: line.split() for line in compare(tmp_path, capsys, *names).splitlines() if line}
    assert rows["hits"][1:4] == ["1.5", "3", "+1.5"] and rows["success"][1:4] == ["50.0%", "100.0%", "+50.0%"]
    assert rows["score"][1:4] == ["50", "50", "+0"]


@pytest.mark.slow
def test_a_report_lies_in_the_run_or_beside_several(make, tmp_path, capsys):
    a, _ = make("a", 0, [True, False]), make("a", 1, [True, True])
    assert run_report(Report((a,), runs=tmp_path)) == 0
    assert (tmp_path / a / "report.html").exists()
    assert run_report(Report(("*-a-*",), runs=tmp_path)) == 0
    assert "seed 1" in (tmp_path / "report.html").read_text()
    assert run_report(Report((a,), out=tmp_path / "page.html", runs=tmp_path)) == 0
    assert (tmp_path / "page.html").exists()
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "page.html")
