"""The layout of Hugging Face's `save_pretrained`: config.json, safetensors shards with an index, tokenizer files."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

from infra.checkpoints.adapter_config import CONFIG_NAME as ADAPTER_CONFIG
from infra.checkpoints.architecture import check_writes_text, find_media_tokens, read_architecture
from infra.checkpoints.findings import Findings
from infra.checkpoints.global_step import find_position
from infra.checkpoints.links import describe_links
from infra.checkpoints.options import InspectionOptions
from infra.checkpoints.safetensors_header import Tensor
from infra.checkpoints.structure import NESTED_CONFIGS, check_structure, find_embedding
from infra.checkpoints.tied_head import check_tied_head
from infra.checkpoints.weight_files import WeightFiles, list_weight_files
from infra.tokenizer.files import (
    VOCABULARY_FILES,
    JsonObject,
    ends_as_json,
    find_chat_template,
    read_json_object,
    read_optional_json,
    read_special_tokens,
    read_token_id,
)
from schemas.checkpoint import CheckpointReport
from schemas.errors import CheckpointError

_CONTEXT_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
)

_DTYPE_NAMES: Final = {
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I8": "int8",
    "U8": "uint8",
}


class InspectedModel(NamedTuple):
    """A whole model's folder as its metadata show it."""

    report: CheckpointReport
    tensors: Mapping[str, Tensor]
    """By name; empty for pickle weights."""


def inspect(folder: Path, options: InspectionOptions) -> InspectedModel:
    """Read the folder's metadata.

    Raises:
        OSError: a file vanished or may not be read.
    """
    findings = Findings()
    if (folder / ADAPTER_CONFIG).is_file():
        findings.problems.append(
            f"{ADAPTER_CONFIG}: beside whole weights, and engines differ in whether they load these or the adapter on "
            f"its base; remove what does not belong"
        )
    config = _read_config(folder, findings)
    weights = list_weight_files(folder, allow_pickle_weights=options.allow_pickle_weights)
    findings.problems.extend(weights.problems)
    findings.needs_conversion = weights.needs_conversion
    tokenizer_folder = options.tokenizer_folder or folder
    tokenizer_eos, has_chat_template = _read_tokenizer(tokenizer_folder, findings)
    if (problem := check_writes_text(config)) is not None:
        findings.problems.append(problem)
    elif config and weights.tensors and not weights.problems:
        findings.problems.extend(check_structure(config, weights.tensors))
        if (problem := check_tied_head(config, weights.tensors, weights.files)) is not None:
            findings.problems.append(problem)
    generation = _try_json(folder / "generation_config.json", findings)
    position = find_position(folder)
    report = CheckpointReport(
        path=folder,
        status=findings.status,
        layout="huggingface",
        global_step=position.global_step,
        epoch=position.epoch,
        problems=tuple(findings.problems),
        notes=describe_links(folder, tokenizer_folder),
        architecture=read_architecture(config),
        dtype=_find_dtype(config, weights),
        weight_files=weights.files,
        num_parameters=sum(tensor.num_elements for tensor in weights.tensors.values()) if weights.tensors else None,
        context_length=_find_context_length(config),
        eos_token_ids=tuple(
            sorted({*_token_ids(generation), *(i for c in _with_nested(config) for i in _token_ids(c)), *tokenizer_eos})
        ),
        has_chat_template=has_chat_template,
        num_embeddings=embedding.num_rows if (embedding := find_embedding(weights.tensors)) else None,
        media_token_ids=find_media_tokens(config),
        tokenizer_folder=options.tokenizer_folder,
    )
    return InspectedModel(report, weights.tensors)


def _read_config(folder: Path, findings: Findings) -> JsonObject:
    try:
        config = read_json_object(folder / "config.json")
    except CheckpointError as exc:
        findings.problems.append(str(exc))
        return {}
    architectures = config.get("architectures")
    if not (isinstance(architectures, list) and architectures and isinstance(architectures[0], str)):
        findings.problems.append(
            f"config.json: architectures is {architectures!r}, expected a list such as ['LlamaForCausalLM']: no engine "
            f"knows what to load; copy config.json from the model that training started from"
        )
        return {**config, "architectures": None}
    return config


def _read_tokenizer(folder: Path, findings: Findings) -> tuple[tuple[int, ...], bool]:
    """Return the tokenizer's EOS ids and whether there is a chat template."""
    if not any((folder / name).is_file() for name in VOCABULARY_FILES):
        findings.problems.append(
            f"{folder}: no tokenizer (none of {', '.join(VOCABULARY_FILES)}); save it beside the weights with "
            f"save_pretrained, or set tokenizer_path to the folder of the base model"
        )
        return (), False
    fast = folder / "tokenizer.json"
    if fast.is_file() and not ends_as_json(fast):
        findings.problems.append(f"{fast.name}: empty or cut short; copy it again or wait until it is written")
        return (), False
    try:
        eos = read_special_tokens(folder).get("eos_token")
        token_id = read_token_id(folder, eos) if eos is not None else None
        return (token_id,) if token_id is not None else (), find_chat_template(folder) is not None
    except CheckpointError as exc:
        findings.problems.append(str(exc))
        return (), False


def _try_json(path: Path, findings: Findings) -> JsonObject:
    try:
        return read_optional_json(path)
    except CheckpointError as exc:
        findings.problems.append(str(exc))
        return {}


def _with_nested(config: JsonObject) -> Iterable[JsonObject]:
    yield config
    for key in NESTED_CONFIGS:
        nested = config.get(key)
        if isinstance(nested, dict):
            yield cast("JsonObject", nested)


def _token_ids(config: JsonObject) -> tuple[int, ...]:
    """Return `eos_token_id`, which is one id, a list of ids or null."""
    value = config.get("eos_token_id")
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return tuple(entry for entry in values if type(entry) is int and entry >= 0)


def _find_context_length(config: JsonObject) -> int | None:
    """Return the declared context, stretched where a YaRN scaling says so.

    Of the scalings only YaRN's stretches max_position_embeddings beyond what is declared; with the others the models in
    use declare the stretched length already.
    """
    for part in _with_nested(config):
        for key in _CONTEXT_KEYS:
            value = part.get(key)
            if type(value) is int and value > 0:
                return max(value, _yarn_length(part))
    return None


def _yarn_length(config: JsonObject) -> int:
    """Return factor x original length of a YaRN scaling, 0 without one."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    fields = cast("JsonObject", scaling) if isinstance(scaling, dict) else {}
    if fields.get("rope_type", fields.get("type")) != "yarn":
        return 0
    factor, original = fields.get("factor"), fields.get("original_max_position_embeddings")
    return int(factor * original) if isinstance(factor, (int, float)) and isinstance(original, int) else 0


def _find_dtype(config: JsonObject, weights: WeightFiles) -> str | None:
    """Return the dtype that config.json declares, else the one that most bytes of the shards have."""
    for part in _with_nested(config):
        for key in ("dtype", "torch_dtype"):
            value = part.get(key)
            if isinstance(value, str) and value and value != "auto":
                return value.removeprefix("torch.")
    num_bytes: Counter[str] = Counter()
    for tensor in weights.tensors.values():
        num_bytes[tensor.dtype] += tensor.num_bytes
    if not num_bytes:
        return None
    dtype = max(sorted(num_bytes), key=lambda name: num_bytes[name])
    return _DTYPE_NAMES.get(dtype, dtype.lower())
