"""A framed log keeps every whole record, whatever a kill, a power cut or a bad disk did to the bytes behind it."""

import resource
import signal
import struct
import subprocess
import sys
import zlib

import pytest

from robo_rl.system.framed_log import FramedLog, read_record, read_records

RECORDS = [b"first", b"", b"x" * 1000]


@pytest.fixture
def path(tmp_path):
    log = FramedLog(tmp_path / "some.log")
    for record in RECORDS:
        log.append(record)
    log.close()
    return tmp_path / "some.log"


def test_framed_log_format_is_the_documented_one(path):
    frames = [struct.pack("<II", len(record), zlib.crc32(record)) + record for record in RECORDS]
    assert path.read_bytes() == b"".join(frames)


@pytest.mark.parametrize("cut", [1, 7, 999, 1000, 1007, 1008])
def test_framed_log_cuts_a_torn_tail_and_goes_on(path, cut):
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert [*read_records(path)] == RECORDS[:2]
    log = FramedLog(path)
    log.append(b"after")
    log.close()
    assert [*read_records(path)] == [*RECORDS[:2], b"after"]


@pytest.mark.parametrize("place", [0, 3, 4, 8])
def test_framed_log_stops_at_a_changed_record(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 0x80
    path.write_bytes(content)
    assert [*read_records(path)] == []


def test_read_record_waits_for_the_rest_of_a_record(path):
    content = path.read_bytes()
    path.write_bytes(content[:50])
    with path.open("rb") as file:
        assert read_record(file) == b"first" and read_record(file) == b""
        assert read_record(file) is None and read_record(file) is None
        with path.open("ab") as more:
            more.write(content[50:])
        assert read_record(file) == RECORDS[2]


def test_framed_log_outlives_a_kill_of_its_writer(tmp_path):
    script = "import os, signal; from pathlib import Path; from robo_rl.system.framed_log import FramedLog\n"
    script += f"log = FramedLog(Path({str(tmp_path / 'log')!r})); log.append(b'kept'); os.kill(os.getpid(), signal.SIGKILL)"
    died = subprocess.run([sys.executable, "-c", script], check=False)
    assert died.returncode == -signal.SIGKILL and [*read_records(tmp_path / "log")] == [b"kept"]


def test_framed_log_on_a_full_disk_keeps_what_it_had(path):
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    log = FramedLog(path)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, usual[1]))
        with pytest.raises(OSError, match="too large"):
            log.append(b"y" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        signal.signal(signal.SIGXFSZ, before)
        log.close()
    assert [*read_records(path)] == RECORDS
