"""What a replay memory takes is what it states, also while it is saved; mapped from files it takes next to nothing."""

from robo_bench.replay_memory import MEGABYTE, PIXELS, _fill_mapped, _fill_ours, _growth
from robo_rl.replay import ReplayBuffer

ROWS = 4_000
STATED = ReplayBuffer.bytes_at_capacity(PIXELS, ROWS) / MEGABYTE


def test_the_peak_in_ram_is_the_stated_size_also_while_saving():
    assert 0.7 * STATED < _growth(_fill_ours, ROWS, "VmHWM") < 1.3 * STATED


def test_a_mapped_memory_takes_no_ram_of_its_own():
    assert _growth(_fill_mapped, ROWS, "RssAnon") < 0.3 * STATED
