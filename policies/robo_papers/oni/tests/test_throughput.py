"""Throughput with an annotator is measured beside bounds, and every case runs."""

import sys

import pytest

from robo_bench.measurement import Effort
from robo_papers.oni import throughput


@pytest.mark.slow
def test_every_case_has_a_row(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(sys, "argv", ["throughput", "--seconds", "0.05", "--repeats", "1", "--threads", "1"])
    throughput.main()
    printed = capsys.readouterr().out
    assert all(case.name in printed for case in throughput.cases(Effort()))
