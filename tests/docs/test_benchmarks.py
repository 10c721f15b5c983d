"""The figures on the page of benchmarks are those of the archived runs next to it."""

import json
import re
from pathlib import Path

import pytest

from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.runs.archive import resolve_archive
from robo_rl.runs.run import Run

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"
PAGE = (FOLDER / "README.md").read_text()


def tables() -> list[tuple[str, int, str]]:
    """Returns (recipe, seed, figure) of every table whose columns are seeds."""
    found = []
    for table in re.findall(r"\| \| seed [^\n]*\n\|[-|]+\n(?:\|[^\n]*\n)+", PAGE):
        header, _, *rows = table.splitlines()
        seeds = [int(seed) for seed in re.findall(r"seed (\d+)", header)]
        for row in rows:
            recipe, *figures = (cell.strip() for cell in row.strip("|").split("|"))
            found += [(recipe, seed, figure) for seed, figure in zip(seeds, figures, strict=False)]
    return found


def test_there_is_a_table_of_seeds():
    assert {recipe for recipe, _, _ in tables()} >= {"halfcheetah-sac", "halfcheetah-sb3-sac"}


def stored_runs() -> dict[tuple[str, int], Path]:
    """Return every archived run by (recipe, seed)."""
    found = {}
    for archive in ("halfcheetah-sac", "halfcheetah-ppo", "arm-pick", "halfcheetah-sac-before-rewrite"):
        for path in Path(resolve_archive(str(FOLDER / f"{archive}.zip"))).iterdir():
            recipe, seed = re.fullmatch(r"[\d-]+?-([a-z].*)-(\d+)", path.name).groups()
            found["before the rewrite: " * archive.endswith("before-rewrite") + recipe, int(seed)] = path
    return found


@pytest.mark.parametrize(("recipe", "seed", "figure"), tables())
def test_each_figure_is_the_mean_return_of_a_stored_run(recipe, seed, figure):
    folder = stored_runs()[recipe, seed]
    evaluation = Evaluation.from_json(json.loads((folder / "evaluation.json").read_text()))
    decimals = len(figure.partition(".")[2])
    assert f"{evaluation.mean_return.estimate:.{decimals}f}" == figure
    assert Run(folder).description["seed"] == seed


def test_every_stored_run_is_on_the_page():
    assert {(recipe, seed) for recipe, seed, _ in tables()} == set(stored_runs())
