"""Whether a model holds the checkpoint's weights and nothing else: what transformers reports, as an error of ours.

transformers fills what a checkpoint lacks with random numbers and leaves out what it does not know, with a warning.
Runs in the engine environment; imports torch and transformers only when called.
"""

# torch and transformers' models have no types in the controller's environment, where this file is checked:
# pyright: reportMissingImports=false

import re
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

from infra.checkpoints.class_comparison import ClassComparison, decides_text, find_class_problem
from infra.checkpoints.findings import list_names
from infra.checkpoints.safetensors_header import read_header
from infra.tokenizer.files import read_json_object
from schemas.errors import EngineError
from schemas.inference import EngineName

LoadingReport = Mapping[str, Iterable[Any]]
"""What `from_pretrained` gives for output_loading_info."""

_QUANTIZATION: Final = "hf_quant_config.json"
"""ModelOpt's settings, beside config.json."""


def check_loading_report(report: LoadingReport, model_class: str, folder: Path) -> None:
    """Check that the model was loaded whole.

    Raises:
        EngineError: the checkpoint lacks tensors, has others than the class, or some of other shapes, named.
    """
    _check(read_loading_report(report, model_class), "transformers", folder)


def check_nothing_is_left_out(folder: Path) -> None:
    """Check that transformers' class of this architecture has a place for each tensor, without reading a weight.

    For engines that leave out in silence what they do not know, or take the part of a tensor that they have room for.
    Of quantised weights it checks that none is missing, as they get no marks (vllm_weights.py). Others than safetensors
    and architectures that transformers has no class for are not checked, which a line on stderr says.

    Raises:
        EngineError: tensors that the class does not have, or has in another shape, or quantised ones that are missing.
    """
    comparison = compare_with_class(folder, sorted(folder.glob("*.safetensors")))
    if comparison.skipped:
        print(f"weights not compared with transformers' class: {comparison.skipped}", file=sys.stderr)
    # the engine may have names of its own: what it did not fill its marks show
    if not comparison.missing or _is_quantised(folder):
        _check(comparison, "vllm", folder)


def compare_with_class(folder: Path, files: Sequence[Path]) -> ClassComparison:
    """Compare the headers of a model's weight files with the class that transformers has for it; reads no weight.

    Of quantised weights only the names of the parameters that they stand for are compared: their shapes are packed.
    """
    try:
        compare = _compare_quantised if _is_quantised(folder) else _compare
        return compare(folder, _read_shapes(files))
    except Exception as exc:  # noqa: BLE001 - the check is not the engine: what fails in it alone is no reason to stop
        return ClassComparison(skipped=f"{type(exc).__name__}: {exc}")


def read_loading_report(report: LoadingReport, model_class: str) -> ClassComparison:
    """Return what a loading report says, without the tensors that no text depends on."""
    return ClassComparison(
        model_class=model_class,
        missing=tuple(sorted(report["missing_keys"])),
        unexpected=tuple(sorted(filter(decides_text, report["unexpected_keys"]))),
        mismatched=tuple(
            f"{name} ({list(own)}, {model_class} has {list(expected)})"
            for name, own, expected in sorted(report["mismatched_keys"])
        ),
    )


def _check(comparison: ClassComparison, engine: EngineName, folder: Path) -> None:
    problem = find_class_problem(comparison, engine)
    if problem is not None:
        raise EngineError(f"{folder.name}: {problem}")


def _is_quantised(folder: Path) -> bool:
    return "quantization_config" in read_json_object(folder / "config.json") or (folder / _QUANTIZATION).is_file()


def _compare(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> ClassComparison:
    """Load tensors that have the checkpoint's names and shapes, and no data, as transformers would the checkpoint."""
    import torch
    from transformers.utils import logging

    config, model_class = _find_class(folder)
    tensors = {name: torch.empty(shape, dtype=torch.bfloat16, device="meta") for name, shape in shapes.items()}
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
    return read_loading_report(report, model_class.__name__)


def _compare_quantised(folder: Path, names: Iterable[str]) -> ClassComparison:
    """Look for each parameter of the class under its own name or one that starts with it (`q_proj.qweight`)."""
    import torch
    from transformers.core_model_loading import revert_weight_conversion

    config, model_class = _find_class(folder)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        model: Any = model_class(config)
    saved = {name: value for name, value in model.state_dict().items() if name not in model.all_tied_weights_keys}
    expected = set(revert_weight_conversion(model, saved))
    stems = {name.removesuffix(".weight") for name in expected}
    found = {name: _find_stem(name, stems) for name in names}
    strange = [name for name, stem in found.items() if stem is None and decides_text(name)]
    if strange := _without(strange, model._keys_to_ignore_on_load_unexpected):
        raise ValueError(f"the quantised weights have names of their own: {list_names(sorted(strange))}")
    missing = [name for name in expected if name.removesuffix(".weight") not in found.values()]
    return ClassComparison(
        model_class=model_class.__name__,
        missing=tuple(sorted(_without(missing, model._keys_to_ignore_on_load_missing))),
    )


def _without(names: Iterable[str], patterns: Iterable[str] | None) -> list[str]:
    ignored = re.compile("|".join(f"(?:{pattern})" for pattern in patterns or ()) or "(?!)")
    return [name for name in names if not ignored.search(name)]


def _find_stem(name: str, stems: Set[str]) -> str | None:
    """Return the parameter that a quantised tensor belongs to: `q_proj` of `q_proj.weight.absmax`."""
    # gpt-oss names its parts `gate_up_proj_blocks` and `gate_up_proj_scales`
    stem = name.removesuffix("_blocks").removesuffix("_scales")
    while stem not in stems:
        stem, dot, _ = stem.rpartition(".")
        if not dot:
            return None
    return stem


def _find_class(folder: Path) -> tuple[Any, Any]:
    """Return a model's configuration and its class: the one that config.json names, else the one that writes text."""
    import transformers
    from transformers.models.auto.configuration_auto import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        text = config.get_text_config()
        return (text if isinstance(text, model_class.config_class) else config), model_class
    named = (config.architectures or [""])[0]
    model_class = getattr(transformers, named, None)
    if model_class is None:
        raise ValueError(f"transformers {transformers.__version__} has no class {named!r}")
    return config, model_class


def _read_shapes(files: Iterable[Path]) -> dict[str, tuple[int, ...]]:
    tensors = {name: tensor.shape for path in files for name, tensor in read_header(path).items()}
    if not tensors:
        raise ValueError("they are no safetensors")
    return tensors


def main() -> None:
    """Print the comparison of the folder and the weight files that the command line names, as JSON."""
    folder, *files = map(Path, sys.argv[1:])
    answer, sys.stdout = sys.stdout, sys.stderr  # what libraries print is not the answer
    print(compare_with_class(folder, files).model_dump_json(), file=answer)


if __name__ == "__main__":
    main()
