"""A worker whose controller is gone ends, however it hears of that."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks.inference.exchange.worker_files import read_heartbeat
from tasks.inference.worker.heartbeat import HeartbeatThread, WorkerProgress, call_when_silent


def test_a_beat_that_stands_still_ends_the_worker_and_one_that_changes_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, heard, reasons, now_s = tmp_path / "0001.beat", threading.Event(), list[str](), 0.0

    def stop(reason: str) -> None:
        reasons.append(reason)
        heard.set()

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        if now_s < 50:
            path.write_text(str(now_s))

    path.write_text("0")
    clock = SimpleNamespace(monotonic=lambda: now_s, sleep=sleep)
    monkeypatch.setattr("tasks.inference.worker.heartbeat.time", clock)
    call_when_silent(path, stop, silence_s=10.0, interval_s=1.0)
    assert heard.wait(30)
    assert now_s >= 58
    assert "has not changed for 10 s" in reasons[0]


def test_a_beat_that_cannot_be_read_stands_still(tmp_path: Path) -> None:
    heard = threading.Event()
    call_when_silent(tmp_path / "absent", lambda _: heard.set(), silence_s=0.2, interval_s=0.05)
    assert heard.wait(30)


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_worker_gives_up_once_its_folder_is_out_of_reach_for_long(tmp_path: Path, comes_back: bool) -> None:
    folder, reasons, heard = tmp_path / "replica", list[str](), threading.Event()

    def give_up(reason: str) -> None:
        reasons.append(reason)
        heard.set()

    patience_s = 30.0 if comes_back else 0.5
    beats = HeartbeatThread(
        folder, WorkerProgress(), interval_s=0.05, sync=lambda: None, give_up=give_up, patience_s=patience_s
    )
    beats.start()
    if comes_back:
        time.sleep(0.2)
        folder.mkdir()
        while read_heartbeat(folder) is None:
            time.sleep(0.02)
        assert not heard.is_set()
    else:
        assert heard.wait(30)
        assert f"{folder} could not be written for 0.5 s" in reasons[0]
    beats.stop()


def test_want_of_memory_silences_no_heartbeat_for_good(tmp_path: Path) -> None:
    reasons, heard, shortage = list[str](), threading.Event(), threading.Event()

    def sync() -> None:
        if shortage.is_set():
            raise MemoryError

    def give_up(reason: str) -> None:
        reasons.append(reason)
        heard.set()

    shortage.set()
    beats = HeartbeatThread(tmp_path, WorkerProgress(), interval_s=0.05, sync=sync, give_up=give_up, patience_s=0.5)
    beats.start()
    assert heard.wait(30)
    assert reasons[0].endswith("could not be written for 0.5 s: MemoryError")
    shortage.clear()
    while read_heartbeat(tmp_path) is None:
        time.sleep(0.02)
    beats.stop()
