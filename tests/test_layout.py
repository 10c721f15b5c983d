"""The folders keep their rule, the code its few prohibitions, and what the pages promise exists."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SHIPPED = [ROOT / name for name in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
PAPERS = ROOT / "policies" / "robo_papers"
STANDIN = ROOT / "sims" / "carla_standin"
PACKAGES = [*SHIPPED, ROOT / "scripts" / "robo_bench", PAPERS, STANDIN]
OTHERS = [tomllib.loads((folder / "pyproject.toml").read_text()) for folder in (PAPERS, STANDIN)]
"""Distributions beside the kernel."""
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py") if "tests" not in path.parts)
PAGES = sorted(
    {
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
        *(ROOT / "docs").rglob("*.md"),
        *PAPERS.rglob("*.md"),
        *STANDIN.rglob("*.md"),
    }
)
SCRIPTS = {"setup", "quickstart", "test", "try_paper"}
SAY_NOTHING = {"utils", "util", "common", "helpers", "helper", "misc", "tools", "stuff", "base", "core"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@dataclass(frozen=True)
class Facts:
    """What the tests ask of a module: a thousand whole trees would take a gigabyte of every process after them."""

    imports: list[ast.Import | ast.ImportFrom]
    calls: set[str]
    forbidden: list[str]


@cache
def facts_of(path: Path) -> Facts:
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    calls = {name_of(node.func) for node in nodes if isinstance(node, ast.Call)}
    return Facts([node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)], calls, forbidden(nodes))


def name_of(function: ast.expr) -> str:
    """Returns "a.b.c" of such an expression, "" of any other."""
    parts = []
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    return ".".join([function.id, *reversed(parts)]) if isinstance(function, ast.Name) else ""


def dotted(path: Path) -> str:
    """Returns the import name of a module."""
    package = next(package for package in PACKAGES if path.is_relative_to(package))
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


# folders


@pytest.mark.parametrize("folder", ["sims", "policies", "real_robot", "datasets", "scripts"])
def test_a_code_folder_holds_its_package_and_no_module(folder):
    entries = {path.name for path in (ROOT / folder).iterdir() if path.name != "__pycache__"}
    others = {"carla_standin", "robo_app", "robo_bench", "robo_papers", "lerobot_robot_robo_rl"}  # decisions 0001 and 0013
    packages = {name for name in entries if (ROOT / folder / name).is_dir()} - others
    assert len(packages) == 1 and packages.pop().startswith("robo_")
    assert {name for name in entries if (ROOT / folder / name).is_file()} == (SCRIPTS if folder == "scripts" else set())


def test_the_tests_are_no_package():
    assert not list((ROOT / "tests").rglob("__init__.py"))
    assert {path.name for path in (ROOT / "tests").glob("*.py")} == {
        "chat_server.py",
        "costly.py",
        "factories.py",
        "test_layout.py",
    }


def test_every_folder_of_a_package_is_one_too():
    folders = {path.parent for path in MODULES}
    assert [relative(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
    assert [relative(package) for package in PACKAGES if not (package / "py.typed").exists()] == []


def test_names_say_what_is_inside():
    assert [relative(path) for path in MODULES if path.stem in SAY_NOTHING or path.parent.name in SAY_NOTHING] == []


def test_command_modules_have_at_most_100_lines():
    rooms = [path.parent for path in (ROOT / "scripts" / "robo_cli").glob("*/__init__.py")]
    lines = {relative(path): len(path.read_text().splitlines()) for room in rooms for path in room.glob("*.py")}
    assert len(lines) > 30 and {path: count for path, count in lines.items() if count > 100} == {}


# code


def test_importing_only_defines_names():
    """No import prints, starts a thread, draws random numbers or writes a file."""
    program = f"""
import importlib, sys, threading
import numpy
before = numpy.random.get_state()[1].copy()
for name in {[dotted(path) for path in MODULES if path.stem != "__main__"]!r}:
    importlib.import_module(name)
assert "ray" not in sys.modules, "an extra is loaded where it is asked for"
assert threading.active_count() == 1, threading.enumerate()
assert (numpy.random.get_state()[1] == before).all(), "numpy's global random numbers were drawn"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.slow
def test_the_contract_needs_no_simulator_and_no_torch():
    names = [f"robo_rl.{name}" for name in ("errors", "spec", "types", "protocols", "entry_points", "environments.make")]
    heavy = "{'torch', 'mujoco', 'cv2', 'matplotlib', 'stable_baselines3'}"
    program = f"import sys, {', '.join(names)}; print({heavy} & {{*sys.modules}})"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


@pytest.mark.slow
def test_the_chosen_renderer_is_not_fixed_by_an_early_import():
    program = "import sys, robo_sims, robo_sims.rendering, robo_cli.main; print('mujoco' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


