"""Result of a sweep: sweep.json, table.md, report.html, the recipe of the best trial, and its confirmation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from robo_app.display.markdown_tables import ends, table_lines, with_ends
from robo_app.experiments.seeds import train_seeds
from robo_app.jobs.trainings import EVALUATION
from robo_app.recipes.recipe import to_yaml
from robo_app.sweeps.folder import SweepFolder
from robo_app.sweeps.search import Search, Trial
from robo_app.sweeps.space import Space
from robo_app.sweeps.stopping import Score, Stopping, score
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.statistics import student_interval
from robo_rl.report.sweep_page import write_sweep
from robo_rl.runs.run import write_text

Facts = dict[str, Any]
FRESH = 500_000
"""Difference between the first evaluation seed of a sweep and that of a confirmation."""
BIASED = "It was chosen as the best of {}, so its figure is biased upwards. --confirm 5 trains it again from fresh seeds."
CONFIRMED = "{} fresh seeds, judged on episodes that had no part in the choice: {} {}."


def conclude_sweep(folder: SweepFolder, search: Search, rule: Stopping, space: Space) -> None:
    """Write table.md, sweep.json, report.html and best.yaml of a sweep, and print the table."""
    trials = search.trials()
    finals = {each.number: folder.final(each.number) for each in trials}
    known = [each for scores in finals.values() for each in scores.values()]
    is_rate = bool(known) and all(each.is_rate for each in known)
    best = best_of(trials)
    facts: Facts = {
        "sweep": space.recipe.name,
        "environment": space.recipe.environment.name,
        "measure": "success" if is_rate else "return",
        "space": space.to_json(),
        "rule": asdict(rule) | {"confidence": rule.confidence},
        "importance": search.importance(),
        "trials": [_facts(each, finals[each.number]) for each in trials],
        "best": None if best is None else best.number,
        "confirmed": None if best is None else _confirmation(folder, best.number),
    }
    if best is not None:
        write_text(folder.path / "best.yaml", to_yaml(space.at(best.values, f"{space.recipe.name}-best")))
        facts["command"] = f"robo-rl train {folder.path / 'best.yaml'} --seeds 0-{rule.seeds - 1}"
    facts["words"] = words(facts)
    write_text(folder.path / "sweep.json", json.dumps(facts, indent=1))
    write_text(folder.path / "table.md", markdown(facts))
    print(f"{markdown(facts)}\nreport   {write_sweep(facts, folder.path / 'report.html')}", flush=True)


def confirm(folder: SweepFolder, search: Search, space: Space, seeds: Sequence[int], jobs: int, cluster: str = "") -> None:
    """Train the best trial again with new seeds, and evaluate it on new episodes; a repeated call resumes.

    Args:
        folder: Folder of the sweep.
        search: Trials of the sweep.
        space: Search space.
        seeds: New training seeds.
        jobs: Number of concurrent trainings; 0 for as many as fit.
        cluster: Address of a Ray cluster; "" for this machine.
    """
    if (best := best_of(search.trials())) is None:
        return
    recipe = space.at(best.values, folder.name_of(best.number))
    elsewhere = replace(recipe.evaluation, seed=recipe.evaluation.seed + FRESH)
    train_seeds(replace(recipe, evaluation=elsewhere), seeds, folder.path / "confirmed", jobs, cluster)


def fresh_seeds(seeds: Sequence[int], count: int) -> range:
    """Return `count` training seeds that are larger than those of a sweep."""
    return range(max(seeds) + 1, max(seeds) + 1 + count)


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the complete trial with the highest objective; None if there is no complete trial."""
    complete = [each for each in trials if each.value is not None]
    return max(complete, key=lambda each: each.value or 0.0, default=None)


def words(facts: Facts) -> list[str]:
    """Return sentences about the best trial and how far its figure can be trusted.

    facts: content of sweep.json.
    """
    states = [each["state"] for each in facts["trials"]]
    if facts["best"] is None:
        return ["No trial was trained to its end yet."]
    best, form = facts["trials"][[each["number"] for each in facts["trials"]].index(facts["best"])], _form(facts)
    count = f"{states.count('complete')} trials that were trained to their end"
    figure = f"{facts['measure']} {with_ends(best['interval'], form)} over {len(best['seeds'])} seeds"
    found = f"Trial {facts['best']} is the best: {figure}."
    if facts["measure"] == "success" and not any(best["seeds"].values()):
        found = f"No trial had a success in its final evaluation; trial {facts['best']} is no better than the others."
    lines = [found, BIASED.format(count)]
    if facts["confirmed"] is not None:
        interval = with_ends(facts["confirmed"]["interval"], form)
        lines[1] = CONFIRMED.format(len(facts["confirmed"]["seeds"]), facts["measure"], interval)
    return lines


def markdown(facts: Facts) -> str:
    """Return the table of trials in Markdown, the best one first, then sentences about it.

    facts: content of sweep.json.
    """
    form, order = _form(facts), {"complete": 0, "running": 1, "stopped": 2, "failed": 3}
    rows = sorted(facts["trials"], key=lambda each: (order[each["state"]], -(each["value"] or 0.0), each["number"]))
    cells = []
    for each in rows:
        value = "–" if each["value"] is None else with_ends(each["interval"], form)
        state = " ".join(part for part in (each["state"] if each["state"] != "complete" else "", each["why"]) if part)
        cells.append([str(each["number"]), value, str(len(each["seeds"])), format_values(each["values"]), state])
    lines = table_lines(["trial", f"{facts['measure']} [95 %]", "seeds", "settings", ""], cells)
    lines += ["", "Intervals are Student's over training seeds.", *facts["words"]]
    lines += [f"Train it: {facts['command']}"] if "command" in facts else []
    return "\n".join(lines) + "\n"


def format_values(values: Mapping[str, Any]) -> str:
    """Return the values of settings as one line of text."""
    return ", ".join(f"{path} {value:.4g}" if isinstance(value, float) else f"{path} {value}" for path, value in values.items())


def _facts(trial: Trial, scores: Mapping[int, Score]) -> Facts:
    interval = _interval(scores) if trial.value is not None else None
    seeds = {seed: each.value for seed, each in scores.items()}
    return asdict(trial) | {"values": dict(trial.values), "seeds": seeds, "interval": interval}


def _confirmation(folder: SweepFolder, best: int) -> Facts | None:
    name = folder.name_of(best)
    runs = (folder.path / "confirmed" / f"{name}-seeds" / "runs").glob(f"*-{name}-*/{EVALUATION}")
    scores = {int(file.parent.name.rpartition("-")[2]): score(Evaluation.read(file)) for file in runs}
    if not scores:
        return None
    return {"seeds": {seed: each.value for seed, each in sorted(scores.items())}, "interval": _interval(scores)}


def _interval(scores: Mapping[int, Score]) -> list[float | None]:
    """Return mean over seeds, low and high end of its interval; None for an end that is not known."""
    found = student_interval([each.value for each in scores.values()])
    return ends(found.within(0.0, 1.0) if all(each.is_rate for each in scores.values()) else found)


def _form(facts: Facts) -> str:
    return ".0%" if facts["measure"] == "success" else ".4g"
