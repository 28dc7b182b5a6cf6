"""Whether a model holds the checkpoint's weights and nothing else: what transformers reports, as an error of ours.

transformers fills what a checkpoint lacks with random numbers and leaves out what it does not know, with a warning.
Runs in the engine environment; imports torch and transformers only when called.
"""

# torch and transformers' models have no types in the controller's environment, where this file is checked:
# pyright: reportMissingImports=false

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from infra.checkpoints.findings import list_names
from infra.checkpoints.safetensors_header import read_header
from infra.tokenizer.files import read_json_object
from schemas.errors import EngineError, MilepostError

LoadingReport = Mapping[str, Iterable[Any]]
"""What `from_pretrained` gives for output_loading_info."""

_NOT_OF_THE_DECODER: Final = re.compile(
    r"inv_freq$|embed_positions\.weights$|decoder\.version$|"
    r"\bh\.\d+\.attn\.(?:attention\.)?(?:bias|masked_bias|causal_mask)$|"
    r"\.[kqv]_scale$|\b(?:eh_proj|enorm|hnorm|shared_head|mtp\w*|nextn\w*)\b|"
    r"vision|visual|vit\b|image|audio|speech|multi_modal|mm_proj"
)
"""Names of tensors that the next token of a text does not depend on: what the class computes by itself, layers for
multi-token prediction, and towers of other senses. Checkpoints of GPT-2, GPT-J and GPT-Neo hold causal
masks as `h.0.attn.bias` and the like: the biases are those of the projections in it."""


def check_loading_report(report: LoadingReport, model_class: str, folder: Path) -> None:
    """Check that the model was loaded whole.

    Raises:
        EngineError: the checkpoint lacks tensors, has others than the class, or some of other shapes, named.
    """
    missing = sorted(report["missing_keys"])
    unexpected = sorted(filter(decides_text, report["unexpected_keys"]))
    mismatched = [
        f"{name} ({list(own)}, {model_class} has {list(expected)})"
        for name, own, expected in sorted(report["mismatched_keys"])
    ]
    found = [
        f"{what} {list_names(names)}"
        for what, names in (("missing:", missing), ("unexpected:", unexpected), ("of another shape:", mismatched))
        if names
    ]
    if found:
        raise EngineError(
            f"{folder.name}: its tensors are not those of {model_class} with its config.json: {'; '.join(found)}. "
            f"Save the checkpoint again, or copy config.json from the model that was saved"
        )


def check_nothing_is_left_out(folder: Path) -> None:
    """Check that transformers' class of this architecture has a place for each tensor, without reading a weight.

    For engines that leave out in silence what they do not know, or take the part of a tensor that they have room for.
    Quantised weights, others than safetensors and architectures that transformers has no class for are not checked,
    which a line on stderr says.

    Raises:
        EngineError: tensors that the class does not have, or has in another shape, named.
    """
    try:
        report, model_class = _load_without_weights(folder)
    except MilepostError:
        raise
    except Exception as exc:  # noqa: BLE001 - the check is not the engine: what fails in it alone is no reason to stop
        print(f"weights not compared with transformers' class: {type(exc).__name__}: {exc}", file=sys.stderr)
        return
    if not list(report["missing_keys"]):  # else the engine has names of its own, and fills or refuses what it has not
        check_loading_report(report, model_class, folder)


def decides_text(name: str) -> bool:
    """Tell whether a text's next token may depend on a tensor or parameter of this name."""
    return not _NOT_OF_THE_DECODER.search(name)


def _load_without_weights(folder: Path) -> tuple[LoadingReport, str]:
    """Return what transformers reports of loading tensors that have the checkpoint's names and shapes, and no data."""
    import torch
    from transformers.models.auto.configuration_auto import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
    from transformers.utils import logging

    if "quantization_config" in read_json_object(folder / "config.json"):
        raise ValueError("they are quantised")
    config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    tensors = {
        name: torch.empty(tensor.shape, dtype=torch.bfloat16, device="meta")
        for path in sorted(folder.glob("*.safetensors"))
        for name, tensor in read_header(path).items()
    }
    if not tensors:
        raise ValueError("they are no safetensors")
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # its own report of the same
    try:
        _, report = model_class.from_pretrained(
            None,
            config=config,
            state_dict=tensors,
            device_map="meta",
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    finally:
        logging.set_verbosity(verbosity)
    return report, model_class.__name__
