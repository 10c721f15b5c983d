"""Props of CARLA 0.9.16's catalogue: typical length, width, height [m] of each, rounded."""

from __future__ import annotations

_ROWS = """
streetbarrier 1.2 0.4 1.1
container 6.0 2.4 2.6
box01 0.6 0.6 0.6
trafficcone01 0.5 0.5 0.7
trafficcone02 0.4 0.4 0.6
constructioncone 0.35 0.35 0.6
trafficwarning 2.4 1.2 2.6
warningconstruction 1.2 0.6 1.3
warningaccident 1.2 0.6 1.3
ironplank 2.4 1.2 0.05
brokentile01 0.3 0.3 0.05
brokentile02 0.3 0.3 0.05
brokentile03 0.3 0.3 0.05
brokentile04 0.3 0.3 0.05
dirtdebris01 1.2 1.2 0.15
dirtdebris02 1.5 1.5 0.15
dirtdebris03 1.0 1.0 0.15
chainbarrier 1.5 0.2 0.9
chainbarrierend 0.2 0.2 0.9
barrel 0.6 0.6 0.9
bin 0.6 0.6 1.0
clothcontainer 1.2 1.2 1.8
glasscontainer 1.6 1.4 1.8
box02 0.5 0.5 0.5
box03 0.4 0.4 0.4
creasedbox01 0.6 0.5 0.4
creasedbox02 0.5 0.4 0.4
creasedbox03 0.4 0.4 0.3
trashbag 0.6 0.6 0.6
colacan 0.1 0.1 0.12
garbage01 0.5 0.5 0.1
garbage02 0.5 0.5 0.1
garbage03 0.5 0.5 0.1
garbage04 0.5 0.5 0.1
garbage05 0.5 0.5 0.1
garbage06 0.5 0.5 0.1
platformgarbage01 1.6 1.2 0.5
trashcan01 0.6 0.6 1.0
trashcan02 0.6 0.6 1.0
trashcan03 0.7 0.6 1.0
trashcan04 0.8 0.7 1.1
trashcan05 0.6 0.6 1.0
bench01 1.8 0.7 0.9
bench02 1.8 0.7 0.9
bench03 1.6 0.6 0.8
gardenlamp 0.3 0.3 0.6
pergola 3.0 3.0 2.6
plasticchair 0.6 0.6 0.9
plastictable 0.9 0.9 0.75
slide 3.0 0.8 2.0
swing 2.5 1.8 2.2
swingcouch 2.0 1.4 1.8
table 1.6 0.9 0.75
trampoline 3.0 3.0 0.9
barbeque 1.0 0.6 1.1
clothesline 2.0 1.2 1.5
doghouse 1.0 0.8 0.9
gnome 0.3 0.3 0.5
wateringcan 0.4 0.2 0.4
haybale 1.4 1.4 1.2
haybalelb 1.4 1.2 1.2
plantpot01 0.5 0.5 0.8
plantpot02 0.5 0.5 0.8
plantpot03 0.6 0.6 1.0
plantpot04 0.8 0.4 0.6
plantpot05 0.6 0.6 1.0
plantpot06 0.4 0.4 0.6
plantpot07 0.4 0.4 0.6
plantpot08 0.4 0.4 0.6
plasticbag 0.3 0.3 0.3
shoppingbag 0.4 0.2 0.4
shoppingcart 1.0 0.6 1.0
shoppingtrolley 0.5 0.4 1.0
briefcase 0.45 0.15 0.35
guitarcase 1.1 0.4 0.2
travelcase 0.5 0.3 0.7
bike helmet 0.3 0.25 0.2
motorhelmet 0.35 0.25 0.3
mobile 0.15 0.08 0.02
purse 0.3 0.15 0.25
foodcart 2.4 1.4 2.3
kiosk_01 2.6 2.2 2.8
fountain 4.0 4.0 2.0
maptable 1.5 0.8 1.2
advertisement 1.4 0.4 2.6
streetsign 0.6 0.15 2.5
streetsign01 0.6 0.15 2.5
streetsign04 0.6 0.15 2.5
busstop 4.2 1.7 2.6
busstoplb 4.2 1.7 2.6
atm 0.9 0.8 1.7
mailbox 0.6 0.6 1.4
streetfountain 0.7 0.7 1.1
vendingmachine 1.0 0.9 1.9
calibrator 0.6 0.1 0.6
"""


def _listed(row: str) -> tuple[str, tuple[float, float, float]]:
    name, length, width, height = row.rsplit(maxsplit=3)
    return f"static.prop.{name}", (float(length), float(width), float(height))


PROPS = dict(_listed(row) for row in _ROWS.strip().splitlines())
"""Name of a prop -> its length, width and height [m]."""
