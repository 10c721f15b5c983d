"""robo-rl refine: continue a simulated training on a robot. Makes a recipe and trains it."""

from __future__ import annotations

import robo_rl
from robo_app.recipes.recipe import to_yaml
from robo_app.training.refinement import Refine, refinement
from robo_rl.evaluation.evaluation import FIRST_SEED
from robo_rl.runs.run import find_run

EXAMPLES = """robo-rl record robo/ArmPick-v0 --environment.arguments.action_repeat 3 --episodes 20 --noise 0.1 --out data/pick
robo-rl robot serve --driver twin --driver.settings.task robo/ArmPick-v0
robo-rl refine RUN --robot http://127.0.0.1:5000 --dataset data/pick
robo-rl refine RUN --robot http://127.0.0.1:5000 --dataset data/pick --human console     (you begin, take over, stop and label)
robo-rl refine RUN --robot http://127.0.0.1:5000 --dataset data/pick --shadow person     (you drive; no training)
robo-rl refine RUN --robot http://127.0.0.1:5000 --dataset data/pick --dry-run > my.yaml     (for robo-rl train)"""


def run(arguments: Refine) -> int:
    """Train on the robot, and compare success before and after."""
    trained = find_run(arguments.run, arguments.runs)
    recipe = refinement(trained, arguments)
    if arguments.shadow:
        from robo_app.robots.shadow import ShadowSettings, shadow_run

        how = ShadowSettings(arguments.shadow, arguments.episodes, FIRST_SEED, arguments.port)
        report, kept = shadow_run(trained, recipe.environment, how)
        print(f"{report}\nkept     {kept}")
        return 0
    if arguments.dry_run:
        print(to_yaml(recipe), end="")
        return 0
    robo_rl.train(recipe, out=arguments.runs, progress=True)
    return 0