def imports(nodes: Iterable[ast.AST], modules: set[str]) -> set[str]:
    """Returns which modules are imported anywhere: in functions and for type checkers alone, too."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = {f"{node.module}.{name.name}" for name in node.names}
            found |= names & modules | ({node.module} if names - modules else set())
    return found & modules


def cycles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Returns groups of modules that import each other, after all that import or are imported from outside alone are gone."""
    left = {module: set(targets) - {module} for module, targets in arrows.items()}
    while ends := {module for module, targets in left.items() if not targets & left.keys()}:
        left = {module: targets for module, targets in left.items() if module not in ends}
    reached = {module: targets & left.keys() for module, targets in left.items()}
    for _ in left:
        reached = {module: targets.union(*(reached[target] for target in targets)) for module, targets in reached.items()}
    groups = {frozenset(m for m in reached if m in reached[module] and module in reached[m]) for module in reached}
    return sorted(sorted(group) for group in groups if group)


def test_no_modules_import_each_other():
    modules = {dotted(path) for path in MODULES}
    assert cycles({dotted(path): imports(facts_of(path).imports, modules) for path in MODULES}) == []


def test_cycles_are_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e"}}) == [["b", "c"]]
    tree = ast.parse("if TYPE_CHECKING:\n    from x.y import Z\ndef f():\n    from x import w, V\n    import x.u, os")
    assert imports(ast.walk(tree), {"x", "x.y", "x.w", "x.u", "x.n"}) == {"x", "x.y", "x.w", "x.u"}


def forbidden(nodes: Iterable[ast.AST]) -> list[str]:
    """Returns what could run code out of a file: pickle in any form, torch.load without weights_only, eval, exec."""
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [f"import {name.name}" for name in node.names if name.name.split(".")[0] in PICKLES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PICKLES:
            found.append(f"from {node.module} import")
        elif isinstance(node, ast.Call):
            function = name_of(node.func)
            found += [function] if function in ("eval", "exec", "yaml.load", "yaml.unsafe_load") else []
            keywords = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if function == "torch.load" and keywords.get("weights_only") != "True":
                found.append("torch.load without weights_only=True")
            if keywords.get("allow_pickle") == "True":
                found.append("allow_pickle=True")
    return found


PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from cloudpickle import dumps",
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "np.load(f, allow_pickle=True)",
        "yaml.load(f)",
        "eval(x)",
        "exec(x)",
    ],
)
def test_the_search_finds_what_is_forbidden(source):
    assert len(forbidden(ast.walk(ast.parse(source)))) == 1


def test_the_search_lets_the_allowed_pass():
    allowed = "torch.load(f, weights_only=True); model.eval(); yaml.safe_load(f); np.load(f); makers[0](f)"
    assert forbidden(ast.walk(ast.parse(allowed))) == []


def test_there_is_one_reader_of_yaml():
    """It turns every error into one that names the file, also that of a text that is nested too deeply."""
    calling = {relative(path) for path in MODULES if "yaml.safe_load" in facts_of(path).calls}
    assert calling == {"robo_rl/system/plain_files.py"}


def test_no_file_that_is_read_can_run_code():
    found = {relative(path): facts_of(path).forbidden for path in MODULES}
    confined = {"robo_rl/rewards/programs/worker.py": ["exec"]}  # reward programs, in a process that can do nothing else
    assert {path: calls for path, calls in found.items() if calls} == confined


LONGEST_TEST_NAME = 60


def test_names_of_tests_are_short():
    sources = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    names = {name for source in sources for name in re.findall(r"^\s*(?:async )?def (test_\w+)", source, re.MULTILINE)}
    assert len(names) > 1000 and sorted(name for name in names if len(name) > LONGEST_TEST_NAME) == []


# packaging


BROUGHT = {"h11": "uvicorn", "jinja2": "torch", "typing_extensions": "torch"}
"""Packages that a declared one always brings."""


def test_what_others_bring_is_required_by_them():
    for name, owner in BROUGHT.items():
        needs = [need for need in metadata.requires(owner) or [] if "extra ==" not in need]
        assert any(re.match(r"[\w-]+", need)[0].lower().replace("-", "_") == name for need in needs)


def test_the_kernel_needs_few_packages():
    assert len(PYPROJECT["project"]["dependencies"]) <= 18


