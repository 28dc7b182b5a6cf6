"""verl: `{default_local_dir}/global_step_{N}/actor/…`, and `latest_checkpointed_iteration.txt` beside the folders.

Every save writes `actor/`, then (critic and) the data loader's state, and last the tracker file with N
(verl/trainer/ppo/v1/trainer_base.py, _save_checkpoint; with async_save the Megatron manager writes it when all writes
have ended). The FSDP manager writes `model_world_size_{W}_rank_{R}.pt` and always `huggingface/` with configuration
and tokenizer; weights are in it only where `checkpoint.save_contents` has `hf_model`. The Megatron manager has
`model/huggingface/` and `model/dist_ckpt/`, in older versions `huggingface/` and `dist_ckpt/`. `python -m
verl.model_merger merge` converts.
"""

import re
import shlex
from pathlib import Path
from typing import Final

from infra.checkpoints.adapter_config import CONFIG_NAME as ADAPTER_CONFIG
from infra.checkpoints.layouts.base import (
    Contents,
    Layout,
    holds_weights,
    is_newer,
    names_in,
)
from infra.files.regular_files import read_regular

_FOLDER_NAME: Final = re.compile(r"global_step_(\d+)")
_MODELS: Final = (
    "actor/huggingface",
    "actor/model/huggingface",
    "actor/model/huggingface/adapter",
    "actor/lora_adapter",
)
_FSDP_SHARD: Final = re.compile(r"model_world_size_\d+_rank_\d+\.pt")
_MEGATRON_DUMPS: Final = ("dist_ckpt", "model/dist_ckpt")
_TRACKER: Final = "latest_checkpointed_iteration.txt"


def _locate(folder: Path, names: frozenset[str]) -> Contents | None:
    if "actor" not in names:
        return None
    for place in _MODELS:
        found = names_in(folder / place)
        if holds_weights(found) or ADAPTER_CONFIG in found:
            return Contents(folder / place)
    actor = folder / "actor"
    if any(_FSDP_SHARD.fullmatch(name) for name in names_in(actor)):
        return Contents(None, _merge(folder, "fsdp"))
    if any(names_in(actor / place) for place in _MEGATRON_DUMPS):
        return Contents(None, _merge(folder, "megatron"))
    return Contents(None)


def _merge(folder: Path, backend: str) -> str:
    local, target = shlex.quote(str(folder / "actor")), shlex.quote(f"{folder}-merged")
    return f"python -m verl.model_merger merge --backend {backend} --local_dir {local} --target_dir {target}"


def _is_marked(folder: Path, model: Path) -> bool:
    tracker, match = folder.parent / _TRACKER, _FOLDER_NAME.fullmatch(folder.name)
    try:
        recorded = int(read_regular(tracker))
    except (OSError, ValueError):
        return False
    return match is not None and recorded >= int(match[1]) and is_newer(tracker, model)


VERL: Final = Layout(name="verl", folder_name=_FOLDER_NAME, locate=_locate, is_marked=_is_marked)
