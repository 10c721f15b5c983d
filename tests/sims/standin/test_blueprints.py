"""Blueprints by the names and attributes that CARLA's scripts filter for, read by the real client."""

import pytest


@pytest.mark.slow
def test_blueprints_have_the_names_that_scripts_look_for(program):
    result = program("""
        def found(pattern):
            return sorted(blueprint.id for blueprint in library.filter(pattern))
        names = "audi.tt lincoln.mkz_2017 lincoln.mkz_2020 toyota.prius ford.mustang nissan.micra nissan.patrol_2021 " \\
            "mini.cooper_s dodge.charger_2020 dodge.charger_police carlamotors.firetruck ford.ambulance gazelle.omafiets " \\
            "bh.crossbike mercedes.coupe volkswagen.t2_2021"
        result["missing"] = [name for name in names.split() if not library.filter("vehicle." + name)]
        patterns = "tt", "*lincoln*", "prius", "*gazelle*", "walker.pedestrian.0007"
        result["patterns"] = [found(pattern)[0] for pattern in patterns]
        def value(name, attribute):
            return str(library.find(name).get_attribute(attribute).as_str())
        result["special"] = value("vehicle.carlamotors.firetruck", "special_type"), value("vehicle.ford.crown", "special_type")
        result["bases"] = sorted({blueprint.get_attribute("base_type").as_str() for blueprint in library.filter("vehicle.*")})
        generation = lambda blueprint: int(blueprint.get_attribute("generation"))
        result["second"] = [sum(generation(one) == 2 for one in library.filter(p)) for p in ("vehicle.*", "walker.*")]
        lit = "vehicle.audi.tt", "vehicle.bh.crossbike"
        result["lights"] = [library.find(name).get_attribute("has_lights").as_bool() for name in lit]
        result["children"] = [one.id[-4:] for one in library.filter("walker.*") if one.get_attribute("age").as_str() == "child"]
        result["props"] = len(library.filter("static.prop.*"))
        spawned = []
        every = [one for pattern in ("vehicle.*", "static.prop.*", "walker.*") for one in library.filter(pattern)]
        for number, blueprint in enumerate(every):
            actor = world.try_spawn_actor(blueprint, at(12.0 * (number % 40), 12.0 * (number // 40) + 100))
            spawned.append(actor is not None and actor.bounding_box.extent.x > 0)
        ticks(1)
        result["spawned"] = all(spawned), len(spawned)
    """)
    assert result["missing"] == []
    assert result["patterns"] == [
        "vehicle.audi.tt",
        "vehicle.lincoln.mkz_2017",
        "vehicle.toyota.prius",
        "vehicle.gazelle.omafiets",
        "walker.pedestrian.0007",
    ]
    assert result["special"] == ["emergency", "taxi"]
    assert result["bases"] == ["bicycle", "bus", "car", "motorcycle", "truck", "van"]
    assert min(result["second"]) >= 10 and result["lights"] == [True, False]
    assert sorted(result["children"]) == ["0009", "0010", "0011", "0012", "0013", "0014", "0048", "0049"]
    assert result["props"] > 80 and result["spawned"] == [True, 41 + result["props"] + 52]
