"""NeMo-RL: `{checkpoint_dir}/step_{N}`, renamed from `tmp_step_{N}` once everything is written.

nemo_rl/utils/checkpoint.py: training_info.json and config.yaml first, then `policy/weights/`, `policy/optimizer/` and
`policy/tokenizer/`, then the rename (an older `step_{N}` is `old_step_{N}` for a moment). The weights are a distributed
checkpoint, converted by examples/converters/convert_dcp_to_hf.py, or Megatron's `iter_0000000/`, converted by
convert_megatron_to_hf.py; with `save_consolidated` safetensors are below `policy/weights/` as well.
"""

import re
import shlex
from pathlib import Path
from typing import Final

from infra.checkpoints.layouts.base import Contents, Layout, holds_weights, names_in

_MODELS: Final = ("policy/weights/model/consolidated", "policy/weights/consolidated")


def _locate(folder: Path, names: frozenset[str]) -> Contents | None:
    if "training_info.json" not in names:
        return None
    for place in _MODELS:
        if holds_weights(names_in(folder / place)):
            return Contents(folder / place)
    weights = folder / "policy" / "weights"
    config, target = shlex.quote(str(folder / "config.yaml")), shlex.quote(f"{folder}-hf")
    if "iter_0000000" in names_in(weights):
        dump = shlex.quote(str(weights / "iter_0000000"))
        script = "uv run --extra mcore python examples/converters/convert_megatron_to_hf.py"
        return Contents(None, f"{script} --config {config} --megatron-ckpt-path {dump} --hf-ckpt-path {target}")
    script = "uv run python examples/converters/convert_dcp_to_hf.py"
    dump = shlex.quote(str(weights))
    return Contents(None, f"{script} --config {config} --dcp-ckpt-path {dump} --hf-ckpt-path {target}")


def _is_marked(_folder: Path, _model: Path) -> bool:
    return True  # the name itself is the mark


NEMO_RL: Final = Layout(name="nemo_rl", folder_name=re.compile(r"step_\d+"), locate=_locate, is_marked=_is_marked)
