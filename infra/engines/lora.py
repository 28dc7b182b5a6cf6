"""A LoRA adapter merged into a loaded model: W + scale * B A for each linear layer that it updates."""

# torch has no types in the controller's environment, where this file is checked:
# pyright: reportMissingImports=false

from pathlib import Path
from typing import TYPE_CHECKING, Final

from infra.checkpoints.adapter_config import WEIGHTS_NAME, read_adapter_config
from schemas.errors import EngineError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers.modeling_utils import PreTrainedModel

_PREFIX: Final = "base_model.model."
_A: Final = ".lora_A.weight"
_B: Final = ".lora_B.weight"


def merge_adapter(model: "PreTrainedModel", folder: Path) -> None:
    """Add the adapter's updates to the model's weights; sums are taken in float32 and rounded once.

    Raises:
        CheckpointError: its configuration cannot be read.
        EngineError: the loaded model has no such layer, or has fused it with others.
    """
    import torch
    from safetensors.torch import load_file

    config = read_adapter_config(folder)
    tensors: dict[str, Tensor] = load_file(folder / WEIGHTS_NAME)
    modules = dict(model.named_modules())
    with torch.no_grad():
        for name in (name for name in tensors if name.endswith(_A)):
            module = name.removeprefix(_PREFIX).removesuffix(_A)
            weight: Tensor | None = getattr(modules.get(module), "weight", None)
            if weight is None:
                raise EngineError(
                    f"{folder}: transformers has no layer {module} in {type(model).__name__}; use rollout.backend "
                    f"vllm:d1, or merge the adapter into its base with peft and evaluate that"
                )
            a, b = tensors[name].to(weight.device), tensors[f"{name.removesuffix(_A)}{_B}"].to(weight.device)
            update = config.scale(module) * (b.float() @ a.float())
            weight.copy_(weight.float() + (update.T if config.fan_in_fan_out else update))
