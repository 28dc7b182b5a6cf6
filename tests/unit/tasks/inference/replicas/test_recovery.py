"""What follows the end of a worker: less memory, the same again, an item set aside, or an error that ends the run."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import (
    EngineError,
    EngineOutOfMemoryError,
    MilepostError,
    SetupError,
    StoreError,
    TransientError,
    WorkerError,
    WorkerLostError,
)
from schemas.identity import SampleKey
from tasks.inference.planning.replica_spec import NextLaunch
from tasks.inference.replicas.recovery import Recovery, WorkerEnd

OUT_OF_MEMORY = EngineOutOfMemoryError("the engine ran out of memory: lower gconfig.max_new_tokens")
SIGKILL = WorkerLostError("killed by SIGKILL without a result; see LOG:\n  last words", may_be_memory=True)
SIGSEGV = WorkerLostError("killed by SIGSEGV")
HANG = WorkerLostError("hung")
NODE_FAIL = TransientError("NODE_FAIL")


def keys(*numbers: int) -> tuple[SampleKey, ...]:
    return tuple(SampleKey(f"i{number}", 0) for number in numbers)


def recovery(batch_size: int = 16, *, max_restarts: int = 5, shrinks: bool = True) -> Recovery:
    return Recovery(batch_size=batch_size, max_restarts=max_restarts, shrinks=shrinks)


def end(error: MilepostError, *, num_finished: int = 0, in_flight: Sequence[SampleKey] = ()) -> WorkerEnd:
    return WorkerEnd(error=error, num_finished=num_finished, in_flight=in_flight)


@given(st.integers(1, 65_536))
def test_want_of_memory_halves_down_to_one_and_then_is_the_engines_error(configured: int) -> None:
    replica, sizes = recovery(configured, max_restarts=0), [configured]
    while sizes[-1] > 1:
        launch = replica.after(end(OUT_OF_MEMORY, in_flight=keys(*range(sizes[-1] % 7))))
        assert launch.shrank
        sizes.append(launch.batch_size)
    assert sizes == [configured >> power for power in range(configured.bit_length())]
    with pytest.raises(EngineOutOfMemoryError) as caught:
        replica.after(end(OUT_OF_MEMORY))
    assert caught.value is OUT_OF_MEMORY


def test_without_leave_to_shrink_want_of_memory_is_an_error() -> None:
    with pytest.raises(EngineOutOfMemoryError):
        recovery(shrinks=False).after(end(OUT_OF_MEMORY))
    launch = recovery(shrinks=False).after(end(SIGKILL, in_flight=keys(1, 2, 3)))
    assert (launch.batch_size, launch.shrank) == (16, False)


@pytest.mark.parametrize("in_flight", [(), keys(1), keys(1, 2)])
def test_sigkill_may_be_the_kernels_for_want_of_memory(in_flight: tuple[SampleKey, ...]) -> None:
    launch = recovery().after(end(SIGKILL, in_flight=in_flight))
    assert (launch.batch_size, launch.shrank) == (8, True)
    assert launch.reason == "killed by SIGKILL without a result; see LOG:"


def test_no_item_is_blamed_for_sigkill_while_it_may_be_the_batch() -> None:
    replica = recovery()
    for size in (8, 4):  # alone by chance, then by order with half the memory
        launch = replica.after(end(SIGKILL, in_flight=keys(1)))
        assert (launch.batch_size, launch.alone, launch.set_aside) == (size, keys(1), ())
    launch = replica.after(end(SIGKILL, in_flight=keys(1)))
    assert (launch.batch_size, launch.shrank) == (4, False)
    (item,) = launch.set_aside
    assert item.reason.endswith("workers ended: killed by SIGKILL without a result; see LOG:")


def test_sigkill_in_a_tail_of_another_sample_each_time_blames_none() -> None:
    replica = recovery()
    for number, size in enumerate((8, 4, 2, 1)):
        launch = replica.after(end(SIGKILL, in_flight=keys(number)))
        assert (launch.batch_size, launch.set_aside) == (size, ())


def test_a_replica_is_not_started_without_end_however_much_headway_it_makes() -> None:
    replica = recovery()
    for _ in range(49):
        replica.after(end(NODE_FAIL, num_finished=1))
        replica.again("nobody was left to take its work")
    replica.after(end(NODE_FAIL, num_finished=1))
    with pytest.raises(WorkerError, match=r"NODE_FAIL\n.*start 100 of this replica; the same command goes on"):
        replica.after(end(NODE_FAIL, num_finished=1))


@pytest.mark.parametrize("error", [SIGSEGV, HANG, NODE_FAIL])
def test_other_losses_start_the_same_again(error: MilepostError) -> None:
    launch = recovery().after(end(error, in_flight=keys(1, 2, 3)))
    assert launch == NextLaunch(batch_size=16, reason=str(error))


@pytest.mark.parametrize(
    "error",
    [
        EngineError("RuntimeError: a bug"),
        WorkerError("cancelled by its user"),
        WorkerError("not ready in time"),
        StoreError("the disk is full"),
        SetupError("no such program"),
    ],
)
def test_a_bug_and_a_users_wish_are_never_retried(error: MilepostError) -> None:
    with pytest.raises(type(error)) as caught:
        recovery().after(end(error, num_finished=3, in_flight=keys(1, 2)))
    assert caught.value is error


@pytest.mark.parametrize("error", [SIGSEGV, HANG, NODE_FAIL])
@given(headway=st.lists(st.integers(0, 2), max_size=30), max_restarts=st.integers(0, 6))
def test_only_starts_in_vain_are_counted(error: MilepostError, headway: list[int], max_restarts: int) -> None:
    replica, in_vain = recovery(max_restarts=max_restarts), 0
    for number, num_finished in enumerate(headway):
        in_vain = 0 if num_finished else in_vain + 1
        worker = end(error, num_finished=num_finished, in_flight=keys(2 * number, 2 * number + 1))
        if in_vain > max_restarts:
            with pytest.raises(
                WorkerError, match=rf"{error}\n.*{in_vain} starts.*rollout.max_restarts = {max_restarts}"
            ):
                replica.after(worker)
            return
        replica.after(worker)


@dataclass
class Engine:
    """A replica's work, made in batches by workers that some items kill or hang."""

    work: list[SampleKey]
    poisoned: frozenset[str]
    error: WorkerLostError
    replica: Recovery
    num_launches: int = 0
    batch_sizes: list[int] = field(default_factory=list[int])
    set_aside: set[str] = field(default_factory=set[str])

    def run(self) -> None:
        """Launch workers until all is made or set aside."""
        launch = self.replica.again("")
        while True:
            self.num_launches += 1
            self.batch_sizes.append(launch.batch_size)
            self.set_aside = {item.item_id for item in launch.set_aside}
            self.work = [key for key in self.work if key.item_id not in self.set_aside]
            alone = [key for key in launch.alone if key in self.work]
            queue, num_finished = [*alone, *(key for key in self.work if key not in alone)], 0
            while queue:
                batch = queue[:1] if num_finished < len(alone) else queue[: 2 * launch.batch_size]
                if any(key.item_id in self.poisoned for key in batch):
                    break
                queue = queue[1:]
                self.work.remove(batch[0])
                num_finished += 1
            else:
                return
            launch = self.replica.after(end(self.error, num_finished=num_finished, in_flight=batch))


