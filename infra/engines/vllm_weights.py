"""vLLM's loader, made to name what it left uninitialised.

vLLM 0.32 joins projections (q, k and v; gate and up; experts) in one parameter and counts it as loaded when any of them
was; linear layers it does not count at all. Here the first column of each row holds a mark before loading and must not
afterwards: a row is the smallest part that a loader fills by itself. The mark is a NaN with bits that no computation
gives, so that NaN of the checkpoint's own is not taken for it.

Each process of vLLM's that loads weights imports this module, as it is where `worker_extension_cls` is.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from infra.checkpoints.class_comparison import decides_text
from infra.checkpoints.findings import list_names
from schemas.errors import EngineError

_MARKS: Final = {2: 0x7FA5, 4: 0x7FA5A5A5}
"""By bytes of an element: a NaN in bfloat16, float16 and float32."""


class CheckedWeights:
    """Adds nothing to vLLM's worker: it is there to have this module imported by it."""


def mark_uninitialised(model: Any) -> None:
    """Put a mark into each row of each parameter of a torch module, where `find_uninitialised` looks for it."""
    for _, column, mark in _first_columns(model):
        column.fill_(mark)


def find_uninitialised(model: Any) -> list[str]:
    """Return the parameters of which a row still has its mark."""
    return [name for name, column, mark in _first_columns(model) if bool((column == mark).any())]


def _first_columns(model: Any) -> Iterator[tuple[str, Any, int]]:
    """Yield what is marked, as integers, by parameter: of floating-point ones, as packed integers have no NaN."""
    torch: Any = import_module("torch")  # has no types in the controller's environment
    integers = {2: torch.int16, 4: torch.int32}
    for name, parameter in model.named_parameters():
        size: int = parameter.element_size()
        if parameter.is_floating_point() and size in _MARKS and not parameter.is_meta and parameter.numel():
            column = parameter.data[..., :1] if parameter.dim() > 1 else parameter.data
            yield name, column.view(integers[size]), _MARKS[size]


def _check_loading(loader_class: Any) -> None:
    load: Any = loader_class.load_weights

    def load_weights(self: object, model: Any, model_config: Any) -> None:
        # scales have defaults that a checkpoint may lack, and packed integers have no NaN
        if model_config.quantization is not None:
            load(self, model, model_config)
            return
        mark_uninitialised(model)
        load(self, model, model_config)
        # the last layers may use the keys and values of others, and have a place for their own all the same
        shares_keys = bool(getattr(model_config.hf_text_config, "num_kv_shared_layers", 0))
        left = [
            name
            for name in find_uninitialised(model)
            if decides_text(name) and not (shares_keys and ".self_attn." in name)
        ]
        if left:
            raise EngineError(
                f"vllm found no weights for all or a part of {list_names(left)}: the checkpoint lacks tensors that its "
                f"config.json asks for; save it again"
            )

    loader_class.load_weights = load_weights


_check_loading(import_module("vllm.model_executor.model_loader.default_loader").DefaultModelLoader)
