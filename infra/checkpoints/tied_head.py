"""A head that is stored although config.json says that the head is the embedding: the two must be equal.

Where they differ, transformers loads the stored head and vLLM uses the embedding: two models, and one of them was never
trained. Trainers that clone weights before saving store an equal copy, which is fine.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from infra.checkpoints.safetensors_header import Tensor, read_header
from infra.checkpoints.structure import find_embedding, read_text_config
from infra.files.regular_files import open_regular
from infra.tokenizer.files import JsonObject
from schemas.errors import CheckpointError

_HEADS: Final = ("lm_head.weight", "language_model.lm_head.weight")
_NUM_BLOCKS: Final = 64
"""Blocks compared, spread evenly: a head that was trained by itself differs in all of them."""
_BLOCK_BYTES: Final = 4096


def check_tied_head(config: JsonObject, tensors: Mapping[str, Tensor], files: Sequence[Path]) -> str | None:
    """Return why the stored head is not the embedding that it is tied to; None where it is, or where none is stored.

    Raises:
        OSError: a shard cannot be read any more.
    """
    said = {settings.get("tie_word_embeddings") for settings in (config, read_text_config(config))}
    embedding = find_embedding(tensors)
    head = next((name for name in _HEADS if name in tensors), None)
    if said - {None} != {True} or embedding is None or head is None:
        return None
    stored, source = tensors[head], tensors[embedding.name]
    if (stored.dtype, stored.shape) != (source.dtype, source.shape):
        return None  # left to the engine
    try:
        if _sample(head, files) == _sample(embedding.name, files):
            return None
    except CheckpointError as exc:  # a shard that was rewritten meanwhile
        return str(exc)
    return (
        f"{head}: differs from {embedding.name}, and config.json says tie_word_embeddings true: transformers would use "
        f"the one and vLLM the other; set it to false where the head was trained by itself, else save without the head"
    )


def _sample(name: str, files: Sequence[Path]) -> list[bytes]:
    """Return blocks of a tensor's data."""
    for path in files:
        tensor = read_header(path).get(name)
        if tensor is None:
            continue
        with open_regular(path) as file:
            blocks: list[bytes] = []
            for start in range(0, tensor.num_bytes, max(_BLOCK_BYTES, tensor.num_bytes // _NUM_BLOCKS)):
                file.seek(tensor.offset + start)
                blocks.append(file.read(min(_BLOCK_BYTES, tensor.num_bytes - start)))
            return blocks
    return []
