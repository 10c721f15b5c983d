"""What a replay memory takes is what it states, also while it is saved; mapped from files it takes next to nothing."""

import pytest

from robo_bench.replay_memory import growth, stated_size

ROWS = 4_000
STATED = stated_size(ROWS)


@pytest.mark.slow
def test_the_peak_in_ram_is_the_stated_size_also_while_saving():
    assert 0.7 * STATED < growth("fill_memory", ROWS, "VmHWM") < 1.3 * STATED


@pytest.mark.slow
def test_a_mapped_memory_takes_no_ram_of_its_own():
    assert growth("fill_mapped", ROWS, "RssAnon") < 0.3 * STATED