def test_every_import_is_declared():
    optional = PYPROJECT["project"]["optional-dependencies"].values()
    declared = [*PYPROJECT["project"]["dependencies"], *(need for needs in optional for need in needs)]
    for other in (each["project"] for each in OTHERS):
        declared += [
            *other["dependencies"],
            *(need for needs in other.get("optional-dependencies", {}).values() for need in needs),
        ]
    names = {re.match(r"[\w-]+", need)[0].lower().replace("-", "_") for need in declared}
    names |= {
        "cv2",
        "yaml",
        "dm_env",
        "google",
        "markupsafe",
        "sbx",
        "PIL",
        "rtde_control",
        "rtde_receive",
        "dashboard_client",
        "hid",
        "hidraw",
        "pygame",
        "safety_gymnasium",
    }  # other names of declared ones, or brought by them; the last one's requirements exclude today's Gymnasium
    names |= {package.name for package in PACKAGES} | sys.stdlib_module_names | set(BROUGHT)
    used = {}
    for path in MODULES:
        for node in facts_of(path).imports:
            if isinstance(node, ast.Import):
                used |= {alias.name.split(".")[0]: relative(path) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                used[node.module.split(".")[0]] = relative(path)
    assert {name: path for name, path in used.items() if name not in names} == {}


def test_every_dependency_is_pinned_in_the_default_lock():
    lock = (ROOT / "locks" / "default.txt").read_text()
    extras = PYPROJECT["project"]["optional-dependencies"]
    installed = [need for name in re.findall(r"[\w-]+", extras["all"][0])[2:] for need in extras[name]]
    declared = [*PYPROJECT["project"]["dependencies"], *installed, *PYPROJECT["build-system"]["requires"]]
    names = {re.match(r"[\w-]+", need)[0].lower() for need in declared} - {"torch"}
    assert {name for name in names if not re.search(rf"^{name}==", lock, re.MULTILINE)} == set()


@pytest.mark.parametrize("lock", ["default", "latest", "dev", "bench"])
def test_a_lock_pins_each_package_once_and_exactly(lock):
    lines = [line.partition("#")[0].strip() for line in (ROOT / "locks" / f"{lock}.txt").read_text().splitlines()]
    names = [re.fullmatch(r"([a-z0-9-]+)==[\w.]+( ; .+)?", line)[1] for line in lines if line]
    assert len(names) == len(set(names)) > 0


ENTRY_POINTS = [
    EntryPoint(name, value, group)
    for group, points in {**PYPROJECT["project"]["entry-points"], "console_scripts": PYPROJECT["project"]["scripts"]}.items()
    for name, value in points.items()
]


@pytest.mark.parametrize("point", ENTRY_POINTS, ids=lambda point: f"{point.group}:{point.name}")
def test_every_entry_point_names_something(point):
    assert point.load() is not None


@pytest.mark.slow
def test_a_wheel_contains_the_packages_with_their_data(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.check_output(["git", "ls-files", *map(str, SHIPPED)], cwd=ROOT, text=True).splitlines()
    expected = {re.sub(r"^(sims|policies|real_robot|datasets|scripts)/", "", path) for path in tracked}
    assert expected - held == set()
    assert {name.split("/")[0] for name in held if ".dist-info" not in name} == {package.name for package in SHIPPED}


@pytest.mark.slow
@pytest.mark.parametrize("folder", [PAPERS, STANDIN], ids=relative)
def test_a_wheel_beside_the_kernel_contains_its_package(folder, tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info" not in name}
    tracked = subprocess.check_output(["git", "ls-files", "."], cwd=folder, text=True).splitlines()
    packed = {f"{folder.name}/{path}" for path in tracked if "tests/" not in path and path != "pyproject.toml"}
    assert held == packed


# pages


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_between_pages_resolve(page):
    links = re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=relative)
def test_commands_on_the_pages_exist(page):
    from robo_cli.main import COMMANDS

    text = page.read_text()
    assert set(re.findall(r"^robo-rl ([\w-]+)", text, re.MULTILINE)) <= set(COMMANDS)
    scripts = set(re.findall(r"(?:\./)?(scripts/\w+|\.ci/run)\b(?!/)", text)) - {
        f"scripts/{package}" for package in ("robo_app", "robo_cli", "robo_bench")
    }
    assert [name for name in scripts if not (ROOT / name).exists()] == []


def test_scripts_can_be_run():
    programs = [ROOT / "scripts" / name for name in sorted(SCRIPTS)] + [ROOT / ".ci" / "run"]
    assert [relative(path) for path in programs if not path.stat().st_mode & 0o100] == []
    for path in programs:
        subprocess.run(["bash", "-n", str(path)], check=True)


def test_setup_installs_what_rendering_asks_for():
    from robo_rl.system.opengl import INSTALL

    assert INSTALL.removeprefix("apt-get install -y ") in (ROOT / "scripts" / "setup").read_text()


# loops

STEPPED = re.compile(r"\b(?:stepping|environments?|_environments?|stage|copied)\.step\b")
MAY_STEP = {
    "robo_rl/rollout/episode.py": "Rollout",
    "robo_rl/environments/vector.py": "one of several environments, for the loops of many",
    "robo_rl/environments/stepping.py": "the call itself, with its errors",
    "robo_rl/environments/restored_states.py": "replays a recorded beginning before an episode",
    "robo_rl/rollout/vector.py": "VectorRollout, for many environments at once",
    "robo_rl/evaluation/video.py": "replays an evaluated episode for a film",
    "scripts/robo_app/watching/filming.py": "replays a training episode for a film",
    "policies/robo_policies/encoders/fitting.py": "pictures for an encoder, of no episode that is kept",
    "policies/robo_papers/safety_filters/shield.py": "looks ahead in a copy",
    "policies/robo_papers/safety_gymnasium/tasks.py": "a simulator, by the source's own step",
}
"""Modules of the product that step an environment, each with its reason; simulators step their own physics."""


def test_no_other_module_steps_an_environment():
    apart = {"conformance", "robo_bench", "carla_standin", "study.py"}
    product = [path for path in MODULES if not apart & {*path.parts}]
    simulators = ROOT / "sims" / "robo_sims"
    found = {relative(path) for path in product if STEPPED.search(path.read_text()) and simulators not in path.parents}
    assert found == set(MAY_STEP)
