"""robo-rl reward search: a language model writes reward programs, a recipe is trained with each, and one is chosen."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from robo_cli.options import options
from robo_cli.recipe import Recipe, require_at_least
from robo_cli.reward_clips import rater_comparer
from robo_cli.reward_probation import batch_sizes
from robo_cli.reward_trainer import CONFIRMATION, RecipeTrainer, require_success
from robo_cli.reward_writing import Asking, WritingContext, writing
from robo_cli.train import recipe_of
from robo_cli.typed_settings import RaterSettings, RecipeKeys
from robo_rl.environments.discovery import known
from robo_rl.errors import UnknownName
from robo_rl.rewards.search.candidates import Candidate, KeptTrainer, Outcome, Round, best_of
from robo_rl.rewards.search.eureka import Eureka, EurekaConfig
from robo_rl.rewards.search.icpl import ICPL, ICPLConfig
from robo_rl.rewards.search.loop import Search
from robo_rl.rewards.search.page import write_search
from robo_rl.rewards.search.preferring import ChanceComparer, Comparer, KeptComparer, OracleComparer
from robo_rl.rewards.search.record import CALLS, COMPARISONS, TRAININGS, WINNER, begin, keep_program, keep_round
from robo_rl.runs.run import write_text
from robo_rl.settings import plain, settings_as
from robo_rl.system.threads import use_threads

CONFIRMED, RESULT = "confirmations", "result.json"


@dataclass(frozen=True)
class SearchReward:
    """Search a reward program: a language model writes, a recipe is trained with each, success or preference chooses."""

    recipe: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE")]
    """Recipe to train with each program; its environment must declare success."""
    out: Path
    """Folder of the search; the same command resumes there without repeating calls or trainings."""
    method: Literal["eureka", "icpl"] = "eureka"
    """"eureka" chooses by declared success in episodes that were not trained on, "icpl" by comparisons of policies."""
    settings: RecipeKeys = field(default_factory=dict)
    """Key of the recipe, such as --recipe.steps 4000"""
    rater: str = "oracle"
    """Rater of policies for icpl: "oracle" knows their success, "chance" is random, "person" is you, on a page, "judge"
    is a model that sees pictures."""
    rater_settings: RaterSettings = field(default_factory=dict)
    """Setting of the rater, such as --rater.settings.mistakes 0.2"""
    clips: int = 1
    """Episodes of each policy that a rater of pictures compares, one by one."""
    confirm: int = 0
    """Trainings of the winner from other seeds, evaluated in other episodes, for the final figure; the paper takes 5."""
    asking: Annotated[Asking, tyro.conf.arg(name="")] = field(default_factory=Asking)
    eureka: EurekaConfig = field(default_factory=EurekaConfig)
    """Settings of the method eureka."""
    icpl: ICPLConfig = field(default_factory=ICPLConfig)
    """Settings of the method icpl."""

    def __post_init__(self) -> None:
        require_at_least(self, {"clips": 1, "confirm": 0})


def search_reward(arguments: SearchReward) -> int:
    """Print every round and the winner; return 1 if no candidate succeeded."""
    recipe = recipe_of([arguments.recipe, *options(arguments.settings)])
    arguments.asking.require_one(recipe.environment.name)
    use_threads(recipe.threads)
    require_success(recipe)
    order = _order(arguments, recipe)
    begin(arguments.out, order)
    environment, sizes = recipe.environment, batch_sizes(recipe.learner)
    trainer = RecipeTrainer(recipe, arguments.out / TRAININGS)
    with writing(environment.name, environment.arguments, arguments.asking, arguments.out / CALLS, sizes) as context:
        search = _search(arguments, context, trainer)
        rounds = [*_shown(search, arguments.out)]
    print(f"ended: {search.ended}")
    candidates = [each for round in rounds for each in round.candidates]
    winner = rounds[-1].incumbent if any(each.has_succeeded for each in candidates) else None
    confirmed = [] if winner is None else _confirmed(winner, arguments, recipe)
    facts = {"recipe": recipe.name, "environment": recipe.environment.name, "sentence": context.task.sentence}
    page = write_search(rounds, confirmed, order | facts | {"ended": search.ended}, arguments.out / "search.html")
    print(f"report   {page}")
    facts |= {"method": arguments.method, "ended": search.ended}
    if winner is None:
        return _without_winner(best_of(candidates), rounds, arguments.out, **facts)
    return _conclude(winner, confirmed, rounds, arguments.out, **facts)


def _order(arguments: SearchReward, recipe: Recipe[Any]) -> dict[str, Any]:
    """Return the identity of a search: a folder cannot resume another one."""
    config = plain(getattr(arguments, arguments.method))
    more = {"rounds", "budget"}  # may be raised: earlier results stay valid
    order = {"method": arguments.method, **{name: value for name, value in config.items() if name not in more}}
    order |= arguments.asking.order | {"sentence": arguments.asking.sentence, "training": plain(recipe)}
    if arguments.method == "icpl":
        order |= {"rater": arguments.rater, "rater_settings": list(arguments.rater_settings), "clips": arguments.clips}
    return order


def _search(arguments: SearchReward, context: WritingContext, trainer: RecipeTrainer) -> Search[Any]:
    kept = KeptTrainer(trainer, trainer.folder)
    if arguments.method == "eureka":
        return Eureka(context.writer, kept, context.task, arguments.eureka, context.examples)
    comparer = KeptComparer(_comparer(arguments, trainer), arguments.out / COMPARISONS)
    return ICPL(context.writer, kept, context.task, arguments.icpl, comparer, context.examples)


def _comparer(arguments: SearchReward, trainer: RecipeTrainer) -> Comparer:
    settings, own = arguments.rater_settings, {"oracle": OracleComparer, "chance": ChanceComparer}
    if arguments.rater in own:
        made: Comparer = settings_as(own[arguments.rater], settings, source=f"the rater {arguments.rater}")
        return made
    if arguments.rater not in known("raters"):
        raise UnknownName("rater", arguments.rater, {*own, *known("raters")})
    return rater_comparer(arguments.rater, settings, trainer, arguments.clips)


def _shown(search: Search[Any], out: Path) -> list[Round]:
    rounds = []
    for each in search.rounds():
        keep_round(each, out)
        rounds.append(each)
        for candidate in each.candidates:
            print(f"  {candidate.name:6} {_told(candidate)}")
        for warning in each.warnings:
            print(f"  WARNING {warning}")
        best = each.incumbent
        print(
            f"round {each.number}: {each.diversity}; best so far {best.name + ', ' + _told(best) if best else 'none'}",
            flush=True,
        )
    return rounds


def _told(candidate: Candidate) -> str:
    if candidate.outcome is not None and candidate.outcome.score is not None:
        return f"success {candidate.outcome.score:.1%}"
    return f"{candidate.status}: {' '.join(candidate.reason.split())[:140]}"


def _confirmed(winner: Candidate, arguments: SearchReward, recipe: Recipe[Any]) -> list[Outcome]:
    """Return the winner's results with other training seeds, in other episodes than those of the selection."""
    trainer = RecipeTrainer(recipe, arguments.out / CONFIRMED, CONFIRMATION)
    kept, first = KeptTrainer(trainer, trainer.folder), getattr(arguments, arguments.method).seed + 1
    return [kept.train(winner.program, seed) for seed in range(first, first + arguments.confirm) if winner.program]


