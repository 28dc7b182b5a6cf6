"""Headers of safetensors files: what a shard claims to hold, checked against its size. Reads no weight.

Format: 8 bytes little-endian length n, n bytes of JSON {name: {dtype, shape, data_offsets: [begin, end]}}, then the
data; offsets count from the end of the header and cover the data without gap or overlap
(https://huggingface.co/docs/safetensors, "Format").
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

from infra.files.regular_files import open_regular
from schemas.errors import CheckpointError

MAX_HEADER_BYTES: Final = 100_000_000
"""The format's own limit: a longer header is a number read from garbage."""

_LENGTH_BYTES: Final = 8

_DTYPE_BITS: Final = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


class Tensor(NamedTuple):
    """One tensor of a shard."""

    dtype: str
    shape: tuple[int, ...]
    num_elements: int
    num_bytes: int
    offset: int = 0
    """Byte of the file where its data begin."""


def read_header(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a shard by name, after checking that the file holds exactly their bytes.

    Raises:
        CheckpointError: the file is cut, padded or not safetensors, with the numbers.
        OSError: it cannot be opened or read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise CheckpointError(f"{path.name}: the file is empty (0 bytes); copy or save it again")
        if size < _LENGTH_BYTES:
            raise CheckpointError(f"{path.name}: {size} bytes, too short for a safetensors file; copy or save it again")
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > MAX_HEADER_BYTES:
            raise CheckpointError(
                f"{path.name}: not a safetensors file: its first 8 bytes claim a header of {length:,} bytes, at most "
                f"{MAX_HEADER_BYTES:,} are allowed; save the weights as safetensors again"
            )
        if _LENGTH_BYTES + length > size:
            raise CheckpointError(
                f"{path.name}: truncated: its header ends at byte {_LENGTH_BYTES + length:,}, the file at {size:,}; "
                f"copy it again or wait until it is written"
            )
        text = file.read(length)
    tensors, num_bytes = _parse_header(path.name, text)
    expected = _LENGTH_BYTES + length + num_bytes
    if size != expected:
        state = "truncated" if size < expected else "longer than its header says"
        raise CheckpointError(
            f"{path.name}: {state}: {size:,} bytes, its header needs {expected:,}; copy it again or wait until it is "
            f"written"
        )
    return tensors


def _parse_header(name: str, text: bytes) -> tuple[dict[str, Tensor], int]:
    """Return the tensors and the bytes of data that they cover."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise CheckpointError(f"{name}: its header is not JSON ({exc}); save the weights as safetensors again") from exc
    if not isinstance(value, dict):
        raise CheckpointError(f"{name}: its header is not a JSON object; save the weights as safetensors again")
    tensors: dict[str, Tensor] = {}
    spans: list[tuple[int, int, str]] = []
    for key, entry in cast("Mapping[str, object]", value).items():
        if key == "__metadata__":
            continue
        tensor, begin = _parse_tensor(name, key, entry)
        tensors[key] = tensor._replace(offset=_LENGTH_BYTES + len(text) + begin)
        spans.append((begin, begin + tensor.num_bytes, key))
    position = 0
    for begin, end, key in sorted(spans):
        if begin != position:
            raise CheckpointError(
                f"{name}: tensor {key!r} starts at byte {begin:,} of the data where {position:,} is next: the header "
                f"is damaged; save the weights again"
            )
        position = end
    return tensors, position


def _parse_tensor(name: str, key: str, entry: object) -> tuple[Tensor, int]:
    """Return a tensor and where its data begin."""
    fields = cast("Mapping[str, object]", entry) if isinstance(entry, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), _naturals(fields.get("shape")), _naturals(fields.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2 or offsets[1] < offsets[0]:
        raise CheckpointError(
            f"{name}: tensor {key!r} lacks a valid dtype, shape or data_offsets: the header is damaged; save the "
            f"weights again"
        )
    num_elements = math.prod(shape)
    num_bytes = offsets[1] - offsets[0]
    bits = _DTYPE_BITS.get(dtype)
    # A dtype newer than this table is left to the engine: its offsets are still checked.
    if bits is not None and num_elements * bits != num_bytes * 8:
        raise CheckpointError(
            f"{name}: tensor {key!r} of shape {list(shape)} and dtype {dtype} needs {num_elements * bits // 8:,} "
            f"bytes, its data_offsets span {num_bytes:,}: the header is damaged; save the weights again"
        )
    return Tensor(dtype, shape, num_elements, num_bytes), offsets[0]


def _naturals(value: object) -> tuple[int, ...] | None:
    """Return a list of integers from 0 as a tuple, None for anything else."""
    if not isinstance(value, list):
        return None
    numbers = [entry for entry in cast("list[object]", value) if type(entry) is int and entry >= 0]
    return tuple(numbers) if len(numbers) == len(cast("list[object]", value)) else None
