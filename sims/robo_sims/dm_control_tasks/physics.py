"""Physics object of a suite task whose arrays hold all N environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from dm_control.mujoco.engine import NamedIndexStructs
from dm_control.mujoco.index import FieldIndexer

from robo_sims.batched.simulations import Gathered
from robo_sims.dm_control_tasks.batched_array import batched


class BatchedData:
    """Replaces dm_control's MjData: each field is a BatchedArray (*shape, N), which exists from its first use on."""

    def __init__(self, datas: Sequence[mujoco.MjData]) -> None:
        self._datas = datas
        self._gathered: list[Gathered] = []

    def __getattr__(self, name: str) -> Any:
        field = getattr(self._datas[0], name)
        if not isinstance(field, np.ndarray):
            raise TypeError(f"MjData.{name} cannot be read for all environments at once.")
        gathered = Gathered(self._datas, lambda data: getattr(data, name))
        gathered.read()
        self._gathered.append(gathered)
        array = batched(gathered.values.reshape(len(self._datas), *field.shape))
        setattr(self, name, array)
        return array

    def read(self) -> None:
        """Fill all used fields from the current states."""
        for gathered in self._gathered:
            gathered.read()


class _NamedData:
    """Replaces `physics.named.data`: fields of BatchedData, indexed by names."""

    def __init__(self, data: BatchedData, named: Any) -> None:
        self._data, self._named = data, named

    def __getattr__(self, name: str) -> Any:
        axes = [axis for axis in getattr(self._named, name).axes if axis is not None]
        indexer = FieldIndexer(self._data, name, axes)
        setattr(self, name, indexer)
        return indexer


def physics_of_all(source: Any, data: BatchedData) -> Any:
    """Return an instance of the task's own physics class that reads `data`, the states of all environments.

    Its model is that of `source`, the physics of one environment: tasks read only fields that are equal in all environments.
    """
    named = NamedIndexStructs(model=source.named.model, data=_NamedData(data, source.named.data))
    kind = type("PhysicsOfAll", (type(source),), {"data": data, "named": named, "model": source.model})
    physics: Any = object.__new__(kind)  # not initialised: it does not simulate
    vars(physics).update(vars(source))  # some classes store names of sensors and joints
    return physics
