"""The reference page says what the models say, and the how-to's examples hold."""

import subprocess
import sys
from pathlib import Path

from schemas.config import load_config
from schemas.config.keys import key_specs

ROOT = Path(__file__).parents[4]


def test_the_reference_page_is_up_to_date() -> None:
    script = ROOT / "scripts/generate_reference.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_key_has_a_meaning() -> None:
    assert [spec.dotted for spec in key_specs().values() if len(spec.meaning) < 8] == []


def test_the_smallest_file_of_the_how_to_loads(tmp_path: Path) -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    path = tmp_path / "eval.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    assert load_config(path).valid_dataset.path.startswith("reasoning_gym:")


def test_the_overrides_of_the_how_to_hold() -> None:
    overrides = [
        "gconfig.n_samples=4",
        'gconfig.stop=[END, "a, b"]',
        "eval_gconfig=null",
        "eval_gconfig={temperature: 0.6, top_p: 0.95}",
        "valid_dataset.path=reasoning_gym:chain_sum?size=50",
        "tokenizer_path=${actor.path}",
    ]
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert all(override.replace("=${actor.path}", "='${actor.path}'") in page for override in overrides)
    config = load_config(ROOT / "examples/training_rloo_vllm.yaml", overrides)
    assert config.gconfig.stop == ("END", "a, b")
    assert config.tokenizer_path == config.actor.path
    assert config.generation.top_p == 0.95
