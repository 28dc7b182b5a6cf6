"""The outbox: in order, bounded, silent towards its sender, and said once."""

import threading

import pytest

from infra.trainer.outbox import Outbox

PATIENCE_S = 120.0


def test_items_are_delivered_in_order() -> None:
    delivered: list[int] = []
    outbox = Outbox[int]("number", delivered.append)
    for number in range(50):
        outbox.put(number)
    assert outbox.drain(PATIENCE_S)
    assert delivered == list(range(50))


def test_a_destination_that_hangs_fills_the_queue_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    hanging, release = threading.Event(), threading.Event()
    delivered: list[int] = []

    def deliver(number: int) -> None:
        hanging.set()
        release.wait(PATIENCE_S)
        delivered.append(number)

    outbox = Outbox[int]("number", deliver)
    outbox.put(0)
    assert hanging.wait(PATIENCE_S)
    for number in range(1, 500):
        outbox.put(number)
    assert not outbox.drain(0.05)
    release.set()
    assert outbox.drain(PATIENCE_S)
    assert delivered == list(range(65))
    assert [record.message.split(";")[0] for record in caplog.records] == [
        "milepost: number dropped: 64 wait already, the destination hangs"
    ]


def test_a_process_that_may_start_no_thread_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    delivered: list[int] = []
    outbox = Outbox[int]("number", delivered.append)
    before = threading.stack_size(1 << 40)  # more than there is: no thread can be started
    try:
        outbox.put(1)
        outbox.put(2)
    finally:
        threading.stack_size(before)
    assert [record.message.split(";")[0] for record in caplog.records] == [
        "milepost: number dropped: can't start new thread"
    ]
    outbox.put(3)
    assert outbox.drain(PATIENCE_S)
    assert delivered == [3]


def test_each_cause_is_said_once_and_delivery_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    delivered: list[int] = []

    def deliver(number: int) -> None:
        if number % 3 == 0:
            raise ConnectionRefusedError(111, "Connection refused")
        if number % 3 == 1:
            raise ValueError(f"{number} is odd")
        delivered.append(number)

    outbox = Outbox[int]("number", deliver)
    for number in range(30):
        outbox.put(number)
    assert outbox.drain(PATIENCE_S)
    assert delivered == list(range(2, 30, 3))
    assert len(caplog.records) == 2
