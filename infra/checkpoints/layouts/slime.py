"""slime: Megatron's `{save}/iter_{NNNNNNN}` with latest_checkpointed_iteration.txt beside them, and `--save-hf`.

`--save-hf PATH` is a template with `{rollout_id}` (slime/utils/arguments.py): usually a folder named by the number.
hf_checkpoint_saver.py copies configuration and tokenizer into it, writes the shards under other names, renames them,
and writes the index last: the index, not older than any other file, is the mark. The Megatron dump is converted by
tools/convert_torch_dist_to_hf.py.
"""

import re
import shlex
from pathlib import Path
from typing import Final

from infra.checkpoints.layouts.base import Contents, Layout, is_model, is_newer

_ANY: Final = re.compile(r".*", re.DOTALL)


def _locate(folder: Path, names: frozenset[str]) -> Contents | None:
    if is_model(names):
        return Contents(folder)
    if not folder.name.startswith("iter_") or not any(
        name.endswith(".distcp") or name.startswith("mp_rank_") for name in names
    ):
        return None
    own, target = shlex.quote(str(folder)), shlex.quote(f"{folder}-hf")
    return Contents(
        None, f"python tools/convert_torch_dist_to_hf.py --input-dir {own} --output-dir {target} --origin-hf-dir ORIGIN"
    )


def _is_marked(_folder: Path, model: Path) -> bool:
    return is_newer(model / "model.safetensors.index.json", model, than=_ANY)


SLIME: Final = Layout(
    name="slime",
    folder_name=re.compile(r"(?:iter_|rollout_)?\d+"),
    locate=_locate,
    is_marked=_is_marked,
    first_step=0,
)
