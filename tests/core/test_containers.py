"""Dockerfile and devcontainer are not built here; what they say agrees with scripts/setup, the lock and the metadata."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP = (ROOT / "scripts/setup").read_text()
SYSTEM_PACKAGES = {name for line in re.findall(r"^    apt_install (lib.*?) &&", SETUP, re.MULTILINE) for name in line.split()}


@pytest.mark.parametrize("file", ["Dockerfile", ".devcontainer/devcontainer.json"])
def test_a_container_has_the_libraries_that_setup_installs(file):
    content = (ROOT / file).read_text()
    assert {"libegl1", "libseccomp2"} <= SYSTEM_PACKAGES <= {*re.findall(r"[\w-]+", content)}
    assert "./scripts/setup" in content


def test_the_devcontainer_is_json():
    found = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert found["image"].endswith(":3.11-bookworm")


def test_the_image_copies_no_environment_and_no_runs():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv*", "runs"} <= {*ignored} and not {"locks", "policies", "sims"} & {*ignored}


def test_the_metadata_name_the_licence_and_who_it_is_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert all((ROOT / name).is_file() for name in project["license-files"])
    assert {"authors", "maintainers", "keywords", "readme", "requires-python"} <= project.keys()


def test_the_installation_page_names_every_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs/install.md").read_text()
    assert not [name for name in extras if name not in ("bench", "dev") and f"`{name}`" not in page]