@pytest.mark.parametrize("error", [SIGSEGV, HANG, SIGKILL])
@given(
    num_items=st.integers(1, 30),
    places=st.sets(st.integers(0, 29), max_size=3),
    batch_size=st.integers(1, 8),
    n_samples=st.integers(1, 2),
)
def test_items_that_kill_their_workers_are_found_and_set_aside_and_no_other(
    error: WorkerLostError, num_items: int, places: set[int], batch_size: int, n_samples: int
) -> None:
    poisoned = frozenset(f"i{place}" for place in places if place < num_items)
    work = [SampleKey(f"i{number}", repeat) for number in range(num_items) for repeat in range(n_samples)]
    engine = Engine(work, poisoned, error, recovery(batch_size, max_restarts=3))
    engine.run()
    assert engine.work == []
    assert engine.set_aside == poisoned
    assert engine.num_launches <= 1 + 4 * len(poisoned) + batch_size.bit_length()
    assert engine.batch_sizes == sorted(engine.batch_sizes, reverse=True)
    if error is not SIGKILL:
        assert set(engine.batch_sizes) == {batch_size}


def test_an_item_is_not_set_aside_for_one_death() -> None:
    replica = recovery()
    assert replica.after(end(SIGSEGV, in_flight=keys(1))).alone == keys(1)
    assert replica.after(end(SIGSEGV, num_finished=1, in_flight=keys(2))).set_aside == ()
    launch = replica.after(end(HANG, num_finished=1, in_flight=keys(2)))
    (item,) = launch.set_aside
    assert item.item_id == "i2"
    assert item.reason == "set aside: it was alone in its engine when 2 workers ended: hung"
    assert "i2" in launch.reason
    assert replica.after(end(NODE_FAIL)).set_aside == (item,), "it stays so"


