"""Makes a LoRA adapter of random updates, and its base with them merged in; in the engine environment, which has torch.

`python -m tests.support.adapter_maker BASE FOLDER` writes FOLDER/adapter and FOLDER/merged.
"""

import json
import math
import shutil
import sys
from pathlib import Path

RANKS = {"q_proj": 4, "v_proj": 8, "down_proj": 8}
ALPHAS = {"q_proj": 12, "v_proj": 12, "down_proj": 24}
CONFIG = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": 8,
    "lora_alpha": 12,
    "use_rslora": True,
    "rank_pattern": {"q_proj": 4},
    "alpha_pattern": {"mlp.down_proj": 24},
    "target_modules": sorted(RANKS),
    "bias": "none",
    "modules_to_save": None,
}


def main(base: Path, folder: Path) -> None:
    """Write the two."""
    import torch
    from safetensors.torch import load_file, save_file

    generator = torch.Generator().manual_seed(3)
    weights = load_file(base / "model.safetensors")
    updates: dict[str, torch.Tensor] = {}
    merged: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        module = name.removesuffix(".weight")
        kind = module.rpartition(".")[2]
        merged[name] = weight.float()
        if kind in RANKS:
            rank = RANKS[kind]
            a = torch.randn(rank, weight.shape[1], generator=generator) * 0.05
            b = torch.randn(weight.shape[0], rank, generator=generator) * 0.05
            updates[f"base_model.model.{module}.lora_A.weight"] = a
            updates[f"base_model.model.{module}.lora_B.weight"] = b
            merged[name] = weight.float() + ALPHAS[kind] / math.sqrt(rank) * (b @ a)
    (folder / "adapter").mkdir(parents=True)
    save_file(updates, folder / "adapter" / "adapter_model.safetensors")
    config = CONFIG | {"base_model_name_or_path": str(base)}
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    shutil.copytree(base, folder / "merged", ignore=shutil.ignore_patterns("*.safetensors"))
    save_file(merged, folder / "merged" / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
