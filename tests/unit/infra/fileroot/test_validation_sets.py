"""Versions of a validation set: whole or absent, never changed, one successor at a time, and a way back."""

import json
import multiprocessing
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.datasets.digests import dataset_version, item_digest
from infra.fileroot.validation_sets import ITEMS, MANIFEST, Published, VersionStore, dataset_folder
from schemas.dataset import ChatMessage, EvalItem
from schemas.errors import StoreError
from schemas.refresh import VersionDraft, VersionOrigin
from schemas.training_position import TrainingPosition
from tests.support.staging_folders import wait_for_owner

NOW = datetime(2026, 1, 2, tzinfo=UTC)
FORK = multiprocessing.get_context("fork")


def make_items(count: int, *, start: int = 0) -> tuple[EvalItem, ...]:
    return tuple(
        EvalItem(
            item_id=f"i{number}",
            messages=(ChatMessage(role="user", content=f"What is {number} + 1?\u2028"),),
            gold=str(number + 1),
            subsets={"level": str(number % 3), "": "|"},
            solution=None if number % 2 else "so",
            row=json.dumps({"n": number}),
        )
        for number in range(start, start + count)
    )


def make_draft(items: tuple[EvalItem, ...], parent: str | None) -> VersionDraft:
    return VersionDraft(
        dataset="mini",
        content_digest=dataset_version(items),
        parent=parent,
        origin=VersionOrigin(reason="a test", created_at=NOW, position=TrainingPosition()),
        prompt_suffix=None,
        system_prompt=None,
        draw=None,
        item_digests={item.item_id: item_digest(item) for item in items},
    )


def publish(store: VersionStore, items: tuple[EvalItem, ...], parent: str | None) -> Published:
    return store.publish(make_draft(items, parent), items)


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    """Two versions, of which the second is current."""
    store = VersionStore(dataset_folder(tmp_path, "mini"))
    first = store.publish_first(make_draft(make_items(4), None), make_items(4))
    publish(store, make_items(4, start=2), first.version)
    return store


def test_a_version_is_read_as_it_was_written(store: VersionStore) -> None:
    items = make_items(4, start=2)
    current = store.current()
    assert current == f"v2-{dataset_version(items)[:12]}"
    stored = store.read(current)
    assert stored.items == items
    assert stored.manifest.number == 2
    assert stored.manifest.parent == store.versions()[0]
    assert list(stored.manifest.item_digests) == [item.item_id for item in items]


def test_there_is_nothing_before_the_first(tmp_path: Path) -> None:
    store = VersionStore(dataset_folder(tmp_path, "mini"))
    assert (store.current(), store.versions()) == (None, [])
    assert list(tmp_path.iterdir()) == []


def test_rolling_back_is_one_call_and_deletes_nothing(store: VersionStore) -> None:
    first, second = store.versions()
    assert store.rollback(first).version == first
    assert store.current() == first
    store.rollback("v2")
    assert store.current() == second
    assert store.versions() == [first, second]


def test_a_successor_after_a_rollback_has_a_number_of_its_own(store: VersionStore) -> None:
    first, second = store.versions()
    store.rollback(first)
    third = publish(store, make_items(4, start=8), first)
    assert third.manifest.number == 3
    store.rollback(first)
    again = publish(store, make_items(4, start=2), first)
    assert again.manifest.version == second
    assert len(store.versions()) == 3


def test_an_unknown_version_is_an_error_that_lists_the_known(store: VersionStore) -> None:
    first, second = store.versions()
    for call in (store.rollback, store.read, store.read_manifest):
        with pytest.raises(StoreError, match=f"version 'v7' is not in .*it has {first}, {second}"):
            call("v7")
    with pytest.raises(StoreError, match="no versions yet"):
        VersionStore(dataset_folder(store.root.parent.parent, "other")).rollback("v1")


