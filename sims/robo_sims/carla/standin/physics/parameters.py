"""Sizes and handling of the vehicles, one row a model.

Sizes are those of ordinary road vehicles of the kind, rounded; handling is chosen so that a car reaches 100 km/h in about 9 s
and brakes from it within about 45 m. None of it is fitted to CARLA's PhysX vehicles.
"""

from __future__ import annotations

from dataclasses import dataclass

from robo_sims.carla.standin.layouts import Tag


@dataclass(frozen=True)
class Vehicle:
    """One model of vehicle."""

    name: str
    length: float
    """[m], as are width, height and wheelbase."""
    width: float
    height: float
    wheelbase: float
    mass: float
    """[kg]"""
    kind: str = "car"
    """CARLA's base_type."""
    wheels: int = 4
    tag: Tag = Tag.CAR
    power: float = 110e3
    """[W] at the wheels."""
    traction: float = 4.5
    """[m/s2] largest acceleration from rest."""
    braking: float = 8.0
    """[m/s2] at full brake."""
    drag: float = 0.00035
    """[1/m] deceleration by air over the square of the speed."""
    rolling: float = 0.12
    """[m/s2] deceleration by rolling."""
    engine_braking: float = 0.5
    """[m/s2] without throttle."""
    max_steer: float = 40.0
    """[degree] of the front wheels at steer 1; CARLA's cars state 70, which their own steering curve reduces with speed."""
    steering_rate: float = 300.0
    """[degree/s] of the front wheels."""
    grip: float = 0.9
    """Coefficient of friction; the dynamic model's tyres and both models' largest lateral acceleration."""
    cornering: float = 14.0
    """[1/rad] cornering stiffness of an axle over its load, of the dynamic model."""
    front_share: float = 0.5
    """Part of the wheelbase that lies before the centre of mass."""


VEHICLES = (
    Vehicle("vehicle.tesla.model3", 4.8, 2.0, 1.5, 2.9, 1850, power=190e3, traction=5.0),
    Vehicle("vehicle.lincoln.mkz_2020", 4.9, 1.9, 1.5, 2.85, 1700, power=140e3),
    Vehicle("vehicle.audi.a2", 3.7, 1.8, 1.55, 2.4, 1100, power=66e3, traction=3.8),
    Vehicle("vehicle.mini.cooper_s", 3.8, 1.7, 1.45, 2.5, 1200, power=100e3),
    Vehicle("vehicle.carlamotors.carlacola", 5.2, 2.6, 2.5, 3.1, 5500, "truck", 4, Tag.TRUCK, 110e3, 2.5, 6.0, 0.0008),
    Vehicle("vehicle.mitsubishi.fusorosa", 10.2, 2.4, 3.0, 5.2, 8000, "bus", 4, Tag.BUS, 130e3, 2.0, 6.0, 0.0008, max_steer=45),
    Vehicle("vehicle.kawasaki.ninja", 2.1, 0.8, 1.5, 1.4, 260, "motorcycle", 2, Tag.MOTORCYCLE, 50e3, 5.0),
    Vehicle("vehicle.diamondback.century", 1.7, 0.6, 1.6, 1.05, 90, "bicycle", 2, Tag.BICYCLE, 0.4e3, 1.2, 4.0, 0.003, 0.05),
)
BY_NAME = {vehicle.name: vehicle for vehicle in VEHICLES}
