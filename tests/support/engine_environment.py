"""Where the integration tests find the engine environment and the demo checkpoint."""

import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
CHECKPOINT = ROOT / ".demo" / "smollm2-135m-instruct"
IM_END = 2
"""The demo checkpoint's end-of-sequence token."""


def require_engine() -> None:
    """Skip the calling test where the engine environment or the demo checkpoint is missing."""
    for path in (ENGINE_PYTHON, CHECKPOINT / "model.safetensors"):
        if not path.exists():
            pytest.skip(f"{path.relative_to(ROOT)} is missing; `make setup` makes it")


def engine_process_environment() -> dict[str, str]:
    """Return the environment of a process that runs our code with the engine's Python on one thread."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def chat_token_ids(text: str) -> list[int]:
    """Return the token ids of a one-turn conversation in the demo checkpoint's format."""
    tokenizer = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    return tokenizer.encode(prompt, add_special_tokens=False).ids


def decode(token_ids: tuple[int, ...]) -> str:
    """Return the text of token ids, special tokens left out."""
    return Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")).decode(list(token_ids), skip_special_tokens=True)
