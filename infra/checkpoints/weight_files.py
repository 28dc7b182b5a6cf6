"""Which files hold a Hugging Face checkpoint's weights, and whether they are all there and whole."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from infra.checkpoints.findings import list_names
from infra.checkpoints.safetensors_header import Tensor, read_header
from infra.files.regular_files import advise
from infra.tokenizer.files import JsonObject, read_json_object
from schemas.errors import CheckpointError

INDEX_NAME: Final = "model.safetensors.index.json"
SINGLE_NAME: Final = "model.safetensors"
PICKLE_INDEX_NAME: Final = "pytorch_model.bin.index.json"
PICKLE_SINGLE_NAME: Final = "pytorch_model.bin"

_SHARD: Final = re.compile(r"model-\d+-of-\d+\.safetensors")


@dataclass(slots=True)
class WeightFiles:
    """What was found of the weights."""

    files: tuple[Path, ...] = ()
    """The shards that exist, in index order."""
    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Every tensor of every readable shard, by name."""
    problems: list[str] = field(default_factory=list[str])
    """Each reason why the weights cannot be loaded."""
    needs_conversion: bool = False
    """Whether the weights are there in a form that is not evaluated."""


def list_weight_files(folder: Path, *, allow_pickle_weights: bool) -> WeightFiles:
    """Find the weights and check them by name, size and header.

    Raises:
        OSError: the folder cannot be listed.
    """
    names = sorted(entry.name for entry in folder.iterdir())
    found = WeightFiles()
    if INDEX_NAME in names:
        _check_indexed(folder, names, found)
    elif SINGLE_NAME in names:
        _check_shard(folder / SINGLE_NAME, found)
        _refuse_strays([name for name in names if _SHARD.fullmatch(name)], SINGLE_NAME, found)
    elif any(name.endswith(".safetensors") for name in names):
        _refuse_unindexed([name for name in names if name.endswith(".safetensors")], found)
    else:
        _check_pickles(folder, names, found, allowed=allow_pickle_weights)
    return found


def _check_indexed(folder: Path, names: Sequence[str], found: WeightFiles) -> None:
    weight_map = _read_weight_map(folder / INDEX_NAME, found)
    placed: dict[str, list[str]] = {}
    for tensor, shard in weight_map.items():
        placed.setdefault(shard, []).append(tensor)
    headers = {shard: _check_shard(folder / shard, found) for shard in placed}
    for shard, header in headers.items():
        absent = [tensor for tensor in placed[shard] if tensor not in header] if header else []
        if absent:
            found.problems.append(
                f"{shard}: does not hold {list_names(absent)}, which {INDEX_NAME} places there: index and shards are "
                f"of two saves; save the checkpoint again"
            )
    strays = [name for name in names if _SHARD.fullmatch(name) and name not in headers]
    if weight_map and SINGLE_NAME in names and SINGLE_NAME not in headers:
        strays.append(SINGLE_NAME)  # transformers would load this one, vLLM the indexed ones
    if weight_map:
        _refuse_strays(strays, INDEX_NAME, found)


def _read_weight_map(path: Path, found: WeightFiles) -> dict[str, str]:
    """Return tensor name -> shard name, empty when the index cannot be used."""
    try:
        value = read_json_object(path).get("weight_map")
    except CheckpointError as exc:
        found.problems.append(str(exc))
        return {}
    entries = cast("JsonObject", value) if isinstance(value, dict) else {}
    weight_map = {name: shard for name, shard in entries.items() if isinstance(shard, str) and _is_plain(shard)}
    if not weight_map or len(weight_map) != len(entries):
        bad = [name for name in entries if name not in weight_map]
        what = f"places {list_names(bad)} outside the folder or nowhere" if bad else "has no weight_map"
        found.problems.append(f"{path.name}: {what}; save the checkpoint again")
    return weight_map


def _is_plain(name: str) -> bool:
    """A shard is named inside the folder: an index must not lead a reader elsewhere."""
    return bool(name) and Path(name).name == name


def _check_shard(path: Path, found: WeightFiles) -> dict[str, Tensor]:
    """Add a shard and its tensors, or the reason why it cannot be used."""
    try:
        header = read_header(path)
    except FileNotFoundError:
        found.problems.append(
            f"{path.name}: listed in {INDEX_NAME} but not there; copy it from where the checkpoint was saved, or wait "
            f"until it is written"
            if path.name != SINGLE_NAME
            else f"{path.name}: not there any more; it was removed while it was read: name a checkpoint that is kept"
        )
        return {}
    except OSError as exc:
        found.problems.append(f"{path.name}: cannot be read ({exc.strerror}); {advise(exc)}")
        return {}
    except CheckpointError as exc:
        found.files = (*found.files, path)
        found.problems.append(str(exc))
        return {}
    found.files = (*found.files, path)
    found.tensors.update(header)
    if not header:
        found.problems.append(f"{path.name}: holds no tensor; save the checkpoint again")
    return header


def _refuse_strays(strays: Sequence[str], authority: str, found: WeightFiles) -> None:
    if strays:
        found.problems.append(
            f"{list_names(strays)}: not part of {authority}: left over from another save, and engines differ in which "
            f"they load; remove what does not belong, or save the checkpoint again"
        )


def _refuse_unindexed(shards: Sequence[str], found: WeightFiles) -> None:
    if any(_SHARD.fullmatch(name) for name in shards):
        found.problems.append(
            f"{INDEX_NAME}: not there, so the {len(shards)} shards ({list_names(shards)}) cannot be known to be all; "
            f"it is written last: wait until the save has finished, or copy it too"
        )
    else:
        found.problems.append(
            f"{list_names(shards)}: neither {SINGLE_NAME} nor {INDEX_NAME} is there; rename a single file to "
            f"{SINGLE_NAME}, or save the checkpoint with save_pretrained"
        )


def _check_pickles(folder: Path, names: Sequence[str], found: WeightFiles, *, allowed: bool) -> None:
    pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth")) and "model" in name]
    if not pickles:
        found.problems.append(
            f"{folder}: no weights ({SINGLE_NAME}, or shards with {INDEX_NAME}); wait until they are written, or name "
            f"the folder that holds them"
        )
        return
    if not allowed:
        found.needs_conversion = True
        found.problems.append(
            f"{list_names(pickles)}: pickle weights only, and loading a pickle can run code; convert them to "
            f"safetensors (transformers: from_pretrained this folder where you trust it, then save_pretrained to a new "
            f"one) and evaluate the new folder, or set engine.allow_pickle_weights=true"
        )
        return
    shards = [PICKLE_SINGLE_NAME] if PICKLE_SINGLE_NAME in names else []
    if PICKLE_INDEX_NAME in names:
        shards = list(dict.fromkeys(_read_weight_map(folder / PICKLE_INDEX_NAME, found).values()))
    if not shards and not found.problems:
        found.problems.append(f"{list_names(pickles)}: neither {PICKLE_SINGLE_NAME} nor {PICKLE_INDEX_NAME} is there")
    for shard in shards:
        path = folder / shard
        if not path.is_file() or path.stat().st_size == 0:
            found.problems.append(f"{shard}: listed in {PICKLE_INDEX_NAME} but absent or empty; copy it again")
            continue
        found.files = (*found.files, path)
