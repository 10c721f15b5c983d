"""The listing of our own components says what they say; `python -m robo_app.listings.listing` writes it again."""

from __future__ import annotations

import json

import pytest

from robo_app.listings import listing
from robo_rl.environments.make import environment_names


def test_listing_is_up_to_date() -> None:
    assert json.loads(listing.FILE.read_text()) == listing.written(), "python -m robo_app.listings.listing"


def test_environments_are_those_of_the_families() -> None:
    assert listing.environments() == environment_names()


def test_another_simulator_version_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_version", lambda package: "another")
    monkeypatch.setattr(listing, "tasks_of", lambda family: [f"{family}/New-v0"])
    assert "metaworld/New-v0" in listing.environments()
