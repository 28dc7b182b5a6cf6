"""The tensors' names and shapes, as the shards' headers tell them, held against config.json.

Owns what can be said without the model's class, in milliseconds: names that a wrapper left, empty tensors, the layers
(decoder_layers.py), the embedding and the head. It is silent where a layout leaves room for doubt: what only the class
knows, the engine checks when it has loaded the weights (infra/engines/loaded_weights.py).
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from infra.checkpoints.decoder_layers import OTHER_TOWER, Stack, check_layers, find_size, find_stack
from infra.checkpoints.findings import list_names
from infra.checkpoints.safetensors_header import Tensor
from infra.tokenizer.files import JsonObject

NESTED_CONFIGS: Final = ("text_config", "llm_config", "language_config")
"""Where multimodal models keep the language model's settings."""

_WRAPPERS: Final = {
    "_orig_mod": "torch.compile: save `model._orig_mod`",
    "module": "DistributedDataParallel or DeepSpeed: save `model.module`",
    "_fsdp_wrapped_module": "FSDP: save its full state dict",
    "_checkpoint_wrapped_module": "activation checkpointing: save the model without it",
    "_forward_module": "Lightning Fabric: save the module in it",
    "base_model": "peft: save `model.merge_and_unload()`",
    "base_layer": "peft: save `model.merge_and_unload()`",
    "pretrained_model": "TRL's value head: save `model.pretrained_model`",
}
"""Components of names that a wrapper adds, with whose they are and how to save without them."""
_WRAPPED: Final = re.compile(
    r"^(module|base_model|pretrained_model)\.|"
    r"\b(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module|base_layer)\."
)
"""The first three are a wrapper's at the start of a name only."""
_VALUE_HEADS: Final = frozenset({"v_head", "value_head", "reward_head", "rm_head", "score"})
"""First components of the names of heads that give a number for a text."""

_HIDDEN_SIZE: Final = ("hidden_size", "n_embd", "d_model", "dim")
_EMBEDDING_SIZE: Final = ("embedding_size", "word_embed_proj_dim", "input_embedding_size")
"""Width of the embedding where a projection follows it."""
_EMBEDDING: Final = re.compile(
    r"\b(?:embed_tokens|wte|word_embeddings?|tok_embeddings|embed_in|tokens_embed|embeddings?)\.weight$"
)
_FLOATS: Final = frozenset({"BF16", "F16", "F32", "F64"})
"""Dtypes of tensors whose stored shape is their own; quantised ones may be packed."""


class Embedding(NamedTuple):
    """The table that token ids are looked up in."""

    name: str
    num_rows: int
    """Token ids that it holds."""
    width: int
    """Hidden size, or what a projection makes it of."""


def check_structure(config: JsonObject, tensors: Mapping[str, Tensor]) -> list[str]:
    """Return each reason why the tensors are not those of the model that config.json describes."""
    problems = [*_find_wrappers(tensors), *_given(_find_value_heads(tensors)), *_given(_find_empty(tensors))]
    if problems:
        return problems  # what else is seen follows from these
    text = read_text_config(config)
    stack = find_stack(tensors)
    problems += _given(check_layers(stack, text))
    embedding = find_embedding(tensors, stack)
    if embedding is not None:
        heads = _find_heads(tensors, stack, embedding, text)
        problems += _check_embedding(embedding, text, heads)
        is_tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings"))
        if is_tied is False and not text.get("tie_word_embeddings") and not heads:
            problems.append(
                "lm_head.weight: not there, nor a head of another name, and config.json says tie_word_embeddings "
                "false; save the checkpoint again, or set it to true where the head is the embedding"
            )
    elif stack.layers and not _may_be_embedding(tensors, stack, text):
        problems.append(
            f"no token embedding among the {len(tensors)} tensors (none has {text.get('vocab_size')} rows, the "
            f"vocab_size of config.json); save the checkpoint again"
        )
    return problems


def read_text_config(config: JsonObject) -> JsonObject:
    """Return the language model's settings, which multimodal models nest."""
    nested = (config.get(key) for key in NESTED_CONFIGS)
    return next((cast("JsonObject", value) for value in nested if isinstance(value, dict)), config)