@pytest.mark.parametrize("error", [SIGSEGV, HANG, SIGKILL])
def test_after_a_death_before_the_first_sample_no_canary_is_asked(error: MilepostError) -> None:
    replica = recovery()
    assert replica.after(end(SIGSEGV, in_flight=keys(1, 2))).asks_canaries
    assert not replica.after(end(error)).asks_canaries
    assert not replica.after(end(NODE_FAIL)).asks_canaries, "it stays so"


def test_a_node_that_fails_while_the_engine_loads_is_no_canarys_fault() -> None:
    assert recovery().after(end(NODE_FAIL)).asks_canaries


def test_suspects_stay_suspects_through_a_failing_node_and_a_death_at_start() -> None:
    replica = recovery()
    replica.after(end(SIGSEGV, in_flight=keys(1, 2, 3, 4)))
    assert replica.after(end(SIGSEGV, in_flight=keys(3, 4, 5))).alone == keys(3, 4)
    for error in (NODE_FAIL, SIGSEGV, OUT_OF_MEMORY):
        assert replica.after(end(error)).alone == keys(3, 4)
    assert replica.after(end(SIGSEGV, in_flight=keys(4))).alone == keys(4, 3)


def test_a_replica_on_which_every_item_dies_has_another_fault() -> None:
    replica = recovery()
    for number in range(17):
        replica.after(end(SIGSEGV, in_flight=keys(number // 2)))
    with pytest.raises(WorkerError, match=r"8 items were set aside before.*installation"):
        replica.after(end(SIGSEGV, in_flight=keys(8)))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([OUT_OF_MEMORY, SIGKILL, SIGSEGV, HANG, NODE_FAIL]),
            st.integers(0, 3),
            st.lists(st.integers(0, 5), max_size=4, unique=True),
        ),
        max_size=40,
    )
)
def test_the_batch_never_grows_nor_falls_below_one_whatever_happens(
    story: list[tuple[MilepostError, int, list[int]]],
) -> None:
    replica, before = recovery(), 16
    launch = replica.again("")
    for error, num_finished, numbers in story:
        refused = {item.item_id for item in launch.set_aside}
        in_flight = [key for key in keys(*numbers) if key.item_id not in refused]
        try:
            launch = replica.after(end(error, num_finished=num_finished, in_flight=in_flight))
        except MilepostError:
            return
        assert 1 <= launch.batch_size <= before
        assert launch.shrank == (launch.batch_size < before)
        assert not {key.item_id for key in launch.alone} & {item.item_id for item in launch.set_aside}
        before = launch.batch_size
