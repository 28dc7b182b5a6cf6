"""A decoder's layers, as the shards' headers name them: 0 to n-1 of config.json, each with the tensors of its peers.

Names alone cannot tell a layer that lost a tensor from one that is built without it. So layers are compared where
config.json says nothing of kinds of layers, and within a kind where it does; the rest is for the engine, which knows
the class.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple, cast

from infra.checkpoints.findings import MAX_NAMES, list_names
from infra.checkpoints.safetensors_header import Tensor
from infra.tokenizer.files import JsonObject

Layer = Mapping[str, Tensor]
"""A layer's tensors by their names within it."""

_STACK_RATIO: Final = 4
"""By how much the decoder's layers outweigh every other list of modules; else it is not clear which they are."""
_NUM_LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
_NUM_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts")

_LAYER: Final = re.compile(r"(.+?\.)([0-9]{1,6})\.(.+)", re.DOTALL)
_EXPERT: Final = re.compile(r"((?:.*\.)?experts\.)(\d+)\.(.+)", re.DOTALL)
OTHER_TOWER: Final = re.compile(r"vision|visual|vit\b|image|audio|speech")
"""In names of what reads images or sound beside the language model."""
_EXTRA_LAYER: Final = re.compile(r"\b(?:eh_proj|enorm|hnorm|shared_head|mtp\w*|nextn\w*)\b")
"""What a layer for multi-token prediction has; it follows the decoder's own."""

_NOT_PER_LAYER: Final = frozenset({"architectures", "eos_token_id", "bos_token_id", "pad_token_id"})
"""Lists of config.json that have no entry per layer, however long they are."""
_UNLIKE_LAYERS: Final = frozenset(
    {"gpt_neox_japanese", "hunyuan", "modernbert-decoder", "phi4flash", "rwkv", "zamba", "zamba2", "zaya"}
)
"""model_type of the classes whose first, last or some layers lack what the others have, without a word of it in
config.json. Found by building every causal class of transformers 5.19 without weights; hunyuan and phi4flash, whose
layers use the keys and values of others, have code of their own."""
_PACKED: Final = re.compile(r"\.(?:qweight|weight_packed|weight_scale\w*|weight\.\w+|scales)$")
"""Ends of the names of quantised weights."""
_SCALE: Final = re.compile(r"\.[kqv]_scale$")
_LAST: Final = re.compile(r"\.(?:weight\.)?\w+$")


class Stack(NamedTuple):
    """The list of modules that are the decoder's layers."""

    prefix: str
    """Such as `model.layers.`; empty where it is not clear which list it is."""
    layers: Mapping[int, Layer]
    """By number."""


class _Size(NamedTuple):
    key: str
    value: int


def find_stack(tensors: Mapping[str, Tensor]) -> Stack:
    """Return the decoder's layers: the list of modules with most weights, towers of other senses apart."""
    stacks: defaultdict[str, defaultdict[int, dict[str, Tensor]]] = defaultdict(lambda: defaultdict(dict))
    sizes: defaultdict[str, int] = defaultdict(int)
    for name, tensor in tensors.items():
        match = _LAYER.fullmatch(name)
        if match is not None:
            stacks[match[1]][int(match[2])][match[3]] = tensor
            sizes[match[1]] += tensor.num_bytes
    ranked = sorted((size, prefix) for prefix, size in sizes.items() if not OTHER_TOWER.search(prefix))
    if not ranked or (len(ranked) > 1 and ranked[-1][0] < _STACK_RATIO * ranked[-2][0]):
        return Stack("", {})
    prefix = ranked[-1][1]
    return Stack(prefix, stacks[prefix])


def find_size(config: JsonObject, keys: Iterable[str]) -> _Size | None:
    """Return the first of the keys that holds a positive integer, with it."""
    return next((_Size(key, value) for key in keys if type(value := config.get(key)) is int and value > 0), None)


def check_layers(stack: Stack, config: JsonObject) -> str | None:
    """Return why these are not the layers that `config`, the language model's own, describes; None if they are."""
    count = find_size(config, _NUM_LAYERS)
    if count is None or not stack.layers:
        return None
    num_missing = count.value - sum(number < count.value for number in stack.layers)
    if num_missing and "block_configs" not in config:  # pruned models may have layers without a tensor
        # a broken config.json may say a thousand million layers: only those that are shown are named
        missing = (f"{stack.prefix}{number}" for number in range(count.value) if number not in stack.layers)
        listed = list_names(list(islice(missing, MAX_NAMES)), total=num_missing)
        return (
            f"{listed}: no tensor of {num_missing} of the {count.value} layers that config.json says by "
            f"{count.key}; save the checkpoint again, or copy config.json from the model that was saved"
        )
    beyond = [number for number in sorted(stack.layers) if number >= count.value]
    beyond = [number for number in beyond if not any(map(_EXTRA_LAYER.search, stack.layers[number]))]
    if beyond:
        return (
            f"{list_names([f'{stack.prefix}{number}' for number in beyond])}: more than the {count.value} layers that "
            f"config.json says by {count.key}, so a part of the model would not be evaluated; copy config.json from "
            f"the model that was saved"
        )
    layers = {number: layer for number, layer in sorted(stack.layers.items()) if number < count.value}
    own = Stack(stack.prefix, layers)
    return _compare_peers(own, config) or _check_experts(own, config)


