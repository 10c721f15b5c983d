"""How fast collectors act, what a hop from a collector to its learner costs, and what the learner does with what has come.

"ours" are processes of this machine; "ray" is the same over a Ray cluster of this machine, where Ray is installed.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from robo_bench.measurement import Cases, Effort, Measurement, Trial, measurement
from robo_cli.collector import collector_of
from robo_cli.recipe import read_recipe, to_yaml
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.sac import SACConfig
from robo_rl.actor_learner.process import inherited
from robo_rl.checkpoints import packed, unpacked
from robo_rl.collecting.crew import Crew, Engine
from robo_rl.collecting.in_process import InProcessEngine
from robo_rl.collecting.local import LocalEngine
from robo_rl.collecting.over_ray import RayEngine
from robo_rl.collecting.rollouts import CollectedRollout
from robo_rl.collecting.worker import serve
from robo_rl.discovery import make_environment
from robo_rl.spec import specification
from robo_rl.types import StateDict

TASK = "gymnasium/HalfCheetah-v5"
COUNTS = (1, 2, 4)
STEPS = 32
"""Steps of one answer, as those of off-policy learners."""
KINDS = {"transition (HalfCheetah)": (17,), "frame (84x84x3)": (84, 84, 3)}

CLOCKS = {"hop": time.perf_counter, "receive": time.process_time}
"""From a request to its answer, by the clock; and what that takes of the learner's processor."""


def cases(effort: Effort) -> Cases:
    """Returns the cases."""
    found: Cases = {f"act: {count} collectors, 16 {TASK}": partial(_acting, count, effort) for count in COUNTS}
    for kind in KINDS:
        for case in CLOCKS:
            found[f"{case}: a {kind}"] = partial(_hop, case, kind, effort)
        for verb in ("pack", "unpack"):
            found[f"{verb}: a {kind}"] = partial(_packing, verb, kind, effort)
    found["pack: parameters of SAC"] = partial(_parameters, effort)
    found["size: parameters of SAC"] = _size
    found["learn: PPO, a transition"] = partial(_learning, effort)
    return found


def _acting(count: int, effort: Effort) -> Measurement:
    """Measures rollouts of PPO without learning; the limit is the same in one process, without any hop."""
    recipe = read_recipe("halfcheetah-ppo")
    job = {"recipe": to_yaml(recipe)}
    policy = recipe.learner.build(specification(make_environment(TASK)), 0).policy
    request = {"do": "rollout", "step": 0, "steps": STEPS}

    def trial(crew: Crew, seconds: float) -> float:
        crew.publish(crew.version + 1, policy.parameters())
        done, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds or not done:
            _all(crew, request)
            done += recipe.learner.num_envs * STEPS
        return done / elapsed if elapsed else 0.0

    with ExitStack() as stack:
        local = [sys.executable, "-m", "robo_cli.collector"]
        crews = {
            name: stack.enter_context(_crew(engine, job, count))
            for name, engine in _engines(local, "robo_cli.collector:RemoteCollector", count).items()
        }
        crews["one process"] = stack.enter_context(_crew(InProcessEngine(collector_of), job, 1))
        trials: dict[str, Trial] = {name: partial(trial, crew) for name, crew in crews.items()}
        case = f"act: {count} collectors, 16 {TASK}"
        return measurement("collectors", case, "steps/s", trials, effort, bounds=["one process"])


def _hop(case: str, kind: str, effort: Effort) -> Measurement:
    """Measures a request and its answer, packed there, unpacked here, for each of its steps; two are open at a time."""
    clock = CLOCKS[case]

    def trial(crew: Crew, seconds: float) -> float:
        crew.publish(0, {})
        crew.ask(0, {"kind": kind})
        done, start, begun = 0, time.perf_counter(), clock()
        while time.perf_counter() - start < seconds or not done:
            crew.ask(0, {"kind": kind})
            _answer(crew)
            done += STEPS
        taken = clock() - begun
        _answer(crew)
        return 1e6 * taken / done

    with ExitStack() as stack:
        engines = _engines([sys.executable, "-m", "robo_bench.collectors"], "robo_bench.collectors:RemoteEcho", 1)
        crews = {name: stack.enter_context(_crew(engine, {}, 1)) for name, engine in engines.items()}
        trials: dict[str, Trial] = {name: partial(trial, crew) for name, crew in crews.items()}
        return measurement("collectors", f"{case}: a {kind}", "us", trials, effort)


