"""Sizes and handling of the vehicles, one row for each model.

Names, kinds and generations are those of CARLA 0.9.16's catalogue. Sizes are those of ordinary road vehicles of the kind,
rounded; handling is chosen so that a car reaches 100 km/h in about 9 s and brakes from it within about 45 m. None of it is
fitted to CARLA's PhysX vehicles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from carla_standin.layouts import Tag


@dataclass(frozen=True)
class Vehicle:
    """Physical parameters of one model of vehicle."""

    name: str
    length: float
    """[m], as are width, height and wheelbase."""
    width: float
    height: float
    wheelbase: float
    mass: float
    """Mass of the vehicle [kg]."""
    kind: str = "car"
    """Category of the vehicle, as CARLA's blueprint attribute `base_type` names it: car, truck, bicycle, ..."""
    wheels: int = 4
    tag: Tag = Tag.CAR
    power: float = 110e3
    """Largest power [W] of the motor at the wheels."""
    traction: float = 4.5
    """Acceleration [m/s2] that the motor reaches from standstill."""
    braking: float = 8.0
    """Deceleration [m/s2] with the brake fully applied."""
    drag: float = 0.00035
    """Air resistance: deceleration [m/s2] divided by the square of the speed [m/s], thus [1/m]."""
    rolling: float = 0.12
    """Deceleration [m/s2] by rolling resistance."""
    engine_braking: float = 0.5
    """Deceleration [m/s2] by the motor without throttle."""
    max_steer: float = 40.0
    """Angle [degree] of the front wheels at steer 1.

    CARLA's cars state 70 degrees, which their own steering curve reduces with speed.
    """
    steering_rate: float = 300.0
    """Speed at which the front wheels turn to a new steering angle [degree/s]."""
    grip: float = 0.9
    """Coefficient of friction of the dynamic model's tyres; it bounds the lateral acceleration of both models."""
    cornering: float = 14.0
    """[1/rad] cornering stiffness of an axle over its load, of the dynamic model."""
    front_share: float = 0.5
    """Distance from the centre of mass to the front axle, as a share of the wheelbase."""
    generation: int = 1
    """Generation of the model in CARLA's catalogue; CARLA's scripts select vehicles by it."""
    special: str = ""
    """Kind of special vehicle, CARLA's blueprint attribute `special_type`: emergency, taxi, electric, or "" for none."""


