"""torchtitan: `{dump_folder}/{checkpoint.folder}/step-{N}`, a distributed checkpoint of PyTorch.

Its `.metadata` is written aside and renamed last (torch/distributed/checkpoint/filesystem.py, finish). With
`checkpoint.last_save_in_hf` the last save is safetensors, from `sharded/` below it, without config.json and tokenizer:
copy them from the model that training started from. scripts/checkpoint_conversion/convert_to_hf.py converts the others.
"""

import re
import shlex
from pathlib import Path
from typing import Final

from infra.checkpoints.layouts.base import Contents, Layout, is_model, never_marked


def _locate(folder: Path, names: frozenset[str]) -> Contents | None:
    if is_model(names) or "sharded" in names:
        return Contents(folder)
    is_dump = any(name.endswith(".distcp") for name in names)
    if not is_dump:
        return None
    own, target = shlex.quote(str(folder)), shlex.quote(f"{folder}-hf")
    command = (
        f"python scripts/checkpoint_conversion/convert_to_hf.py {own} {target} --hf_assets_path ASSETS "
        f"--model_name NAME --model_flavor FLAVOR"
    )
    return Contents(None, command if ".metadata" in names else None)


TORCHTITAN: Final = Layout(
    name="torchtitan", folder_name=re.compile(r"step-\d+"), locate=_locate, is_marked=never_marked
)
