"""A checkpoint's tensors held against the model's class in the engine environment: the result and what follows from it.

infra/engines/loaded_weights.py makes the comparison in that environment, infra/engines/class_process.py starts it.
"""

import re
from typing import Final

from infra.checkpoints.findings import list_names
from schemas.base import Model
from schemas.inference import EngineName

_NOT_OF_THE_DECODER: Final = re.compile(
    r"inv_freq$|embed_positions\.weights$|decoder\.version$|"
    r"\bh\.\d+\.attn\.(?:attention\.)?(?:bias|masked_bias|causal_mask)$|"
    r"\.[kqv]_scale$|\b(?:eh_proj|enorm|hnorm|shared_head|mtp\w*|nextn\w*)\b|"
    r"vision|visual|vit\b|image|audio|speech|multi_modal|mm_proj"
)
"""Names of tensors that the next token of a text does not depend on: what the class computes by itself, layers for
multi-token prediction, and towers of other senses. Checkpoints of GPT-2, GPT-J and GPT-Neo hold causal
masks as `h.0.attn.bias` and the like: the biases are those of the projections in it."""


class ClassComparison(Model):
    """Names in which a checkpoint differs from transformers' class of its model; all empty where they agree."""

    model_class: str = ""
    """Class that was compared, such as `LlamaForCausalLM`; empty without a comparison."""
    missing: tuple[str, ...] = ()
    """Parameters of the class for which the checkpoint has no tensor."""
    unexpected: tuple[str, ...] = ()
    """Tensors for which the class has no parameter, without those that no text depends on."""
    mismatched: tuple[str, ...] = ()
    """Tensors of another shape than the parameter, with both shapes."""
    skipped: str = ""
    """Why nothing was compared; empty where it was."""


def decides_text(name: str) -> bool:
    """Tell whether a text's next token may depend on a tensor or parameter of this name."""
    return not _NOT_OF_THE_DECODER.search(name)


def describe_comparison(comparison: ClassComparison) -> str:
    """Return the names that differ, a few of each kind; empty without any."""
    kinds = (
        ("missing:", comparison.missing),
        ("unexpected:", comparison.unexpected),
        ("of another shape:", comparison.mismatched),
    )
    return "; ".join(f"{what} {list_names(names)}" for what, names in kinds if names)


def find_class_problem(comparison: ClassComparison, engine: EngineName) -> str | None:
    """Return why an engine would not evaluate the weights that were saved; None where it does, or may.

    vLLM has classes of its own. A checkpoint that has both missing and unexpected names may follow one of those, so it
    is left to the checks while vLLM loads.
    """
    if engine == "vllm":
        if comparison.missing and comparison.unexpected:
            return None
        comparison = comparison.model_copy(update={"missing": tuple(filter(decides_text, comparison.missing))})
    found = describe_comparison(comparison)
    if not found:
        return None
    return (
        f"its tensors are not those of {comparison.model_class} with its config.json: {found}. Save the checkpoint "
        f"again, or copy config.json from the model that was saved"
    )