def test_an_edited_manifest_is_named_with_the_way_out(store: VersionStore) -> None:
    first, second = store.versions()
    path = store.root / "versions" / second / MANIFEST
    path.write_text(path.read_text().replace('"a test"', '"another test"'))
    with pytest.raises(StoreError, match=f"{MANIFEST} was changed .*digest is .*expected .*--rollback {first}"):
        store.read(second)
    with pytest.raises(StoreError, match="was changed"):
        store.rollback(second)
    store.rollback(first)
    assert store.read(first).items == make_items(4)
    path.write_text("{}")
    with pytest.raises(StoreError, match="cannot be read"):
        store.read(second)


def test_edited_items_are_named_with_the_way_out(store: VersionStore) -> None:
    first, second = store.versions()
    folders = [store.root / "versions" / name for name in (first, second)]
    (folders[1] / ITEMS).write_bytes((folders[0] / ITEMS).read_bytes())
    with pytest.raises(StoreError, match=f"{ITEMS} was changed .*--rollback {first}"):
        store.read(second)
    (folders[1] / ITEMS).write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=f"{ITEMS} cannot be read.*--rollback {first}"):
        store.read(second)


@pytest.mark.parametrize("content", ['{"version": "v9-000000000000"}', "{", '{"version": "../../x"}'])
def test_a_pointer_that_leads_nowhere_is_an_error(store: VersionStore, content: str) -> None:
    (store.root / "current.json").write_text(content)
    with pytest.raises(StoreError, match=r"current\.json .*--rollback"):
        store.current()
    store.rollback("v1")
    assert store.current() == store.versions()[0]


@pytest.mark.parametrize("name", ["reasoning_gym:a+b", "..", ".", "a/b", "-", "é" * 300, "x" * 200, "a b"])
def test_any_name_has_a_folder_of_its_own(tmp_path: Path, name: str) -> None:
    folder = dataset_folder(tmp_path, name)
    assert folder.parent == tmp_path / "validation_sets"
    folder.mkdir(parents=True)
    assert dataset_folder(tmp_path, name + "!") != folder
    assert dataset_folder(tmp_path, "gsm8k").name == "gsm8k"


def test_a_successor_of_something_else_is_refused(store: VersionStore) -> None:
    with pytest.raises(StoreError, match="became current while a successor of v9 was drawn"):
        publish(store, make_items(2), "v9")


def _publish_at(store: VersionStore, start: int, moment: float, results: "multiprocessing.Queue[Published]") -> None:
    first = store.publish_first(make_draft(make_items(4), None), make_items(4))
    time.sleep(max(0.0, moment - time.time()))
    results.put(publish(store, make_items(500, start=start), first.version))


@pytest.mark.parametrize("starts", [(4, 4), (4, 5)])
def test_two_publishers_at_once_make_one_version(tmp_path: Path, starts: tuple[int, int]) -> None:
    """Whether both drew the same or not: a parent has one successor."""
    store = VersionStore(dataset_folder(tmp_path, "mini"))
    results: multiprocessing.Queue[Published] = FORK.Queue()
    moment = time.time() + 0.3
    publishers = [FORK.Process(target=_publish_at, args=(store, start, moment, results)) for start in starts]
    for publisher in publishers:
        publisher.start()
    published = [results.get(timeout=60) for _ in publishers]
    for publisher in publishers:
        publisher.join()
    assert len({one.manifest.version for one in published}) == 1
    assert sorted(one.is_new for one in published) == [False, True]
    assert len(store.versions()) == 2
    assert store.current() == published[0].manifest.version
    assert len(store.read(published[0].manifest.version).items) == 500


def _publish_large(store: VersionStore) -> None:
    publish(store, make_items(6_000, start=10), store.current())


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1])
def test_a_publisher_killed_at_any_moment_leaves_the_old_version_or_the_new_one(
    store: VersionStore, delay_s: float
) -> None:
    before = store.current()
    publisher = FORK.Process(target=_publish_large, args=(store,))
    publisher.start()
    wait_for_owner(store.root / ".staging", publisher)
    time.sleep(delay_s)
    publisher.kill()
    publisher.join()
    current = store.current()
    assert current is not None
    assert current == before or len(store.read(current).items) == 6_000
    store.rollback(before or "")
    _publish_large(store)
    assert len(store.read(store.current() or "").items) == 6_000
    assert len(store.versions()) == 3
    assert list((store.root / ".staging").iterdir()) == []
