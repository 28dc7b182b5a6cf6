"""A worker whose controller is gone ends, however it hears of that."""

import threading
import time
from pathlib import Path

from tasks.inference.vital_signs import call_when_silent


def test_a_beat_that_stands_still_ends_the_worker_and_one_that_changes_does_not(tmp_path: Path) -> None:
    path, heard, reasons = tmp_path / "0001.beat", threading.Event(), list[str]()

    def stop(reason: str) -> None:
        reasons.append(reason)
        heard.set()

    path.write_text("1")
    call_when_silent(path, stop, silence_s=1.0, interval_s=0.05)
    for beat in range(2, 12):
        time.sleep(0.2)
        path.write_text(str(beat))
    assert not heard.is_set()
    assert heard.wait(30)
    assert "has not changed for 1 s" in reasons[0]


def test_a_beat_that_cannot_be_read_stands_still(tmp_path: Path) -> None:
    heard = threading.Event()
    call_when_silent(tmp_path / "absent", lambda _: heard.set(), silence_s=0.2, interval_s=0.05)
    assert heard.wait(30)
