"""robo-rl reward search: a language model writes reward programs, a recipe is trained with each, and one is chosen."""

from __future__ import annotations

from robo_app.arguments.options import options
from robo_app.rewards.program_writing import writing
from robo_app.rewards.search import SearchReward, order_of, search_of
from robo_app.rewards.search_result import keep_failure, keep_winner, shown_rounds
from robo_app.rewards.search_trainer import RecipeTrainer, confirmed_outcomes, require_success
from robo_app.training.program_validation import batch_sizes
from robo_app.training.train_options import recipe_of
from robo_rl.rewards.search.candidates import best_of
from robo_rl.rewards.search.page import write_search
from robo_rl.rewards.search.record import CALLS, TRAININGS, begin
from robo_rl.system.threads import use_threads


def search_reward(arguments: SearchReward) -> int:
    """Print every round and the winner; return 1 if no candidate succeeded."""
    recipe = recipe_of([arguments.recipe, *options(arguments.settings)])
    arguments.asking.require_one(recipe.environment.name)
    use_threads(recipe.threads)
    require_success(recipe)
    order = order_of(arguments, recipe)
    begin(arguments.out, order)
    environment, sizes = recipe.environment, batch_sizes(recipe.learner)
    trainer = RecipeTrainer(recipe, arguments.out / TRAININGS)
    with writing(environment.name, environment.arguments, arguments.asking, arguments.out / CALLS, sizes) as context:
        search = search_of(arguments, context, trainer)
        rounds = [*shown_rounds(search, arguments.out)]
    print(f"ended: {search.ended}")
    candidates = [each for round in rounds for each in round.candidates]
    winner = rounds[-1].incumbent if any(each.has_succeeded for each in candidates) else None
    confirmed = [] if winner is None else confirmed_outcomes(winner, recipe, arguments.out, arguments.seeds)
    facts = {"recipe": recipe.name, "environment": recipe.environment.name, "sentence": context.task.sentence}
    page = write_search(rounds, confirmed, order | facts | {"ended": search.ended}, arguments.out / "search.html")
    print(f"report   {page}")
    facts |= {"method": arguments.method, "ended": search.ended}
    if winner is None:
        return keep_failure(best_of(candidates), rounds, arguments.out, **facts)
    return keep_winner(winner, confirmed, rounds, arguments.out, **facts)
