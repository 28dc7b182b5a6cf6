"""A batch size that ran out of memory is remembered for runs of its kind, grows back, and is forgotten."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.fileroot.batch_sizes import BatchSizeMemory, RunKind

KIND = RunKind(
    architecture="LlamaForCausalLM",
    num_parameters=135_000_000,
    engine="vllm",
    device="cpu",
    gpus_per_replica=0,
    memory="16G",
    memory_ratio=0.7,
    dtype="bfloat16",
    token_budget=1024,
)


def memory(root: Path, *, configured: int = 64, kind: RunKind = KIND) -> BatchSizeMemory:
    return BatchSizeMemory(root, kind, configured=configured, grow_after=3)


def run(root: Path, *, configured: int = 64, fits: int) -> list[int]:
    """Go through one run on a machine on which `fits` sequences fit; return the sizes that it tried."""
    remembered = memory(root, configured=configured)
    sizes = [remembered.starting_size()]
    while sizes[-1] > fits:
        sizes.append(sizes[-1] // 2)
        remembered.shrank(sizes[-1])
    if len(sizes) == 1:
        remembered.completed(sizes[0])
    return sizes


def test_the_next_run_starts_where_the_last_one_arrived_and_tries_twice_of_it_after_clean_ones(tmp_path: Path) -> None:
    assert [run(tmp_path, fits=20) for _ in range(9)] == [
        [64, 32, 16],
        *[[16]] * 3,
        [32, 16],
        *[[16]] * 3,
        [32, 16],
    ]


def test_it_grows_to_the_configured_size_and_is_forgotten_there(tmp_path: Path) -> None:
    assert run(tmp_path, fits=20) == [64, 32, 16]
    assert [run(tmp_path, fits=1000) for _ in range(6)] == [[16]] * 3 + [[32]] * 3
    assert run(tmp_path, fits=1000) == [64]
    assert list((tmp_path / "batch_sizes").iterdir()) == []


def test_a_clean_run_at_the_configured_size_leaves_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, fits=64) == [64]
    assert not (tmp_path / "batch_sizes").exists()


def test_a_smaller_configured_size_is_taken_and_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path, fits=20)
    assert [run(tmp_path, configured=8, fits=20) for _ in range(5)] == [[8]] * 5
    assert [run(tmp_path, fits=20) for _ in range(4)] == [[16]] * 3 + [[32, 16]]


def test_of_replicas_that_shrink_at_different_times_the_smallest_counts(tmp_path: Path) -> None:
    remembered = memory(tmp_path)
    for size in (32, 16, 32):
        remembered.shrank(size)
    assert memory(tmp_path).starting_size() == 16


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": "Qwen2ForCausalLM"},
        {"num_parameters": None},
        {"engine": "transformers"},
        {"device": "cuda NVIDIA H100"},
        {"gpus_per_replica": 2},
        {"memory": "32G"},
        {"memory_ratio": None},
        {"dtype": "float32"},
        {"token_budget": 2048},
    ],
)
def test_runs_of_another_kind_know_nothing_of_it(tmp_path: Path, change: dict[str, object]) -> None:
    run(tmp_path, fits=1)
    assert memory(tmp_path).starting_size() == 1
    assert memory(tmp_path, kind=KIND.model_copy(update=change)).starting_size() == 64


@pytest.mark.parametrize("text", ["", "{", '{"batch_size": 4}', "\x00" * 9, "[0]"])
def test_a_file_that_holds_no_size_is_named_and_done_without(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, fits=20)
    (path,) = (tmp_path / "batch_sizes").iterdir()
    path.write_text(path.read_text().replace('"batch_size": 16', '"batch_size": 0') if text == "[0]" else text)
    assert memory(tmp_path).starting_size() == 64
    assert f"{path} holds no batch size" in caplog.text
    memory(tmp_path).completed(64)
    path.unlink()
    assert run(tmp_path, fits=20) == [64, 32, 16]


def test_a_place_that_cannot_be_used_is_named_and_fails_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "batch_sizes").write_text("")
    assert run(tmp_path, fits=20) == [64, 32, 16]
    memory(tmp_path).completed(64)
    assert len(caplog.records) == 4
    assert all("batch_sizes" in each.message for each in caplog.records)


@pytest.mark.skipif(os.getuid() == 0, reason="root may remove any file")
def test_a_folder_that_refuses_the_removal_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    memory(tmp_path).shrank(32)
    (tmp_path / "batch_sizes").chmod(0o500)
    memory(tmp_path).completed(64)
    assert "cannot be removed" in caplog.text


def test_runs_that_write_at_once_leave_one_of_their_sizes(tmp_path: Path) -> None:
    sizes = [1 << power for power in range(6)]

    def shrink(size: int) -> None:
        remembered = memory(tmp_path)
        for _ in range(10):
            remembered.shrank(size)
            assert remembered.starting_size() in sizes
            remembered.completed(size)

    with ThreadPoolExecutor(len(sizes)) as pool:
        list(pool.map(shrink, sizes))
    assert memory(tmp_path).starting_size() in {*sizes, *(2 * size for size in sizes)}
    assert len(list((tmp_path / "batch_sizes").iterdir())) == 1
