"""The bench of PPO works; for a moment, so that its figures mean nothing."""

from dataclasses import replace
from functools import partial

import pytest

from robo_bench import ppo
from robo_bench.measurement import Case, Effort

MOMENT = Effort(seconds=0.001, repeats=1, threads=1)


@pytest.mark.slow
def test_ppo_is_measured_beside_stable_baselines():
    row = Case("loops", "steps/s", partial(ppo.whole_loops, peers={"DummyVecEnv": (2,)})).measure(MOMENT)
    assert row.peers.keys() == {"sb3 DummyVecEnv 2"}
    assert row.ours > 0 and row.ratio == pytest.approx(row.ours / row.peers["sb3 DummyVecEnv 2"])


def test_ppo_processor_time_leaves_out_subprocesses():
    peers = ppo.whole_loops(replace(MOMENT, processor_time=True), None).keys()
    assert peers == {"ours", "sb3 DummyVecEnv 1", "sb3 DummyVecEnv 4", "sb3 DummyVecEnv 16"}


def test_the_cost_of_a_picture_is_measured():
    config = replace(ppo.PICTURES, num_envs=1, steps_per_env=4, batch_size=4, epochs=1)
    row = Case("pictures", "us", partial(ppo.with_pictures, config=config)).measure(MOMENT)
    assert row.ours > row.limit > 0, "a picture costs more than none"
