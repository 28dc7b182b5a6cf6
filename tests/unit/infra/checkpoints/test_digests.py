"""The weight digest is of the bytes alone; the cache saves time and never changes it."""

import json
import os
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.checkpoints.digests import BLOCK_BYTES, digest_weights
from schemas.errors import CheckpointError

OLD_S = 1_600_000_000


def _shard(path: Path, content: bytes, *, changed_s: int = OLD_S) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (changed_s, changed_s))
    return path


def test_a_digest_keeps_its_value_across_releases(tmp_path: Path) -> None:
    assert digest_weights([_shard(tmp_path / "a", b"weights")]) == "7e4fd9009a163ed26769d65dd03313ab"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5, unique=True), st.randoms(use_true_random=False))
def test_names_folders_and_order_do_not_matter_and_contents_do(contents: list[bytes], random: Random) -> None:
    with tempfile.TemporaryDirectory() as name:
        here = [_shard(Path(name, "here", f"model-{i}"), content) for i, content in enumerate(contents)]
        there = [_shard(Path(name, "there", f"x{9 - i}"), content) for i, content in enumerate(contents)]
        random.shuffle(there)
        digest = digest_weights(here)
        assert digest == digest_weights(there)
        _shard(here[0], contents[0] + b"\x00")
        assert digest != digest_weights(here)


def test_the_border_between_shards_matters(tmp_path: Path) -> None:
    first = [_shard(tmp_path / "a", b"ab"), _shard(tmp_path / "b", b"c")]
    second = [_shard(tmp_path / "c", b"a"), _shard(tmp_path / "d", b"bc")]
    assert digest_weights(first) != digest_weights(second)


def test_each_block_of_a_large_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2 * BLOCK_BYTES + 5)
    digests = {digest_weights([path])}
    for offset in (0, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 4):
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(b"x")
        digests.add(digest_weights([path]))
    assert len(digests) == 5


def test_a_second_look_reads_nothing(tmp_path: Path) -> None:
    path = _shard(tmp_path / "a", b"1234")
    cache = tmp_path / "cache" / "weights.json"
    digest = digest_weights([path], cache_file=cache)
    status = path.stat()
    with path.open("r+b") as file:
        file.write(b"5678")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest_weights([path], cache_file=cache) == digest, "taken from the cache: only mtime could tell"
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert digest_weights([path], cache_file=cache) != digest


def test_a_file_written_just_now_is_not_trusted_to_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1234")
    digest_weights([path], cache_file=tmp_path / "cache.json")
    assert not (tmp_path / "cache.json").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"k": 3}', b"null"])
def test_a_damaged_cache_is_made_anew(tmp_path: Path, content: bytes) -> None:
    path, cache = _shard(tmp_path / "a", b"1234"), tmp_path / "cache.json"
    cache.write_bytes(content)
    digest = digest_weights([path], cache_file=cache)
    assert digest == digest_weights([path])
    assert len(json.loads(cache.read_text())) == 1
    key = next(iter(json.loads(cache.read_text())))
    cache.write_text(json.dumps({key: "not a digest"}))
    assert digest_weights([path], cache_file=cache) == digest


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = _shard(tmp_path / "a", b"1234")
    assert digest_weights([path], cache_file=tmp_path / "file" / "cache.json") == digest_weights([path])


def test_a_shard_that_is_gone_is_a_checkpoint_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="name a checkpoint that is kept"):
        digest_weights([tmp_path / "absent"])
