"""transformers' Trainer, and with it TRL, Axolotl, LLaMA-Factory and others: `{output_dir}/checkpoint-{N}`.

Trainer._save_checkpoint writes model, tokenizer, optimizer and scheduler, then trainer_state.json, and last removes
older folders by `save_total_limit`. What lies in the folder itself is in the layout of save_pretrained, but for two:
FSDP with SHARDED_STATE_DICT writes a distributed checkpoint into `pytorch_model_fsdp_0/`, which accelerate merges
(`accelerate merge-weights`); DeepSpeed's ZeRO-3 without gathering writes `global_step{N}/` only, with
`zero_to_fp32.py` beside it.
"""

import re
import shlex
from pathlib import Path
from typing import Final

from infra.checkpoints.layouts.base import Contents, Layout, is_model, is_newer, names_in
from infra.tokenizer.files import ends_as_json

_FSDP: Final = "pytorch_model_fsdp_0"
_MERGER: Final = "zero_to_fp32.py"


def _locate(folder: Path, names: frozenset[str]) -> Contents | None:
    if not names & {"trainer_state.json", "training_args.bin", _FSDP, _MERGER} and not is_model(names):
        return None
    own = shlex.quote(str(folder))
    merged = shlex.quote(f"{folder}-merged")
    if _FSDP in names:
        is_whole = ".metadata" in names_in(folder / _FSDP)
        command = f"accelerate merge-weights {shlex.quote(str(folder / _FSDP))} {merged}"
        return Contents(None, command if is_whole else None)
    if _MERGER in names and not any(name.endswith((".safetensors", ".bin")) and "model" in name for name in names):
        return Contents(None, f"python {shlex.quote(str(folder / _MERGER))} {own} {merged} --safe_serialization")
    return Contents(folder)


def _is_marked(folder: Path, _model: Path) -> bool:
    state = folder / "trainer_state.json"
    try:
        return is_newer(state, folder) and ends_as_json(state)
    except OSError:
        return False


TRANSFORMERS_TRAINER: Final = Layout(
    name="huggingface",
    folder_name=re.compile(r"checkpoint-\d+"),
    locate=_locate,
    is_marked=_is_marked,
)
