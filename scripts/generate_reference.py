"""Writes docs/reference/configuration.md from the configuration models; `--check` says whether it is up to date."""

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from schemas.config.deciding_keys import DECIDING_KEYS  # noqa: E402
from schemas.config.keys import KeySpec, key_specs  # noqa: E402 - the checkout is put on the path above
from schemas.config.origins import show_value  # noqa: E402
from schemas.config.training_keys import TRAINING_KEYS, TRAINING_SECTIONS  # noqa: E402

PAGE = ROOT / "docs/reference/configuration.md"
COMMAND = ".venv/bin/python scripts/generate_reference.py"

HEAD = f"""# Configuration: every key

<!-- Generated from the models in schemas/ by `{COMMAND}`; change the models' docstrings, not this page. -->

How to write and override a configuration is told in [Configuration](../configuration.md). A key is `section.name`;
what the default `null` stands for is told in the meaning.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or with `--check` compare; return the exit code: 1 when the page is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is out of date")
    check: bool = parser.parse_args(arguments).check
    text = render_page()
    if not check:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
        return 0
    present = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if present == text:
        return 0
    changes = difflib.unified_diff(present.splitlines(), text.splitlines(), "the page", "the models", lineterm="", n=0)
    sys.stderr.write("\n".join(changes) + f"\n{PAGE.relative_to(ROOT)} is out of date; run: {COMMAND}\n")
    return 1


def render_page() -> str:
    """Return the whole page as Markdown."""
    specs = list(key_specs().values())
    top = [spec for spec in specs if len(spec.path) == 1 and spec.model is None]
    parts = [HEAD, "## Top level\n", _table(top)]
    for section in (spec for spec in specs if spec.model is not None):
        keys = [spec for spec in specs if spec.path[:-1] == section.path and spec.model is None]
        note = f"{_prose(section.meaning)}{' Required.' if section.required else ''}"
        parts += [f"\n## `{section.dotted}`\n", f"{note}\n", _table(keys)]
    return "\n".join([*parts, _ignored()])


def _table(specs: Sequence[KeySpec]) -> str:
    rows = ["| key | type | default | allowed | meaning |", "|---|---|---|---|---|"]
    rows += [
        f"| `{spec.dotted}` | {_cell(spec.type_name)} | {'required' if spec.required else _code(spec.default)} "
        f"| {_cell(spec.allowed)} | {_cell(spec.meaning)} |"
        for spec in specs
    ]
    return "\n".join(rows)


def _code(default: object) -> str:
    return f"`{show_value(default)}`"


def _cell(text: str) -> str:
    """Text inside a table: a bar would end the cell."""
    return _prose(text.replace("|", "\\|"))


def _prose(text: str) -> str:
    """Text of a docstring: outside of code, a tag would be HTML, and YAML writes null for None."""
    pieces = text.split("`")
    prose = [re.sub(r"\bNone\b", "null", piece).replace("<", "&lt;").replace(">", "&gt;") for piece in pieces[::2]]
    pieces[::2] = prose
    return "`".join(pieces)


def _ignored() -> str:
    lines = [
        "\n## Keys of training configs that are ignored\n",
        "Whole sections and values, named in one line when a file has them: "
        + ", ".join(f"`{name}`" for name in sorted(TRAINING_SECTIONS))
        + ". Of these, `allocation_mode`, `model` and `reward_fn_path` of older files are read as `rollout.backend`, "
        "`actor` and `reward_fn` where the file has none.\n",
        "Keys inside sections that evaluation reads, ignored without a word:\n",
    ]
    lines += [
        f"- `{section}`: {', '.join(f'`{name}`' for name in sorted(names))}."
        for section, names in TRAINING_KEYS.items()
    ]
    neutral = ", ".join(f"`{name}` ({_code(values[0])})" for name, values in DECIDING_KEYS.items())
    lines.append(
        "\n## Keys that decide what is generated or scored and are refused\n\n"
        f"Accepted only with the value that changes nothing, or where they are not set: {neutral}. Any other is an "
        "error. So is a key that no list knows and whose name speaks of agents, workflows, prompts, rewards, tools, "
        "quantization and the like. What stands under `vllm` and `sglang` counts where the backend is that engine.\n\n"
        "`gconfig.max_tokens` becomes `valid_dataset.max_length`, the `dtype` of the backend's section `actor.dtype`, "
        "`valid_dataset.reward_fn` becomes `reward_fn`, and `workflow_kwargs.enable_thinking` "
        "`chat.template_kwargs.enable_thinking`, where those are not set.\n"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