def _conclude(winner: Candidate, confirmed: list[Outcome], rounds: list[Round], out: Path, **facts: Any) -> int:
    scores = [outcome.score for outcome in confirmed]
    keep_program(winner, out / WINNER, **facts, confirmed=scores)
    by_chance = _by_chance(rounds)
    result = facts | {"winner": winner.name, "score": winner.merit[0], "confirmed": scores, "chosen by chance": by_chance}
    write_text(out / RESULT, json.dumps(result, indent=1))
    print(f"winner   candidate {winner.name}, {_told(winner)}: {out / WINNER}")
    if scores:
        shown = ", ".join("failed" if score is None else f"{score:.1%}" for score in scores)
        print(f"again    from {len(scores)} other seeds, in other episodes: {shown}")
    shown = ", ".join(f"{mean:.1%} ({name})" for name, mean in by_chance.items() if mean is not None)
    print(f"chance   a program drawn at random reaches in the mean {shown}")
    print(f"use it:  robo-rl train RECIPE --reward.name program:{out / WINNER}")
    return 0


def _without_winner(best: Candidate | None, rounds: list[Round], out: Path, **facts: Any) -> int:
    """Report that there is no winner: the least bad candidate is none."""
    score = None if best is None else best.merit[0]
    result = facts | {"winner": None, "score": score, "best": best and best.name, "confirmed": []}
    write_text(out / RESULT, json.dumps(result | {"chosen by chance": _by_chance(rounds)}, indent=1))
    if best is None:
        print("no program could be used: see the reasons above")
        return 1
    during = f"; while it learnt {best.merit[1]:.1%} in the mean" if best.merit[1] else ""
    print(f"no candidate succeeded: the best score is {score:.1%}, of candidate {best.name}{during}")
    print("there is no winner: train longer (--recipe.steps ...), search on with more rounds, or make the task easier")
    return 1


def _by_chance(rounds: list[Round]) -> dict[str, float | None]:
    return {"first round": _mean_score(rounds[:1]), "all rounds": _mean_score(rounds)}


def _mean_score(rounds: list[Round]) -> float | None:
    """Return the mean over all requested programs; an unusable one counts as 0."""
    asked = [each for round in rounds for each in round.candidates if each.status != "budget"]
    scores = [(each.outcome.score or 0.0) if each.outcome else 0.0 for each in asked]
    return float(np.mean(scores)) if scores else None
