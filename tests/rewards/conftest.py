"""Answers of models are kept for a test alone."""

import pytest


@pytest.fixture(autouse=True)
def own_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBO_RL_CACHE", str(tmp_path / "cache"))
