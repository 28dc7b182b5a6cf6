"""OpenRLHF: `{ckpt.path}/global_step{N}_hf` with `--ckpt.save_hf`, beside DeepSpeed's own `global_step{N}`.

openrlhf/trainer/ray/ppo_actor.py saves DeepSpeed's dump (under `_actor/`; the SFT, DPO and reward trainers have it in
`ckpt.path` itself), then the `_hf` folder: save_pretrained, config.json again, the tokenizer last. The best one by
validation is `best_global_step{N}_hf`. Nothing marks the end. A dump is converted by the `zero_to_fp32.py` that
DeepSpeed puts beside it.
"""

import re
import shlex
from pathlib import Path
from typing import Final

from infra.checkpoints.layouts.base import Contents, Layout, is_model, never_marked

_DUMP: Final = re.compile(r".*_model_states\.pt|.*_optim_states\.pt")


def _locate(folder: Path, names: frozenset[str]) -> Contents | None:
    if folder.name.endswith("_hf"):
        return Contents(folder)
    if any(_DUMP.fullmatch(name) for name in names):
        parent = folder.parent
        merger, own = shlex.quote(str(parent / "zero_to_fp32.py")), shlex.quote(str(parent))
        merged = shlex.quote(f"{folder}_hf")
        return Contents(None, f"python {merger} {own} {merged} --safe_serialization --tag {shlex.quote(folder.name)}")
    return Contents(folder) if is_model(names) else None


OPENRLHF: Final = Layout(
    name="openrlhf",
    folder_name=re.compile(r"(?:best_)?global_step\d+(?:_hf)?"),
    locate=_locate,
    is_marked=never_marked,
)
