"""Digest of the files beside the weights that decide what a model computes: config.json first of all.

The same weights under another config.json (rope scaling, number of layers, sliding window, quantization) are another
model. Of generation_config.json the engines get the EOS ids and nothing else: adapters switch the rest of it off, as
`gconfig` says how completions are drawn.
"""

import hashlib
import json
from pathlib import Path
from typing import Final, cast

from infra.files.regular_files import advise, read_regular
from infra.tokenizer.files import JsonObject, read_json_object, read_optional_json
from schemas.checkpoint import CheckpointReport
from schemas.errors import CheckpointError

_VOLATILE_KEYS: Final = frozenset(
    {
        "_name_or_path",
        "name_or_path",
        "_commit_hash",
        "transformers_version",
        "_attn_implementation_autoset",
        "unsloth_version",
        "unsloth_fixed",
        "use_cache",
        "gradient_checkpointing",
    }
)
"""Keys of config.json, at any depth, that say where or by what it was saved, or that only training reads. Trainers with
gradient checkpointing save `use_cache: false`; an engine has its own cache whatever it says."""
_EOS_KEY: Final = "eos_token_id"
"""Left out of config.json's own part: what ends a completion is the union over three files."""
_QUANTIZATION: Final = "hf_quant_config.json"
"""ModelOpt's settings, which vLLM reads."""


def digest_model_config(report: CheckpointReport) -> str:
    """Return the 128-bit hex digest of a complete checkpoint's config.json without its volatile keys, of the EOS ids,
    and of what the configuration refers to. Of an adapter: of its base's; its own settings are in the weights' digest.

    Raises:
        CheckpointError: a file cannot be read.
    """
    folder = report.path if report.adapter is None else report.adapter.base_folder
    config = read_json_object(folder / "config.json")
    document: dict[str, object] = {
        "config": _kept(config),
        "eos_token_ids": sorted(report.eos_token_ids),
        "quantization": _kept(read_optional_json(folder / _QUANTIZATION)),
    }
    digest = hashlib.sha256(b"milepost-model-config\x00" + json.dumps(document, sort_keys=True).encode())
    if "auto_map" in config:  # the checkpoint's own Python code computes
        for path in sorted(folder.glob("*.py")):
            digest.update(f"\x00{path.name}\x00".encode() + _read_bytes(path))
    return digest.hexdigest()[:32]


def _kept(value: object) -> object:
    """Return the part of a configuration that decides what is computed, in one spelling."""
    if isinstance(value, list):
        return [_kept(entry) for entry in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    kept: dict[str, object] = {}
    for key, entry in cast("JsonObject", value).items():
        if key == "dtype" or (key == "torch_dtype" and "dtype" not in value):
            # renamed by transformers 5; part of the digest, as dtype `auto` follows it
            kept["dtype"] = entry.removeprefix("torch.") if isinstance(entry, str) else entry
        elif key == "torch_dtype":
            continue
        elif key not in _VOLATILE_KEYS and key != _EOS_KEY:
            kept[key] = _kept(entry)
    return kept


def _read_bytes(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as exc:
        raise CheckpointError(f"{path}: cannot be read ({exc.strerror}); {advise(exc)}") from exc
