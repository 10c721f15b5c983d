"""robo-rl record: play episodes in an environment and store every one, whatever happens."""

from __future__ import annotations

from robo_app.recording.record import Record, record

EXAMPLES = """robo-rl record robo/ArmPick-v0 --episodes 100 --out data/pick --environment.arguments.action_repeat 3
robo-rl record gymnasium/HalfCheetah-v5 --policy RUN --episodes 50 --out data/cheetah
robo-rl record robo/ArmPick-v0 --policy mix:scripted=0.7,random=0.3 --episodes 100 --out data/mixed
robo-rl record robo/ArmPick-v0 --episodes 50 --out data/pick --environment.arguments.action_repeat 3 --append --seed 100
robo-rl record carla/Town-v0 --episodes 100 --out data/town --ray auto     (one stand-in for each worker of a cluster)
robo-rl record carla/Town-v0 --out data/town --ray 10.0.0.1:6379 --carla-host 10.0.0.2 --carla-port 2000 2004  (a worker each)
robo-rl record gymnasium/HalfCheetah-v5 --family medium-replay --run RUN --out data/cheetah-medium-replay
robo-rl record gymnasium/HalfCheetah-v5 --family mixed-30 --run RUN --episodes 200 --out data/cheetah-mixed"""


def run(arguments: Record) -> int:
    """Record episodes, showing progress."""
    dataset = record(arguments)
    print(f"{len(dataset)} episodes in {dataset.path}; `robo-rl data info {dataset.path}` describes them")
    return 0
