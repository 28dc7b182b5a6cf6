"""A run has one owner, wherever its file system is seen from; a dead one is found out without clocks or file locks."""

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.machine.processes import identify_process
from infra.ownership.run_ownership import BEAT_INTERVAL_S, RunOwnership, is_abandoned, is_owned
from schemas.errors import StoreError

ROOT = Path(__file__).parents[2]
OWNER = """
import sys, time
from pathlib import Path
from infra.ownership.run_ownership import RunOwnership
print(RunOwnership.acquire(Path(sys.argv[1])) is not None, flush=True)
time.sleep(60)
"""


@contextmanager
def another_process(run: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that owns the run."""
    command = [sys.executable, "-c", OWNER, str(run)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"True\n"
        try:
            yield owner
        finally:
            owner.kill()


def move_to_another_machine(run: Path) -> None:
    """Make the first owner one of whom this machine cannot tell whether it lives."""
    me = identify_process(os.getpid())
    assert me is not None
    foreign = me.model_copy(update={"host": "elsewhere", "boot_id": "another"})
    (run / "owners" / "0001.json").write_text(foreign.model_dump_json())


def test_a_run_has_one_owner_until_it_lets_go(tmp_path: Path) -> None:
    first = RunOwnership.acquire(tmp_path)
    assert first is not None
    assert RunOwnership.acquire(tmp_path) is None
    first.release()
    second = RunOwnership.acquire(tmp_path)
    assert second is not None
    second.release()


def test_who_is_told_to_stop_waits_for_no_sign_of_life(tmp_path: Path) -> None:
    owner = RunOwnership.acquire(tmp_path)
    assert owner is not None
    owner.release()
    (tmp_path / "owners" / "0001.over").unlink()
    move_to_another_machine(tmp_path)
    stopping = threading.Event()
    threading.Timer(0.3, stopping.set).start()
    began = time.monotonic()
    assert RunOwnership.acquire(tmp_path, stopping=stopping) is None
    assert time.monotonic() - began < 30
    assert is_owned(tmp_path, stopping=stopping), "not known to be dead"
    assert not is_owned(tmp_path, silence_s=0.1)
    assert sorted(path.name for path in (tmp_path / "owners").iterdir()) == ["0001.beat", "0001.json"]


def test_who_cannot_say_that_it_let_go_knows_it_all_the_same(tmp_path: Path) -> None:
    owner = RunOwnership.acquire(tmp_path)
    assert owner is not None
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        owner.release()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not (tmp_path / "owners" / "0001.over").exists()
    assert is_abandoned(tmp_path)
    assert not is_owned(tmp_path)
    again = RunOwnership.acquire(tmp_path)
    assert again is not None
    again.release()


def test_who_cannot_begin_to_beat_owns_nothing(tmp_path: Path) -> None:
    (tmp_path / "owners" / "0001.beat").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be written"):
        RunOwnership.acquire(tmp_path)
    again = RunOwnership.acquire(tmp_path)
    assert again is not None
    again.release()


def test_of_many_at_once_one_wins(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def contend(_: int) -> RunOwnership | None:
        start.wait()
        return RunOwnership.acquire(tmp_path)

    with ThreadPoolExecutor(8) as pool:
        won = [ownership for ownership in pool.map(contend, range(8)) if ownership is not None]
    assert len(won) == 1
    won[0].release()


def test_a_killed_owner_on_this_machine_is_known_at_once(tmp_path: Path) -> None:
    with another_process(tmp_path) as owner:
        assert RunOwnership.acquire(tmp_path) is None
        owner.kill()
        owner.wait()
        began = time.monotonic()
        ownership = RunOwnership.acquire(tmp_path)
    assert ownership is not None
    assert time.monotonic() - began < 30
    ownership.release()


def test_a_number_that_another_process_has_by_now_owns_nothing(tmp_path: Path) -> None:
    (tmp_path / "owners").mkdir()
    me = identify_process(os.getpid())
    assert me is not None
    before = me.model_copy(update={"start_ticks": me.start_ticks - 1})
    (tmp_path / "owners" / "0001.json").write_text(before.model_dump_json())
    ownership = RunOwnership.acquire(tmp_path)
    assert ownership is not None
    ownership.release()


def test_a_silent_owner_elsewhere_is_taken_over_after_the_bound(tmp_path: Path) -> None:
    with another_process(tmp_path) as owner:
        owner.kill()
        owner.wait()
    move_to_another_machine(tmp_path)
    began = time.monotonic()
    ownership = RunOwnership.acquire(tmp_path, silence_s=1.0)
    assert ownership is not None
    assert 1.0 <= time.monotonic() - began < 30
    ownership.release()


def test_an_owner_elsewhere_that_beats_keeps_the_run(tmp_path: Path) -> None:
    owner = RunOwnership.acquire(tmp_path)
    assert owner is not None
    move_to_another_machine(tmp_path)
    began = time.monotonic()
    assert RunOwnership.acquire(tmp_path, silence_s=60.0) is None
    assert time.monotonic() - began < 30
    owner.release()


def test_an_owner_that_was_taken_over_hears_of_it(tmp_path: Path) -> None:
    owner = RunOwnership.acquire(tmp_path)
    assert owner is not None
    heard = threading.Event()
    owner.call_on_loss(heard.set)
    (tmp_path / "owners" / "0002.json").write_text("{}")
    assert heard.wait(60)
    assert owner.is_lost
    owner.release()


def test_the_beat_changes_while_the_owner_lives(tmp_path: Path) -> None:
    owner = RunOwnership.acquire(tmp_path)
    assert owner is not None
    first = owner.beat_path.read_bytes()
    deadline = time.monotonic() + 60
    while owner.beat_path.read_bytes() in (first, b"") and time.monotonic() < deadline:
        time.sleep(0.05)
    owner.release()
    last = owner.beat_path.read_bytes()
    assert last not in (first, b"")
    time.sleep(1.5 * BEAT_INTERVAL_S)
    assert owner.beat_path.read_bytes() == last


def test_an_owner_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "owners").mkdir()
    (tmp_path / "owners" / "0001.json").write_text("{}")
    with pytest.raises(StoreError, match="remove"):
        RunOwnership.acquire(tmp_path)


def test_a_folder_that_is_gone_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        RunOwnership.acquire(tmp_path / "absent")
