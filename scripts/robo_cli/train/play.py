"""robo-rl play: watch the policy of a run act, in MuJoCo's window, in the browser, or in a film."""

from __future__ import annotations

from contextlib import closing

import robo_rl
from robo_app.playback.drawing import drawing_environment
from robo_app.playback.film import write_film
from robo_app.playback.playback import summary
from robo_app.playback.screens import Play, is_deterministic, play_in_browser, play_in_window, player_of, stage_of
from robo_app.playback.window import wants_window
from robo_app.recipes.loop_choice import ROBOT
from robo_app.training.assembly import judged_environment_of, recipe_of
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.video import render_mode_for_films
from robo_rl.system.threads import tensor_threads

EXAMPLES = """robo-rl play latest
robo-rl play latest --seed 1000007 --speed 0.5     (the eighth episode of every evaluation, at half speed)
robo-rl play RUN --step 5000     (the policy as it was; a run keeps it with record_episodes)
robo-rl play RUN --video policy.mp4 --episodes 3
robo-rl play RUN --environment.arguments.randomization visual     (elsewhere; refused unless all that it reads agrees)"""


def run(arguments: Play) -> int:
    """Play until Ctrl-C, the window is closed, or the episodes are played."""
    trained = robo_rl.open_run(arguments.run, runs=arguments.runs)
    recipe = stage_of(recipe_of(trained), arguments)
    if recipe.environment.name.startswith(ROBOT):
        raise InvalidSetting(
            "A robot is not moved to show a policy.",
            got=f"environment {recipe.environment.name}",
            fix=f"robo-rl evaluate {trained.path} moves it, watched in robo-rl console",
        )
    with tensor_threads(recipe.threads):
        policy, environment = trained.policy(arguments.step), judged_environment_of(recipe)
        if arguments.video is None and wants_window(arguments.viewer, environment):
            with closing(environment):
                return play_in_window(arguments, player_of(arguments, recipe, environment, policy), environment)
        with closing(environment):
            mode = render_mode_for_films(environment)
        with closing(drawing_environment(recipe, mode)) as drawing:
            player = player_of(arguments, recipe, drawing, policy)
            if arguments.video is not None:
                seeds = range(arguments.seed, arguments.seed + (arguments.episodes or 1))
                certain = is_deterministic(arguments, recipe)
                outcomes = write_film(drawing, policy, arguments.video, seeds, deterministic=certain, speed=arguments.speed)
                print(f"{summary(outcomes)}\nfilm     {arguments.video}")
                return 0
            return play_in_browser(arguments, player, drawing, trained)
