"""Motion of the vehicles that clients drive: pedals and steering go in, poses and velocities come out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from carla_standin.actors import AX, AY, VX, VY, WZ, YAW, Actor, Bodies, X, Y, rows_of
from carla_standin.physics import dynamic, kinematic
from carla_standin.physics.ackermann import Ackermann
from carla_standin.physics.kinematic import DEGREE
from carla_standin.physics.overrides import LEAST, Override
from carla_standin.physics.parameters import BY_NAME, Vehicle
from carla_standin.physics.state import Controls, One, Parameters, State

MODELS = {"kinematic": kinematic.step, "dynamic": dynamic.step}


class Driven:
    """All vehicles that follow one physical model."""

    def __init__(self, model: str) -> None:
        self.advance = MODELS[model]
        self.actors: list[Actor] = []
        self.state, self.controls = State(0), Controls(0)
        self.parameters = Parameters([])
        self.only: One | None = None
        self.rows = rows_of([])
        self.overrides: dict[Actor, Override] = {}
        """Vehicle -> its motion that differs from its model's, such as a slide."""
        self.targets: dict[Actor, Ackermann] = {}
        """Vehicle under Ackermann control -> its target."""
        self.flushed: list[Actor] = []
        """Vehicles with controls for one step only."""

    def __len__(self) -> int:
        return len(self.actors)

    def keep(self, actors: list[Actor]) -> None:
        """Replace the vehicles; the state of the kept ones stays."""
        kept = [self.actors.index(actor) for actor in actors if actor in self.actors]
        self.actors = [self.actors[number] for number in kept] + [actor for actor in actors if actor not in self.actors]
        self.state = self.state.resized(kept, len(self.actors))
        self.controls = self.controls.resized(kept, len(self.actors))
        self.overrides = {actor: override for actor, override in self.overrides.items() if actor in self.actors}
        self.targets = {actor: target for actor, target in self.targets.items() if actor in self.actors}
        self.flushed = [actor for actor in self.flushed if actor in self.actors]
        self.measure()

    def measure(self) -> None:
        """Compute the physical parameters of all vehicles anew, after one of them was changed."""
        self.parameters = Parameters([effective(actor) for actor in self.actors])
        self.only = One(self.parameters) if len(self) == 1 else None
        """The parameters as plain numbers if there is just one vehicle, else None."""

    def override(self, actor: Actor) -> Override:
        """Return the override of a vehicle's motion, which the caller may change; a new one without effect if there is none."""
        return self.overrides.setdefault(actor, Override())

    def place(self, actor: Actor, bodies: Bodies) -> None:
        """Set a vehicle's state to the pose of its actor, at rest."""
        self.launch(actor, bodies, 0.0, 0.0)
        self.override(actor).spin = 0.0

    def launch(self, actor: Actor, bodies: Bodies, vx: float, vy: float) -> None:
        """Set a vehicle's state to its actor's pose, with a velocity in the world's frame; grip stops its lateral part."""
        number, state = self.actors.index(actor), self.state
        state.x[number], state.y[number], state.yaw[number] = bodies.motion[actor.row, [X, Y, YAW]]
        state.turning[number] = state.wheel[number] = 0.0
        self._set_velocity(actor, vx, vy)

    def _set_velocity(self, actor: Actor, vx: float, vy: float) -> None:
        number, state = self.actors.index(actor), self.state
        yaw = np.radians(state.yaw[number])
        sideways = vy * np.cos(yaw) - vx * np.sin(yaw)
        state.forward[number] = vx * np.cos(yaw) + vy * np.sin(yaw)
        slides = abs(sideways) > LEAST
        state.sideways[number] = 0.0 if slides else sideways
        self.override(actor).slide = float(sideways) if slides else 0.0

    def push(self, actor: Actor, vx: float, vy: float) -> None:
        """Add to a vehicle's velocity [m/s] in the world's frame."""
        number, state = self.actors.index(actor), self.state
        yaw = math.radians(state.yaw[number])
        sideways = state.sideways[number] + self.override(actor).slide
        forward = state.forward[number]
        own = forward * math.cos(yaw) - sideways * math.sin(yaw), forward * math.sin(yaw) + sideways * math.cos(yaw)
        self._set_velocity(actor, own[0] + vx, own[1] + vy)

    def struck(self, actor: Actor, motion: npt.NDArray[np.float64]) -> None:
        """Set a vehicle's position and velocity after a collision; the tyres absorb the lateral part."""
        number, state = self.actors.index(actor), self.state
        yaw = math.radians(state.yaw[number])
        state.x[number], state.y[number] = motion[X], motion[Y]
        state.forward[number] = motion[VX] * math.cos(yaw) + motion[VY] * math.sin(yaw)
        state.sideways[number] = state.turning[number] = 0.0
        if actor in self.overrides:
            self.overrides[actor].slide = 0.0

    def control(self, actor: Actor, bodies: Bodies, wanted: list[float]) -> None:
        """Set a vehicle's [throttle, steer, brake, hand brake, reverse, manual gear shift, gear]; pedals are clamped."""
        throttle, steer, brake, hand_brake, reverse, manual, gear = wanted
        number, controls = self.actors.index(actor), self.controls
        self.targets.pop(actor, None)
        controls.throttle[number] = min(max(throttle, 0.0), 1.0)
        controls.steer[number] = min(max(steer, -1.0), 1.0)
        controls.brake[number] = min(max(brake, 0.0), 1.0)
        controls.hand_brake[number] = bool(hand_brake)
        controls.direction[number] = -1.0 if reverse or (manual and gear < 0) else 1.0
        record = bodies.records[actor.row]
        record["pedals"] = controls.throttle[number], controls.steer[number], controls.brake[number]
        record["hand_brake"], record["reverse"], record["manual"] = bool(hand_brake), bool(reverse), bool(manual)
        record["gear"] = -1 if reverse else min(max(gear, -1), 100) if manual else 1
        if actor.attributes.get("sticky_control", "").lower() == "false" and actor not in self.flushed:
            self.flushed.append(actor)

    def follow(self, actor: Actor, target: Ackermann) -> None:
        """Put a vehicle under Ackermann control until it gets another control."""
        old = self.targets.get(actor)
        if old is not None:
            target.angle, target.wanted = old.angle, old.wanted
        else:
            target.angle = float(self.state.wheel[self.actors.index(actor)])
        self.targets[actor] = target

    def _drive(self, bodies: Bodies, dt: float) -> None:
        """Set the pedals of vehicles under Ackermann control."""
        for actor, target in self.targets.items():
            number = self.actors.index(actor)
            controls = One(self.controls, number)
            target.apply(One(self.state, number), controls, One(self.parameters, number), dt)
            controls.back(self.controls, number)
            record = bodies.records[actor.row]
            record["pedals"] = controls.throttle, controls.steer, controls.brake
            record["hand_brake"], record["reverse"], record["manual"] = False, controls.direction < 0, False
            record["gear"] = int(controls.direction)

    def flush(self, bodies: Bodies) -> None:
        """Reset the controls that are valid for one step."""
        for actor in self.flushed:
            self.control(actor, bodies, [0.0] * 7)
        self.flushed = []

    def step(self, bodies: Bodies, dt: float) -> None:
        """Move all vehicles and write their motion."""
        if not self.actors:
            return
        if self.targets:
            self._drive(bodies, dt)
        if self.overrides:
            self.overrides = {actor: override for actor, override in self.overrides.items() if override.is_needed(actor)}
        if self.only is None or self.overrides:
            self._step_all(bodies, dt)
        else:
            state = One(self.state)
            self.advance(state, One(self.controls), self.only, dt)
            state.back(self.state)
            write(state, bodies.motion[self.actors[0].row], dt)

    def _step_all(self, bodies: Bodies, dt: float) -> None:
        apart = [(self.actors.index(actor), actor, override) for actor, override in self.overrides.items()]
        before = [One(self.state, number) for number, _, _ in apart]
        self.advance(self.state, self.controls, self.parameters, dt)
        for (number, actor, override), old in zip(apart, before, strict=True):
            new = One(self.state, number)
            override.apply(actor, old, new, One(self.parameters, number), dt)
            new.back(self.state, number)
        shown = self.state if not apart else self._with_slides(apart)
        block = bodies.motion[self.rows]
        write(shown, block.T, dt)
        bodies.motion[self.rows] = block

    def _with_slides(self, apart: Sequence[tuple[int, Actor, Override]]) -> State:
        """Return the state with slides and spins, which the model would take for speed along the wheels."""
        shown = self.state.resized(range(len(self)), len(self))
        for number, actor, override in apart:
            if override.constant is None or actor.is_aloft:
                shown.sideways[number] += override.slide
            shown.turning[number] += override.spin
        return shown


def write(state: Any, motion: npt.NDArray[np.float64], dt: float) -> None:
    """Write pose, velocity and acceleration; the first axis of `motion` is that of its columns."""
    f = state.functions
    cosine, sine = f.cos(state.yaw * DEGREE), f.sin(state.yaw * DEGREE)
    vx, vy = state.forward * cosine - state.sideways * sine, state.forward * sine + state.sideways * cosine
    motion[AX], motion[AY] = (vx - motion[VX]) / dt, (vy - motion[VY]) / dt
    motion[X], motion[Y], motion[YAW] = state.x, state.y, state.yaw
    motion[VX], motion[VY], motion[WZ] = vx, vy, state.turning / DEGREE


def model_of(actor: Actor) -> Vehicle:
    """Return the physical parameters of a vehicle: a client's changed ones, else those with which the vehicle was spawned."""
    return actor.model or actor.stock or BY_NAME[actor.type_id]


def effective(actor: Actor) -> Vehicle:
    """Return the physical parameters of a vehicle in its present state: with gravity switched off, its tyres have no grip."""
    model = model_of(actor)
    return model if actor.has_gravity else replace(model, grip=0.0)