def _packing(verb: str, kind: str, effort: Effort) -> Measurement:
    content = segment_of(kind)
    sent = packed(content)
    does = {"pack": lambda: packed(content), "unpack": lambda: unpacked(sent)}[verb]
    return measurement("collectors", f"{verb}: a {kind}", "us", {"ours": _processor_time(does, STEPS)}, effort)


def _parameters(effort: Effort) -> Measurement:
    policy = SACConfig().build(specification(make_environment(TASK)), 0).policy
    does = _processor_time(lambda: packed(policy.parameters()), 1)
    return measurement("collectors", "pack: parameters of SAC", "us", {"ours": does}, effort)


def _size() -> Measurement:
    policy = SACConfig().build(specification(make_environment(TASK)), 0).policy
    return Measurement("collectors", "size: parameters of SAC", "MB", len(packed(policy.parameters())) / 1e6)


def _learning(effort: Effort) -> Measurement:
    config, random = PPOConfig(), np.random.default_rng(0)
    spec = specification(make_environment(TASK))
    learner = config.build(spec, 0)
    shape = (config.steps_per_env, config.num_envs)
    seen = {name: random.normal(size=(shape[0] + 1, shape[1], *array.shape)) for name, array in spec.observation.items()}
    none = np.zeros(shape, np.bool_)
    drawn = random.normal(size=(*shape, *spec.action.shape)).astype(np.float32)
    rollout = CollectedRollout(seen, drawn, random.normal(size=shape), none, none, {}, begins=True)

    def learn() -> None:
        learner.take_in(rollout)
        learner.update()

    does = _processor_time(learn, config.rollout_size)
    return measurement("collectors", "learn: PPO, a transition", "us", {"ours": does}, effort)


def segment_of(kind: str) -> StateDict:
    """Returns an answer of STEPS steps as SegmentCollector sends it."""
    shape, random = KINDS[kind], np.random.default_rng(0)
    seen = random.normal(size=(STEPS + 1, *shape))
    observed = (100 * seen).astype(np.uint8) if len(shape) == 3 else seen.astype(np.float32)
    steps = {"actions": np.zeros((STEPS, 6), np.float32), "rewards": np.zeros(STEPS), "columns": {}}
    return {"observations": {"seen": observed}, **steps, "version": 0, "birth": 0, "begins": False, "end": None}


class Echo:
    """A collector that has everything already."""

    def __init__(self) -> None:
        self._segments = {kind: segment_of(kind) for kind in KINDS}

    def load_parameters(self, parameters: StateDict) -> None:
        """Has no use for them."""

    def handle(self, request: StateDict) -> StateDict:
        """Returns a segment, which is packed each time."""
        return self._segments[request["kind"]]


class RemoteEcho:
    """The same as an actor."""

    def __init__(self, job: bytes) -> None:
        self._echo = Echo()

    def load(self, parameters: bytes) -> bytes:
        """Has no use for them."""
        return b""

    def answer(self, request: bytes) -> bytes:
        """Returns a packed segment."""
        return packed(self._echo.handle(unpacked(request)))


def _engines(command: list[str], kind: str, count: int) -> dict[str, Engine]:
    with tempfile.NamedTemporaryFile(prefix="robo-rl-bench-collectors-", suffix=".txt", delete=False) as log:
        found: dict[str, Engine] = {"ours": LocalEngine(command, Path(log.name))}  # a name that nobody foresees
    if importlib.util.find_spec("ray") is not None:
        found["ray"] = RayEngine("auto", kind, count)
    return found


@contextmanager
def _crew(engine: Engine, job: StateDict, count: int) -> Iterator[Crew]:
    crew = Crew(engine, job, count)
    try:
        yield crew
    finally:
        crew.close()


def _all(crew: Crew, request: StateDict) -> None:
    for place in range(crew.count):
        crew.ask(place, request)
    for _ in range(crew.count):
        _answer(crew)


def _answer(crew: Crew) -> None:
    while (reply := crew.next(1.0)) is None or reply.content is None:
        pass


def _processor_time(does: Callable[[], Any], each: int) -> Trial:
    """Returns a trial: microseconds of processor time for each of so many things that are done at once."""

    def trial(seconds: float) -> float:
        done, begun, start = 0, time.process_time(), time.perf_counter()
        while time.perf_counter() - start < seconds or not done:
            does()
            done += each
        return 1e6 * (time.process_time() - begun) / done

    return trial


if __name__ == "__main__":
    serve(inherited(int(sys.argv[1])), lambda job: Echo())