def find_embedding(tensors: Mapping[str, Tensor], stack: Stack | None = None) -> Embedding | None:
    """Return the token embedding; None where names leave it open or it is packed."""
    own = (stack or find_stack(tensors)).prefix or "\0"
    found = [
        Embedding(name, *tensor.shape)
        for name, tensor in tensors.items()
        if len(tensor.shape) == 2
        and tensor.dtype in _FLOATS
        and _EMBEDDING.search(name)
        and not name.startswith(own)
        and not OTHER_TOWER.search(name)
    ]
    return max(found, key=lambda embedding: embedding.num_rows, default=None)


def _given(problem: str | None) -> list[str]:
    return [] if problem is None else [problem]


def _find_wrappers(tensors: Mapping[str, Tensor]) -> list[str]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in tensors:
        match = _WRAPPED.search(name)
        if match is not None:
            found[match[1] or match[2]].append(name)
    return [
        f"{names[0]}: {len(names)} of {len(tensors)} tensors have `{part}` in their names, under which no engine finds "
        f"them; it is of {_WRAPPERS[part]}, or rename the tensors"
        for part, names in sorted(found.items())
    ]


def _find_value_heads(tensors: Mapping[str, Tensor]) -> str | None:
    heads = [name for name in tensors if name.partition(".")[0] in _VALUE_HEADS]
    if not heads:
        return None
    return f"{list_names(heads)}: the head of a reward or value model; save the policy, which has lm_head, without it"


def _find_empty(tensors: Mapping[str, Tensor]) -> str | None:
    empty = [name for name, tensor in tensors.items() if not tensor.num_elements and tensor.dtype in _FLOATS]
    if not empty:
        return None
    return (
        f"{empty[0]}: of shape {list(tensors[empty[0]].shape)}, and {len(empty)} of {len(tensors)} tensors hold as "
        f"little; with DeepSpeed ZeRO-3 set stage3_gather_16bit_weights_on_model_save, or convert its dump by "
        f"zero_to_fp32.py"
    )


def _find_heads(tensors: Mapping[str, Tensor], stack: Stack, embedding: Embedding, text: JsonObject) -> list[Tensor]:
    """Return what may turn hidden states into tokens: outside the layers, as long as the vocabulary, or named so."""
    lengths = {embedding.num_rows, text.get("vocab_size")}
    return [
        tensor
        for name, tensor in tensors.items()
        if len(tensor.shape) > 1
        and name != embedding.name
        and not name.startswith(stack.prefix or "\0")
        and (lengths.intersection(tensor.shape) or "head" in name)
    ]


def _may_be_embedding(tensors: Mapping[str, Tensor], stack: Stack, text: JsonObject) -> bool:
    """Return whether a tensor of unknown name, the head apart, is long enough for the vocabulary."""
    vocabulary = find_size(text, ("vocab_size",))
    return vocabulary is None or any(
        max(tensor.shape, default=0) >= vocabulary.value and "head" not in name
        for name, tensor in tensors.items()
        if not name.startswith(stack.prefix)
    )


def _check_embedding(embedding: Embedding, text: JsonObject, heads: list[Tensor]) -> list[str]:
    problems: list[str] = []
    vocabulary = find_size(text, ("vocab_size",))
    if vocabulary is not None and embedding.num_rows != vocabulary.value:
        # some classes give the table rows beyond the vocabulary, which the head then has
        is_by_class = embedding.num_rows > vocabulary.value and any(vocabulary.value in head.shape for head in heads)
        if not is_by_class:
            problems.append(
                f"{embedding.name}: {embedding.num_rows} rows, and config.json says vocab_size {vocabulary.value}; "
                f"copy config.json from the model that was saved"
            )
    sizes = [size for keys in (_HIDDEN_SIZE, _EMBEDDING_SIZE) if (size := find_size(text, keys)) is not None]
    if sizes and embedding.width not in {size.value for size in sizes}:
        problems.append(
            f"{embedding.name}: {embedding.width} columns, and config.json says {sizes[0].key} {sizes[0].value}; copy "
            f"config.json from the model that was saved"
        )
    return problems
