"""Measure acting of collectors, a hop from a collector to its learner, and learning from arrived steps.

"ours" are processes of this machine; "ray" is the same over a Ray cluster of this machine, if Ray is installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from typing_extensions import override

from robo_app.recipes.recipe import read_recipe, to_yaml
from robo_app.training.collector import collector_of
from robo_bench.measurement import Bound, Case, Contestants, Effort, Figures, Timed, Trial, each, microseconds, timed
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.sac import SACConfig
from robo_rl.cluster.connection import connected
from robo_rl.cluster.host import serve
from robo_rl.cluster.local import InProcessEngine, LocalEngine
from robo_rl.cluster.over_ray import RayEngine
from robo_rl.cluster.workers import Engine
from robo_rl.collectors.collector_pool import Collector, CollectorPool
from robo_rl.environments.make import make_environment
from robo_rl.protocols.components import TransferablePolicy
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.spec.environment import specification
from robo_rl.system.supervised_process import inherited
from robo_rl.training.collected_rollout import CollectedRollout
from robo_rl.types import StateDict

TASK = "gymnasium/HalfCheetah-v5"
COUNTS = (1, 2, 4)
STEPS = 32
"""Steps of one answer, as those of off-policy learners."""
KINDS = {"transition (HalfCheetah)": (17,), "frame (84x84x3)": (84, 84, 3)}


def cases(effort: Effort) -> list[Case]:
    """Return acting, hops, packing and learning."""
    found = [Case(f"act: {count} collectors, 16 {TASK}", "steps/s", partial(_acting, count)) for count in COUNTS]
    for kind in KINDS:
        found += [
            Case(f"hop: a {kind}", "us", partial(_hop, kind, lambda timed: timed.wall / timed.units)),
            Case(f"receive: a {kind}", "us", partial(_hop, kind, lambda timed: timed.cost)),
            Case(f"pack: a {kind}", "us", partial(_packing, kind)),
            Case(f"unpack: a {kind}", "us", partial(_unpacking, kind)),
        ]
    return [
        *found,
        Case("pack: parameters of SAC", "us", _packing_parameters),
        Case("size: parameters of SAC", "MB", lambda *_: Figures(len(packed(_policy().parameters())) / 1e6)),
        Case("learn: PPO, a transition", "us", _learning),
    ]


def _acting(count: int, _: Effort, stack: ExitStack) -> Contestants:
    """Return rollouts of PPO without learning; the limit is the same in one process, without any hop."""
    recipe = read_recipe("halfcheetah-ppo")
    job = {"recipe": to_yaml(recipe)}
    policy = recipe.learner.build(specification(make_environment(TASK)), 0).policy
    request = {"do": "rollout", "step": 0, "steps": STEPS}

    def trial(pool: CollectorPool, seconds: float) -> float:
        pool.publish(pool.version + 1, policy.parameters())
        return timed(each(lambda: _all(pool, request), recipe.learner.num_envs * STEPS), seconds).rate

    local = [sys.executable, "-m", "robo_app.training.collector"]
    engines = _engines(local, "robo_app.training.collector:collector_of", count)
    trials: dict[str, Trial] = {name: partial(trial, _pool(stack, engine, job, count)) for name, engine in engines.items()}
    return trials | {"one process": Bound(partial(trial, _pool(stack, InProcessEngine(collector_of), job, 1)))}


def _hop(kind: str, figure: Callable[[Timed], float], _: Effort, stack: ExitStack) -> Contestants:
    """Return a request and its answer, packed there, unpacked here, for each of its steps; two are open at a time.

    figure: time from a request to its answer by the clock [s], or processor time of the learner for it.
    """

    def trial(pool: CollectorPool, seconds: float) -> float:
        pool.publish(0, {})
        pool.ask(0, {"kind": kind})

        def exchange() -> None:
            pool.ask(0, {"kind": kind})
            _answer(pool)

        found = timed(each(exchange, STEPS), seconds)
        _answer(pool)
        return 1e6 * figure(found)

    engines = _engines([sys.executable, "-m", __name__], f"{__name__}:Echo", 1)
    return {name: partial(trial, _pool(stack, engine, {}, 1)) for name, engine in engines.items()}


def _packing(kind: str, *_: object) -> Contestants:
    return {"ours": microseconds(each(partial(packed, segment_of(kind)), STEPS))}


def _unpacking(kind: str, *_: object) -> Contestants:
    return {"ours": microseconds(each(partial(unpacked, packed(segment_of(kind))), STEPS))}


def _packing_parameters(*_: object) -> Contestants:
    policy = _policy()
    return {"ours": microseconds(each(lambda: packed(policy.parameters())))}


def _policy() -> TransferablePolicy:
    return SACConfig().build(specification(make_environment(TASK)), 0).policy


def _learning(*_: object) -> Contestants:
    config, random = PPOConfig(), np.random.default_rng(0)
    spec = specification(make_environment(TASK))
    learner = config.build(spec, 0)
    shape = (config.steps_per_env, config.num_envs)
    seen = {name: random.normal(size=(shape[0] + 1, shape[1], *array.shape)) for name, array in spec.observation.items()}
    none = np.zeros(shape, np.bool_)
    drawn = random.normal(size=(*shape, *spec.action.shape)).astype(np.float32)
    rollout = CollectedRollout(seen, drawn, random.normal(size=shape), none, none, {}, begins=True)

    def learn() -> None:
        learner.add_rollout(rollout)
        learner.update()

    return {"ours": microseconds(each(learn, config.rollout_size))}


def segment_of(kind: str) -> StateDict:
    """Return an answer of STEPS steps as SegmentCollector sends it."""
    shape, random = KINDS[kind], np.random.default_rng(0)
    seen = random.normal(size=(STEPS + 1, *shape))
    observed = (100 * seen).astype(np.uint8) if len(shape) == 3 else seen.astype(np.float32)
    steps = {"actions": np.zeros((STEPS, 6), np.float32), "rewards": np.zeros(STEPS), "columns": {}}
    return {"observations": {"seen": observed}, **steps, "version": 0, "birth": 0, "begins": False, "end": None}


class Echo(Collector):
    """Stand-in for a collector that has all its data beforehand, so that only the exchange of data takes time."""

    def __init__(self, job: bytes) -> None:
        self._segments = {kind: segment_of(kind) for kind in KINDS}

    @override
    def load_parameters(self, parameters: StateDict) -> None:
        pass

    @override
    def handle(self, request: StateDict) -> StateDict:
        return self._segments[request["kind"]]


def _engines(command: list[str], kind: str, count: int) -> dict[str, Engine]:
    with tempfile.NamedTemporaryFile(prefix="robo-rl-bench-collectors-", suffix=".txt", delete=False) as log:
        found: dict[str, Engine] = {"ours": LocalEngine(command, Path(log.name))}  # a name that cannot be foreseen
    if importlib.util.find_spec("ray") is not None:
        found["ray"] = RayEngine(partial(connected, "auto", cores=max(count, len(os.sched_getaffinity(0)))), kind)
    return found


def _pool(stack: ExitStack, engine: Engine, job: StateDict, count: int) -> CollectorPool:
    pool = CollectorPool(engine, job, count)
    stack.callback(pool.close)
    return pool


def _all(pool: CollectorPool, request: StateDict) -> None:
    for place in range(pool.count):
        pool.ask(place, request)
    for _ in range(pool.count):
        _answer(pool)


def _answer(pool: CollectorPool) -> None:
    while (reply := pool.next(1.0)) is None or reply.content is None:
        pass


if __name__ == "__main__":
    serve(inherited(int(sys.argv[1])), Echo)