def _compare_peers(stack: Stack, config: JsonObject) -> str | None:
    """Return which layer lacks a tensor that others of its kind have, or has it in another shape.

    A layer that also has tensors which they lack, as experts for an MLP, is taken for one of another kind.
    """
    if config.get("model_type") in _UNLIKE_LAYERS:
        return None
    is_quantised = "quantization_config" in config or any(map(_PACKED.search, next(iter(stack.layers.values()))))
    kinds: defaultdict[object, defaultdict[frozenset[str], list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, kind in _kinds(stack, config).items():
        names = stack.layers[number].keys()
        kinds[kind][frozenset(_modules(names) if is_quantised else names)].append(number)
    for forms in kinds.values():
        for names, numbers in forms.items():
            for other in forms:
                if names < other:
                    absent = [f"{stack.prefix}{numbers[0]}.{name}" for name in sorted(other - names)]
                    return (
                        f"{list_names(absent)}: not there, while {stack.prefix}{forms[other][0]} has "
                        f"{'it' if len(absent) == 1 else 'them'}; save the checkpoint again"
                    )
            if not is_quantised and (problem := _compare_shapes(stack, numbers)):
                return problem
    return None


def _kinds(stack: Stack, config: JsonObject) -> dict[int, object]:
    """Return what config.json says of each layer: in lists with an entry per layer, and of shared keys and values."""
    num_layers = max(stack.layers) + 1
    lists = [
        cast("list[object]", value) for key, value in config.items() if key not in _NOT_PER_LAYER and _is_list(value)
    ]
    per_layer = [value for value in lists if len(value) == num_layers]
    shared = find_size(config, ("num_kv_shared_layers",))
    first_shared = num_layers - (shared.value if shared else 0)
    return {number: (number >= first_shared, *(repr(value[number]) for value in per_layer)) for number in stack.layers}


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _modules(names: Iterable[str]) -> set[str]:
    """Return the modules of quantised weights, which have one tensor or several, as each is packed or not."""
    return {_LAST.sub("", name) for name in names if not _SCALE.search(name)}


def _compare_shapes(stack: Stack, numbers: list[int]) -> str | None:
    first = stack.layers[numbers[0]]
    for number in numbers[1:]:
        for name, tensor in stack.layers[number].items():
            if tensor.shape != first[name].shape:
                return (
                    f"{stack.prefix}{number}.{name}: of shape {list(tensor.shape)}, while it is "
                    f"{list(first[name].shape)} in {stack.prefix}{numbers[0]}; save the checkpoint again"
                )
    return None


def _check_experts(stack: Stack, config: JsonObject) -> str | None:
    """Return which expert of a layer is missing, lacks a tensor or is one too many."""
    declared = find_size(config, _NUM_EXPERTS)
    without_weights = find_size(config, ("zero_expert_num",))
    for number, layer in stack.layers.items():
        for group, experts in _group_experts(layer).items():
            names = set[str]().union(*experts.values())
            num_experts = declared.value if declared else max(experts) + 1
            prefix = f"{stack.prefix}{number}.{group}"
            says = f"config.json says {declared.key} {declared.value}" if declared else "others have it"
            num_present = sum(len(own) for expert, own in experts.items() if expert < num_experts)
            num_absent = num_experts * len(names) - num_present
            if num_absent:
                absent = (
                    f"{prefix}{expert}{name}"
                    for expert in range(num_experts)
                    for name in sorted(names - experts.get(expert, set()))
                )
                listed = list_names(list(islice(absent, MAX_NAMES)), total=num_absent)
                return f"{listed}: not there, and {says}; save the checkpoint again"
            if max(experts) >= num_experts + (without_weights.value if without_weights else 0):
                return f"{prefix}{max(experts)}: {says}; copy config.json from the model that was saved"
    return None


def _group_experts(layer: Layer) -> Mapping[str, Mapping[int, set[str]]]:
    groups: defaultdict[str, defaultdict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in layer:
        match = _EXPERT.fullmatch(name) if "experts." in name else None
        if match is not None:
            groups[match[1]][int(match[2])].add(_LAST.sub("", f".{match[3]}"))
    return groups
