"""Journal: the running episode on disk, step by step, so that a killed process loses at most the step being written.

Each record of the log (robo_rl.system.framed_log) is a line of JSON, followed by the bytes of its arrays.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np

from robo_rl.environments.stepping import VERDICTS, success_so_far
from robo_rl.errors import DatasetError, fix_of
from robo_rl.rollout.episode import end_of, stacked_terms
from robo_rl.spec.cost import costs_of
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.system import framed_log
from robo_rl.system.framed_log import FramedLog, read_records
from robo_rl.types import MEASURED_AT, Array, Episode, Transition

SUFFIX = ".journal"
OBSERVATIONS, COLUMNS = "observations/", "columns/"
"""Prefixes of the names of arrays in a record: for observations, and for the extra columns that a learner needs."""
CRASH = "crash"


class Record(NamedTuple):
    """One record of a journal: the first observation of an episode, or one step."""

    facts: dict[str, Any]
    """JSON values by name, such as reward and time."""
    arrays: dict[str, Array]
    """Arrays by name, such as "action" and "observations/joint_position"."""

    @property
    def observation(self) -> Observation:
        """First observation of the episode, or the observation after the step."""
        return self.having(OBSERVATIONS)

    def having(self, prefix: str) -> dict[str, Array]:
        """Return the arrays whose names start with `prefix`, under their names without it."""
        return {name.removeprefix(prefix): array for name, array in self.arrays.items() if name.startswith(prefix)}


class Journal:
    """Writer of the running episode's journal; the file is removed once the episode is stored."""

    def __init__(self, folder: Path, identity: str, spec: EnvironmentSpec) -> None:
        """Open the journal of the episode `identity` in `folder`.

        spec: spec of the environment. Entries with a history are written without the older observations.
        """
        self.path = folder / f"{identity}{SUFFIX}"
        self._spec = spec
        self._log = FramedLog(self.path)

    def begin(self, observation: Observation, *, seed: int | None, instruction: str | None, source: str) -> None:
        """Write the first observation of the episode; `source` names the actor, such as "training"."""
        facts = {"seed": seed, "instruction": instruction, "source": source, "timestamp": time.monotonic()}
        self._write({"spec": self._spec.single.to_json(), **facts}, self._observed(observation))

    def step(self, transition: Transition) -> None:
        """Write one step; raises DatasetError if the disk is full."""
        info = transition.info
        facts = {
            "reward": float(transition.reward),
            "source": int(transition.source),
            "timestamp": time.monotonic(),
            MEASURED_AT: info.get(MEASURED_AT),
            "terminated": transition.terminated,
            "truncated": transition.truncated,
            "stop_reason": info.get("stop_reason"),
            "success": success_so_far(None, info),
            "reward_terms": {name: float(value) for name, value in info.get("reward_terms", {}).items()},
        }
        facts |= {verdict: list(info[verdict]) for verdict in VERDICTS if info.get(verdict)}
        facts |= {"costs": {name: float(value) for name, value in costs.items()}} if (costs := costs_of(info)) else {}
        actions = {"action": transition.action, "policy_action": transition.policy_action}
        columns = {f"{COLUMNS}{name}": value for name, value in transition.columns.items()}
        self._write(facts, actions | self._observed(transition.next_observation) | columns)

    def close(self) -> None:
        """Close the file. It stays on disk until `remove`, so that a failed episode can be recovered later."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def remove(self) -> None:
        """Delete the file, once its episode is stored or rejected."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _observed(self, observation: Observation) -> dict[str, Array]:
        return {f"{OBSERVATIONS}{name}": array for name, array in self._spec.observation.newest(observation).items()}

    def _write(self, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        held = {name: np.asarray(array) for name, array in arrays.items()}
        layout = [[name, array.dtype.str, list(array.shape)] for name, array in held.items()]
        line = json.dumps({"facts": facts, "arrays": layout}).encode() + b"\n"
        try:
            self._log.append(b"".join([line, *(array.tobytes() for array in held.values())]))
        except OSError as error:
            self.close()
            raise DatasetError(
                f"The step could not be written to {self.path}; those before it are there.",
                got=error,
                fix=f"{fix_of(error)}; robo-rl data repair DATASET stores the recorded steps",
            ) from error


def recover(path: Path) -> tuple[Episode, EnvironmentSpec] | None:
    """Return the episode in a journal and its spec, or None if the journal has no complete step.

    An episode without an end is truncated with the stop reason "crash"; an episode that had ended keeps its end.
    """
    steps = [*records(path)]
    if len(steps) < 2:
        return None
    first = steps.pop(0)
    spec = EnvironmentSpec.from_json(first.facts["spec"])
    last = steps[-1].facts
    ended = last["terminated"] or last["truncated"]
    successes = [step.facts["success"] for step in steps if step.facts["success"] is not None]
    success = any(successes) if successes else None
    episode = Episode(
        observations={name: _stack([first, *steps], f"{OBSERVATIONS}{name}") for name in spec.observation},
        actions=_stack(steps, "action"),
        policy_actions=_stack(steps, "policy_action"),
        rewards=_column(steps, "reward", np.float32),
        reward_terms=stacked_terms([step.facts["reward_terms"] for step in steps]),
        costs=stacked_terms([costs_of(step.facts) for step in steps]),
        sources=_column(steps, "source", np.int8),
        timestamps=_times([first, *steps]),
        terminated=last["terminated"],
        truncated=last["truncated"] or not ended,
        stop_reason=end_of(last["terminated"], last["truncated"], success, last["stop_reason"]) if ended else CRASH,
        success=success,
        seed=first.facts["seed"],
        spec_fingerprint=spec.fingerprint,
        instruction=first.facts["instruction"],
        metadata={"source": first.facts["source"], "recovered": True, **_guarded(steps)},
    )
    return episode, spec


def _times(records: list[Record]) -> Array:
    """Return the times (T+1,) of the observations: measured by the robot's clock if it reports them, else of arrival."""
    arrived = _column(records, "timestamp", np.float64)
    if records[1].facts.get(MEASURED_AT) is None:
        return arrived
    apart = np.diff(arrived)
    times = [records[1].facts[MEASURED_AT] - apart[0]]  # a journal begins before the robot's clock is known
    for record, later in zip(records[1:], apart, strict=True):
        told = record.facts.get(MEASURED_AT)
        times.append(times[-1] + later if told is None else told)
    return np.asarray(times, np.float64)


def _guarded(steps: list[Record]) -> dict[str, Any]:
    """Return the guard's reasons by verdict and step, in the form of `Rollout.episode`."""
    found = {name: {str(i): step.facts[name] for i, step in enumerate(steps) if name in step.facts} for name in VERDICTS}
    return {name: reasons for name, reasons in found.items() if reasons}


def records(path: Path) -> Iterator[Record]:
    """Yield the complete records of a journal file, in order; the iteration ends at the first unfinished or damaged record."""
    return map(_parse, read_records(path))


def read_record(file: BinaryIO) -> Record | None:
    """Read the record at the position of a file, and move past it; return None, without moving, if it is not complete yet."""
    content = framed_log.read_record(file)
    return None if content is None else _parse(content)


def _parse(payload: bytes) -> Record:
    line, _, content = payload.partition(b"\n")
    described = json.loads(line)
    arrays, start = {}, 0
    for name, kind, shape in described["arrays"]:
        array = np.frombuffer(content, np.dtype(kind), int(np.prod(shape)), start).reshape(shape)
        arrays[name], start = array, start + array.nbytes
    return Record(described["facts"], arrays)


def _stack(entries: list[Record], name: str) -> Array:
    return np.stack([entry.arrays[name] for entry in entries])


def _column(entries: list[Record], name: str, dtype: type[np.generic]) -> Array:
    return np.asarray([entry.facts[name] for entry in entries], dtype)