_FIRST = (
    Vehicle("vehicle.tesla.model3", 4.8, 2.0, 1.5, 2.9, 1850, power=190e3, traction=5.0, special="electric"),
    Vehicle("vehicle.lincoln.mkz_2020", 4.9, 1.9, 1.5, 2.85, 1700, power=140e3, generation=2),
    Vehicle("vehicle.audi.a2", 3.7, 1.8, 1.55, 2.4, 1100, power=66e3, traction=3.8),
    Vehicle("vehicle.mini.cooper_s", 3.8, 1.7, 1.45, 2.5, 1200, power=100e3),
    Vehicle("vehicle.carlamotors.carlacola", 5.2, 2.6, 2.5, 3.1, 5500, "truck", 4, Tag.TRUCK, 110e3, 2.5, 6.0, 0.0008),
    Vehicle(
        "vehicle.mitsubishi.fusorosa",
        *(10.2, 2.4, 3.0, 5.2, 8000, "bus", 4, Tag.BUS, 130e3, 2.0, 6.0, 0.0008),
        max_steer=45,
        generation=2,
    ),
    Vehicle("vehicle.kawasaki.ninja", 2.1, 0.8, 1.5, 1.4, 260, "motorcycle", 2, Tag.MOTORCYCLE, 50e3, 5.0),
    Vehicle("vehicle.diamondback.century", 1.7, 0.6, 1.6, 1.05, 90, "bicycle", 2, Tag.BICYCLE, 0.4e3, 1.2, 4.0, 0.003, 0.05),
)
_CARS = """
audi.etron 4.9 2.0 1.65 2.93 2350 265 1 electric
audi.tt 4.2 1.9 1.4 2.5 1350 169 1
bmw.grandtourer 4.6 1.9 1.65 2.78 1520 110 1
chevrolet.impala 5.4 2.0 1.4 3.0 1650 180 1
citroen.c3 4.0 1.8 1.6 2.54 1050 61 1
dodge.charger_2020 5.0 1.9 1.5 3.05 1900 220 2
dodge.charger_police 5.0 2.0 1.55 3.05 1950 220 1 emergency
dodge.charger_police_2020 5.2 1.9 1.65 3.05 1950 220 2 emergency
ford.crown 5.4 1.9 1.6 2.91 1850 160 2 taxi
ford.mustang 4.7 1.9 1.3 2.72 1500 200 1
jeep.wrangler_rubicon 3.9 1.9 1.9 2.42 1880 140 1
lincoln.mkz_2017 4.9 2.0 1.5 2.85 1700 140 1
mercedes.coupe 5.0 2.0 1.65 2.9 1800 180 1
mercedes.coupe_2020 4.7 1.8 1.45 2.84 1650 190 2
micro.microlino 2.2 1.5 1.4 1.57 530 12 1 electric
mini.cooper_s_2021 4.6 2.0 1.75 2.6 1300 131 2
nissan.micra 3.6 1.8 1.5 2.45 1000 59 1
nissan.patrol 4.6 1.9 1.85 2.97 2200 150 1
nissan.patrol_2021 5.6 2.1 2.0 3.08 2750 298 2
seat.leon 4.2 1.8 1.45 2.58 1300 96 1
tesla.cybertruck 6.3 2.4 2.1 3.8 3000 450 2 electric
toyota.prius 4.5 2.0 1.5 2.7 1400 90 1
"""
"""Name, length, width, height, wheelbase [m], mass [kg], power [kW], generation, special type."""
_OTHERS = """
carlamotors.european_hgv truck 7.9 2.9 3.5 4.6 9000 220 2
carlamotors.firetruck truck 8.5 2.9 3.8 4.9 11000 220 2 emergency
ford.ambulance van 6.4 2.4 2.4 3.9 4000 150 2 emergency
mercedes.sprinter van 5.9 2.0 2.6 3.66 2600 120 2
volkswagen.t2 van 4.5 2.0 2.05 2.4 1300 50 1
volkswagen.t2_2021 van 4.4 1.8 2.0 2.4 1300 100 2
harley-davidson.low_rider motorcycle 2.4 0.8 1.6 1.63 380 60 1
vespa.zx125 motorcycle 1.8 0.8 1.5 1.28 190 8 1
yamaha.yzf motorcycle 2.2 0.8 1.5 1.4 270 80 1
bh.crossbike bicycle 1.5 0.6 1.6 1.0 90 0.4 1
gazelle.omafiets bicycle 1.8 0.6 1.6 1.1 95 0.4 1
"""
"""Names, sizes and handling as in `_CARS`, with CARLA's base type after the name."""
_KINDS = {
    "car": Vehicle("", 0, 0, 0, 0, 1500),
    "van": Vehicle("", 0, 0, 0, 0, 2500, "van", traction=3.5, braking=7.0, drag=0.0005),
    "truck": _FIRST[4],
    "motorcycle": _FIRST[6],
    "bicycle": _FIRST[7],
}
"""Kind of vehicle -> parameters that all vehicles of the kind share."""


def _listed(row: str, kind: str | None = None) -> Vehicle:
    name, *values = row.split()
    kind = kind or values.pop(0)
    length, width, height, wheelbase, mass, power = (float(value) for value in values[:6])
    found = replace(_KINDS[kind], name=f"vehicle.{name}", length=length, width=width, height=height, wheelbase=wheelbase)
    return replace(found, mass=mass, power=1e3 * power, generation=int(values[6]), special="".join(values[7:]))


VEHICLES = (
    *_FIRST,
    *(_listed(row, "car") for row in _CARS.strip().splitlines()),
    *(_listed(row) for row in _OTHERS.strip().splitlines()),
)
BY_NAME = {vehicle.name: vehicle for vehicle in VEHICLES}
GRIP = Vehicle.grip
"""Tyre friction of all vehicles for which neither server nor blueprint sets another."""
