"""The command line: help with examples, overrides, and one clear error for each kind of bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from robo_app.recipes.files import recipe_files
from robo_app.recipes.recipe import parse_recipe, read_recipe, to_yaml
from robo_cli import main
from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting, MissingExtra, SpecMismatch, UnknownName

TINY = {
    "name": "tiny",
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 5}},
    "algorithm": "sac",
    "learner": {"network": {"hidden": [4]}, "batch_size": 4, "replay": {"learning_starts": 2}},
    "steps": 10,
    "evaluation": {"episodes": 2},
}


def tiny(tmp_path: Path, **changes: object) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY | changes))
    return str(path)


@pytest.mark.parametrize("command", [name for name, (options, _) in main.COMMANDS.items() if options])
def test_every_command_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main.dispatch([command, "--help"])
    assert stopped.value.code == 0
    assert f"robo-rl {command}" in capsys.readouterr().out.split("examples:")[1]


def test_an_experiment_has_one_command() -> None:
    assert "experiment" in main.COMMANDS and main.COMMANDS.keys().isdisjoint({"study", "race"})


def test_the_start_page_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.dispatch([]) == 0
    page = capsys.readouterr().out
    assert all(f"  {name} " in page for name in main.COMMANDS)
    assert main.dispatch(["train", "--help"]) == 0
    assert "robo-rl train arm-pick-rlpd" in capsys.readouterr().out


@pytest.mark.parametrize("name", list(recipe_files()))
def test_a_shipped_recipe_reads_back_as_itself(name: str) -> None:
    recipe = read_recipe(name)
    assert recipe.summary, "robo-rl recipes shows it"
    assert parse_recipe(yaml.safe_load(to_yaml(recipe)), source=name) == recipe


def test_overrides_reach_the_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.dispatch(["train", tiny(tmp_path), "--learner.lr", "1e-4", "--seed", "7", "--dry-run"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["learner"]["lr"] == 1e-4 and shown["seed"] == 7
    assert shown["learner"]["network"]["hidden"] == [4], "what is not overridden stays"
    assert shown["learner"]["tau"] == 0.005, "defaults are written out"


def test_an_unknown_override_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main.dispatch(["train", tiny(tmp_path), "--learner.lrr", "1e-4"])
    assert stopped.value.code == 2
    assert "--learner.lr FLOAT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"stepz": 3}, UnknownName, r"Unknown key in .*tiny.yaml: 'stepz'(.|\n)*did you mean 'steps'"),
        (
            {"learner": {"network": {"hiden": [4]}}},
            UnknownName,
            r"of learner.network in .*: 'hiden'(.|\n)*did you mean 'hidden'",
        ),
        ({"steps": "many"}, InvalidSetting, r"tiny.yaml: steps has the wrong type(.|\n)*got: +'many'(.|\n)*int"),
        ({"learner": 3}, InvalidSetting, r"learner must be a mapping(.|\n)*got: +3"),
        ({"algorithm": "sacc"}, UnknownName, r"Unknown learner 'sacc'(.|\n)*did you mean 'sac'"),
        ({"environment": {"arguments": 3}}, InvalidSetting, r"environment\.arguments has the wrong type"),
    ],
)
def test_a_wrong_recipe_is_one_clear_error(
    tmp_path: Path, changes: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_recipe(tiny(tmp_path, **changes))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (["--steps", "0"], r"Setting 'steps' is out of range(.|\n)*got: +0(.|\n)*1 or more"),
        (["--seed", "-1"], r"Setting 'seed'(.|\n)*0 or more"),
        (["--threads", "0"], r"Setting 'threads'(.|\n)*1 or more"),
        (["--log-every", "-1"], r"Setting 'log_every'(.|\n)*0 or more"),
        (["--evaluation.episodes", "0"], r"Setting 'episodes'(.|\n)*1 or more"),
        (["--demonstrations.noise", "-0.1"], r"Setting 'noise'(.|\n)*0 or more"),
        (["--learner.lr", "-1"], r"Setting 'lr'(.|\n)*above 0"),
        (["--learner.network.hidden", "8", "-3"], r"Setting 'network.hidden'(.|\n)*1 or more units"),
        (["--learner.critics", "0"], r"Setting 'critics'(.|\n)*1 or more"),
        (["--learner.replay.learning-starts", "0"], r"Setting 'replay.learning_starts'(.|\n)*1 or more"),
    ],
)
def test_a_value_out_of_range_is_refused_before_anything_is_done(tmp_path: Path, override: list[str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        main.dispatch(["train", tiny(tmp_path), *override, "--out", str(tmp_path / "runs")])
    assert not (tmp_path / "runs").exists()


def test_what_cannot_start_leaves_no_run(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "runs")]
    with pytest.raises(InvalidSetting, match=r"needs recorded episodes with this recipe(.|\n)*set demonstrations"):
        main.dispatch(["train", tiny(tmp_path, algorithm="bc", learner={}), *out])
    environment = {"name": "robo/ArmReach-v0", "arguments": {"colour": "red"}}
    with pytest.raises(UnknownName, match=r"Unknown argument of robo/ArmReach-v0 'colour'(.|\n)*max_steps"):
        main.dispatch(["train", tiny(tmp_path, environment=environment), *out])
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(InvalidSetting, match=r"broken.yaml is not YAML"):
        main.dispatch(["train", str(tmp_path / "broken.yaml"), *out])
    assert not (tmp_path / "runs").exists()


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m robo_cli.main recipes"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command} | true"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_that_cannot_be_made_is_one_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(arguments: list[str]) -> int:
        raise PermissionError(13, "Permission denied", "/root/runs")

    monkeypatch.setattr(main, "dispatch", refuse)
    with pytest.raises(SystemExit) as stopped:
        main.main()
    assert stopped.value.code == 1
    assert capsys.readouterr().err == (
        "error: [Errno 13] Permission denied: '/root/runs'\n  do:      look at its permissions, or name a place elsewhere\n"
    )


def test_numbers_as_yaml_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "numbers.yaml"
    path.write_text("environment: {name: robo/ArmReach-v0}\nalgorithm: sac\nsteps: 100\nlearner: {lr: 3e-4}\n")
    assert read_recipe(str(path)).learner.lr == 3e-4  # YAML 1.1 takes 3e-4 for a text


def test_unknown_names_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"Unknown command 'trian'(.|\n)*did you mean 'train'"):
        main.dispatch(["trian"])
    with pytest.raises(UnknownName, match=r"Unknown recipe 'arm-pik-rlpd'(.|\n)*did you mean 'arm-pick-rlpd'"):
        main.dispatch(["train", "arm-pik-rlpd"])
    with pytest.raises(UnknownName, match=r"Unknown environment 'robo/ArmPik-v0'(.|\n)*did you mean 'robo/ArmPick-v0'"):
        main.dispatch(["train", tiny(tmp_path, environment={"name": "robo/ArmPik-v0"}), "--out", str(tmp_path / "runs")])
    assert not (tmp_path / "runs").exists(), "a run that cannot start leaves no folder"


def test_an_error_is_a_sentence_and_a_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["robo-rl", "trian"])
    with pytest.raises(SystemExit) as stopped:
        main.main()
    assert stopped.value.code == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: Unknown command 'trian'.") and "Traceback" not in shown


def test_envs_lists_and_describes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.dispatch(["envs", "robo", "--json"]) == 0
    assert {"name": "robo/ArmPick-v0", "available": True, "problem": None} in json.loads(capsys.readouterr().out)
    assert main.dispatch(["envs", "robo/ArmPick-v0"]) == 0
    page = capsys.readouterr().out
    assert "end_effector_position" in page and "frame base" in page and " m " in page and "success" in page
    assert "A scripted expert can record demonstrations." in page
    with pytest.raises(UnknownName, match=r"Unknown environment 'roboo'"):
        main.dispatch(["envs", "roboo"])


def test_a_family_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(self: object) -> list[str]:
        raise MissingExtra("Meta-World", "metaworld", "metaworld")

    monkeypatch.setattr(type(load("environments", "metaworld")), "names", missing)
    assert main.dispatch(["envs", "metaworld"]) == 0
    assert "not available: Meta-World needs the package" in capsys.readouterr().out
    with pytest.raises(MissingExtra, match=r'pip install "robo-rl\[metaworld\]"'):
        main.dispatch(["envs", "metaworld/reach-v3"])


@pytest.mark.slow
def test_evaluation_is_refused_if_action_meaning_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.dispatch(["train", tiny(tmp_path), "--out", str(tmp_path / "runs")]) == 0
    shown = capsys.readouterr().out
    assert "tiny 10/10" in shown and "success" in shown and "2 episodes" in shown, "plain lines in a pipe"
    run = str(next((tmp_path / "runs").iterdir()))
    assert main.dispatch(["evaluate", run, "--episodes", "3", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["returns"]) == 3
    with pytest.raises(SpecMismatch, match=r"action.units|observation.*\(absent\)"):
        main.dispatch(["evaluate", run, "--environment", "gymnasium/HalfCheetah-v5"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "learner"),
    [
        (
            "rlpd",
            {
                "network": {"hidden": [4]},
                "batch_size": 4,
                "critics": 2,
                "updates_per_step": 1,
                "replay": {"learning_starts": 2},
            },
        ),
        ("bc", {"network": {"hidden": [4]}, "batch_size": 4}),
        pytest.param("sb3-ppo", {"n_steps": 10, "batch_size": 10, "clone_epochs": 1}, marks=pytest.mark.slow),
    ],
)
def test_a_run_with_demonstrations_is_evaluated_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], algorithm: str, learner: dict[str, object]
) -> None:
    arguments = {"max_steps": 40}
    changes = {"environment": {"name": "robo/ArmReach-v0", "arguments": arguments}, "demonstrations": {"episodes": 1}}
    recipe = tiny(tmp_path, algorithm=algorithm, learner=learner, evaluation={"episodes": 1}, **changes)
    assert main.dispatch(["train", recipe, "--out", str(tmp_path / "runs")]) == 0
    run = next((tmp_path / "runs").iterdir())
    capsys.readouterr()
    assert main.dispatch(["evaluate", str(run), "--episodes", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["returns"] == json.loads((run / "evaluation.json").read_text())["returns"]


def test_a_checkpoint_of_another_spec_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.dispatch(["train", tiny(tmp_path), "--out", str(tmp_path / "runs")]) == 0
    run = next((tmp_path / "runs").iterdir())
    spec = json.loads((run / "spec.json").read_text())
    spec["action"]["control_period"] = 0.1
    spec["observation"]["arrays"][0]["unit"] = "deg"
    (run / "spec.json").write_text(json.dumps(spec))
    for command in ("evaluate", "resume"):
        with pytest.raises(SpecMismatch) as caught:
            main.dispatch([command, str(run)])
        assert "observation.joint_position.unit: 'deg' here, 'rad' there" in str(caught.value)
        assert "action.control_period: 0.1 here, 0.05 there" in str(caught.value)


STEERS = "\x1b]0;owned\x07\x9b31m\r"


@pytest.mark.slow
def test_nothing_foreign_steers_the_terminal(tmp_path: Path) -> None:
    """Neither a name that is wrong, nor the words of an error that nobody foresaw, nor what is printed."""
    program = f"""
import sys
from robo_cli import main
words = {STEERS!r}
def dispatch(arguments):
    print("name\\t" + words)
    raise main.UnknownName("recipe", words, []) if arguments[0] == "error" else KeyError(words)
main.dispatch = dispatch
main.main()
"""
    for what in ("error", "raise"):
        done = subprocess.run([sys.executable, "-c", program, what], capture_output=True, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 1 and not [sign for sign in STEERS.encode() if sign < 32 and sign in said]
        assert b"name\t" + rb"\x1b]0;owned\x07\x9b31m\r" in said and b"\x9b" not in said.replace(b"\xc2", b"")


def test_rich_draws_on_plain_output() -> None:
    program = """
from rich.console import Console
from robo_cli.plain_output import use_plain_output
use_plain_output()
Console(force_terminal=True, color_system="standard").print("[red]x[/]")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert b"\x1b[31m" in done.stdout
