"""Vehicles that clients drive: controls in, motion out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_sims.carla.standin.actors import AX, AY, VX, VY, WZ, YAW, Actor, Bodies, X, Y, rows_of
from robo_sims.carla.standin.physics import dynamic, kinematic
from robo_sims.carla.standin.physics.kinematic import DEGREE
from robo_sims.carla.standin.physics.parameters import BY_NAME, Vehicle
from robo_sims.carla.standin.physics.state import Controls, One, Parameters, State

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

    def __len__(self) -> int:
        return len(self.actors)

    def keep(self, actors: list[Actor]) -> None:
        """Has these vehicles from now on; what is known of them stays."""
        kept = [self.actors.index(actor) for actor in actors if actor in self.actors]
        self.actors = [self.actors[number] for number in kept] + [actor for actor in actors if actor not in self.actors]
        self.state = self.state.resized(kept, len(self.actors))
        self.controls = self.controls.resized(kept, len(self.actors))
        self.parameters = Parameters([model_of(actor) for actor in self.actors])
        self.only = One(self.parameters) if len(self) == 1 else None
        """The parameters, where there is one vehicle."""

    def place(self, actor: Actor, bodies: Bodies) -> None:
        """Takes over where an actor was put, at rest."""
        self.launch(actor, bodies, 0.0, 0.0)

    def launch(self, actor: Actor, bodies: Bodies, vx: float, vy: float) -> None:
        """Takes over where an actor is, with a velocity in the world's frame."""
        number, state = self.actors.index(actor), self.state
        state.x[number], state.y[number], state.yaw[number] = bodies.motion[actor.row, [X, Y, YAW]]
        yaw = np.radians(state.yaw[number])
        state.forward[number] = vx * np.cos(yaw) + vy * np.sin(yaw)
        state.sideways[number] = vy * np.cos(yaw) - vx * np.sin(yaw)
        state.turning[number] = state.wheel[number] = 0.0

    def struck(self, actor: Actor, motion: npt.NDArray[np.float64]) -> None:
        """Takes over place and velocity after a collision; what goes sideways is lost to the tyres."""
        number, state = self.actors.index(actor), self.state
        yaw = math.radians(state.yaw[number])
        state.x[number], state.y[number] = motion[X], motion[Y]
        state.forward[number] = motion[VX] * math.cos(yaw) + motion[VY] * math.sin(yaw)
        state.sideways[number] = state.turning[number] = 0.0

    def control(self, actor: Actor, bodies: Bodies, wanted: list[float]) -> None:
        """Takes a client's [throttle, steer, brake, hand brake, reverse, manual gear shift, gear]."""
        throttle, steer, brake, hand_brake, reverse, manual, gear = wanted
        number, controls = self.actors.index(actor), self.controls
        controls.throttle[number] = min(max(throttle, 0.0), 1.0)
        controls.steer[number] = min(max(steer, -1.0), 1.0)
        controls.brake[number] = min(max(brake, 0.0), 1.0)
        controls.hand_brake[number] = bool(hand_brake)
        controls.direction[number] = -1.0 if reverse or (manual and gear < 0) else 1.0
        record = bodies.records[actor.row]
        record["pedals"] = throttle, steer, brake
        record["hand_brake"], record["reverse"], record["manual"] = bool(hand_brake), bool(reverse), bool(manual)
        record["gear"] = -1 if reverse else gear if manual else 1

    def step(self, bodies: Bodies, dt: float) -> None:
        """Moves all vehicles and writes what a snapshot says of them."""
        if not self.actors:
            return
        if self.only is None:
            self.advance(self.state, self.controls, self.parameters, dt)
            block = bodies.motion[self.rows]
            write(self.state, block.T, dt)
            bodies.motion[self.rows] = block
        else:
            state = One(self.state)
            self.advance(state, One(self.controls), self.only, dt)
            state.back(self.state)
            write(state, bodies.motion[self.actors[0].row], dt)


def write(state: Any, motion: npt.NDArray[np.float64], dt: float) -> None:
    """Writes pose, velocity and acceleration; the first axis of `motion` is that of its columns."""
    f = state.functions
    cosine, sine = f.cos(state.yaw * DEGREE), f.sin(state.yaw * DEGREE)
    vx, vy = state.forward * cosine - state.sideways * sine, state.forward * sine + state.sideways * cosine
    motion[AX], motion[AY] = (vx - motion[VX]) / dt, (vy - motion[VY]) / dt
    motion[X], motion[Y], motion[YAW] = state.x, state.y, state.yaw
    motion[VX], motion[VY], motion[WZ] = vx, vy, state.turning / DEGREE


def model_of(actor: Actor) -> Vehicle:
    """Returns the model of a vehicle."""
    return BY_NAME[actor.type_id]
