"""Ask-to-Act without a language model: questions of a trained policy by look-alikes and by price, beside the best number.

python -m robo_papers.ask_to_act.study --out questions --seeds 3

Resumable: finished trainings are not made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import robo_rl
from robo_app.experiments.results import Results, add_archive_option
from robo_bench.finished import finished
from robo_papers.ask_to_act.environment import best_questions

OBJECTS, PRICES = (1, 2, 4, 8), (0.05, 0.3, 0.45, 0.6)


def measured(out: Path, seed: int, steps: int, **arguments: Any) -> tuple[float, float]:
    """Train with these arguments of the environment; return success rate and questions per episode."""
    name = "-".join(f"{key}_{value}" for key, value in arguments.items())
    environment = {"name": "questions/Fetch-v0", "arguments": arguments}
    run = finished(out, name, seed) or robo_rl.train(
        "questions-ppo", seed=seed, steps=steps, out=out, name=name, environment=environment
    )
    found = run.evaluation
    assert found is not None
    return float(np.mean([bool(each) for each in found.successes])), float(np.mean(found.measured["questions"]))


def as_figures(measure: Callable[[], tuple[float, float]]) -> dict[str, float]:
    """Measure success and number of questions, and return the two by name."""
    return dict(zip(("success", "questions"), measure(), strict=True))


def main() -> None:
    """Train what is missing, and print the tables of success and questions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100_000)
    add_archive_option(parser, "ask-to-act")
    given = parser.parse_args()
    results = Results("ask-to-act", given.archive, {"steps": given.steps})
    rows: dict[str, dict[str, Any]] = {f"{count} objects": {"objects": count} for count in OBJECTS}
    rows |= {
        f"4 objects, price {price}, nothing for bits": {"objects": 4, "question_cost": price, "information": 0.0}
        for price in PRICES
    }
    rows["4 objects, 0.1 for each question: a control"] = {"objects": 4, "bonus": "question"}
    rows["4 objects, answers by chance: a control"] = {"objects": 4, "answers": "shuffled", "information": 0.0}
    print("| task | best number of questions | questions of each seed | success of each seed |\n|---|---|---|---|")
    for name, arguments in rows.items():
        found = []
        for seed in range(given.seeds):
            measure = partial(measured, given.out, seed, given.steps, **arguments)
            figures = results.measured(name, seed, partial(as_figures, measure), arguments=arguments)
            found.append((figures["success"], figures["questions"]))
        best = best_questions(arguments["objects"], arguments.get("question_cost", 0.05))
        best_text = str(best) if "control" not in name else "0"
        asked, success = (", ".join(text) for text in zip(*((f"{q:.2f}", f"{s:.0%}") for s, q in found), strict=True))
        print(f"| {name} | {best_text} | {asked} | {success} |", flush=True)


if __name__ == "__main__":
    main()
