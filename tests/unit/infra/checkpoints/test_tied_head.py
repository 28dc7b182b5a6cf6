"""A stored head counts as tied only while it holds the embedding's numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.safetensors_header import read_header
from infra.checkpoints.tied_head import check_tied_head
from tests.support.checkpoint_folders import make_checkpoint, safetensors

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TIED = {"tie_word_embeddings": True}


def _shards(folder: Path, head: str, shape: tuple[int, ...], fill: int) -> list[Path]:
    files = [folder / f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    files[0].write_bytes(safetensors({"model.norm.weight": (7,), EMBEDDING: (96, 16)}, fill=1))
    files[1].write_bytes(safetensors({"a": (3,), head: shape}, fill=fill))
    return files


@pytest.mark.parametrize(
    ("config", "head", "shape", "fill", "is_named"),
    [
        (TIED, HEAD, (96, 16), 1, False),
        (TIED, HEAD, (96, 16), 2, True),
        ({"text_config": TIED}, "language_model.lm_head.weight", (96, 16), 2, True),
        ({"tie_word_embeddings": False, "text_config": TIED}, HEAD, (96, 16), 2, False),
        ({"tie_word_embeddings": False}, HEAD, (96, 16), 2, False),
        ({}, HEAD, (96, 16), 2, False),
        (TIED, HEAD, (90, 16), 2, False),
        (TIED, "talker.lm_head.weight", (96, 16), 2, False),
    ],
)
def test_a_stored_head_is_the_embedding_that_it_is_tied_to(
    tmp_path: Path, config: dict[str, Any], head: str, shape: tuple[int, ...], fill: int, is_named: bool
) -> None:
    files = _shards(tmp_path, head, shape, fill)
    tensors = {name: tensor for file in files for name, tensor in read_header(file).items()}
    problem = check_tied_head(config, tensors, files)
    assert (problem is not None) is is_named
    assert problem is None or problem.startswith(f"{head}: differs from {EMBEDDING}")


def test_a_small_head_is_compared_whole_and_a_torn_shard_is_named(tmp_path: Path) -> None:
    files = _shards(tmp_path, HEAD, (96, 16), 1)
    with files[1].open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x02")
    tensors = {name: tensor for file in files for name, tensor in read_header(file).items()}
    assert check_tied_head(TIED, tensors, files) is not None
    files[1].write_bytes(b"x")
    assert "too short for a safetensors file" in str(check_tied_head(TIED, tensors, files))


def test_such_a_checkpoint_is_incomplete(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    (folder / "model.safetensors").unlink()
    shards = _shards(folder, HEAD, (96, 16), 2)
    weight_map = {name: shard.name for shard in shards for name in read_header(shard)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert inspect_checkpoint(folder).status == "complete"
    config = json.loads((folder / "config.json").read_text()) | TIED
    (folder / "config.json").write_text(json.dumps(config))
    (problem,) = inspect_checkpoint(folder).problems
    assert problem.startswith(f"{HEAD}: differs")
