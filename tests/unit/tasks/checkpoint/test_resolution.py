"""A name becomes a complete, identified and pinned folder, or an error that says everything at once."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.pins import release_pin, verify_pin
from infra.tokenizer.files import digest_tokenizer
from schemas.config import EvaluationConfig
from schemas.errors import CheckpointError
from tasks.checkpoint.resolution import inspect_source, resolve_checkpoint
from tasks.inference.planning.layout import check_adapter
from tests.support.chat_folders import make_family
from tests.support.checkpoint_folders import CONFIG, make_adapter, make_base, make_checkpoint

ROOT = Path(__file__).parents[4]
RESOLVE_AND_DIE = (
    "import os, sys; from schemas.config import EvaluationConfig\n"
    "from tasks.checkpoint.resolution import resolve_checkpoint\n"
    "resolved = resolve_checkpoint(EvaluationConfig.model_validate_json(sys.argv[1]))\n"
    "print(resolved.identity.weight_digest, flush=True); os._exit(9)\n"
)


def make_config(
    path: Path | str, fileroot: Path, *, tokenizer_path: str | None = None, **actor: str
) -> EvaluationConfig:
    return EvaluationConfig.model_validate(
        {
            "actor": {"path": str(path), **actor},
            "tokenizer_path": tokenizer_path,
            "cluster": {"fileroot": str(fileroot)},
            "valid_dataset": {"path": "reasoning_gym:chain_sum"},
        }
    )


def test_a_folder_is_resolved_and_released(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "global_step_3", num_shards=2)
    resolved = resolve_checkpoint(make_config(folder, tmp_path / "out"))
    assert resolved.report.status == "complete"
    assert resolved.report.global_step == 3
    assert resolved.pin.pinned
    assert resolved.folder.is_relative_to(tmp_path / "out" / "pins")
    assert {path.parent for path in resolved.report.weight_files} == {resolved.folder}
    verify_pin(resolved.pin)
    release_pin(resolved.pin)
    assert list((tmp_path / "out" / "pins").iterdir()) == []


def test_identity_is_of_the_content_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folders = [make_checkpoint(tmp_path / name, num_shards=2) for name in ("a", "checkpoint-9")]
    other = make_checkpoint(tmp_path / "other", num_shards=2, fill=1)
    template = make_checkpoint(tmp_path / "template", num_shards=2)
    (template / "chat_template.jinja").write_text("{{ messages[0].content }}")
    first, second, third, fourth = (
        resolve_checkpoint(make_config(folder, tmp_path / "out")).identity for folder in (*folders, other, template)
    )
    assert first == second
    assert first.weight_digest != third.weight_digest
    assert (first.tokenizer_digest, first.chat_template_digest) == (third.tokenizer_digest, third.chat_template_digest)
    assert first.weight_digest == fourth.weight_digest
    assert first.chat_template_digest != fourth.chat_template_digest


def test_every_problem_is_told_at_once_with_exit_code_2_and_no_pin(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    (folder / "config.json").unlink()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"is incomplete:\n  - config\.json.*\n  - .*no tokenizer") as caught:
        resolve_checkpoint(make_config(folder, tmp_path / "out"))
    assert caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["", "absent folder", "/absent/folder", "a/b/c", "x" * 300, "nul\0byte"])
def test_a_name_that_is_no_folder_is_a_checkpoint_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError):
        resolve_checkpoint(make_config(name or tmp_path / "none", tmp_path / "out"))


def test_a_run_resumes_from_its_pin_when_the_checkpoint_has_been_rotated_away(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    argv = [sys.executable, "-c", RESOLVE_AND_DIE, make_config(folder, tmp_path / "out").model_dump_json()]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    shutil.rmtree(folder)
    resolved = resolve_checkpoint(make_config(folder, tmp_path / "out"))
    assert resolved.identity.weight_digest == done.stdout.strip()
    assert resolved.pin.pinned
    release_pin(resolved.pin)
    with pytest.raises(CheckpointError, match="there is nothing at this path"):
        resolve_checkpoint(make_config(folder, tmp_path / "out"))


def test_the_leftover_of_a_killed_run_does_not_pile_up(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    argv = [sys.executable, "-c", RESOLVE_AND_DIE, make_config(folder, tmp_path / "out").model_dump_json()]
    subprocess.run(argv, cwd=ROOT, capture_output=True, check=False)
    resolved = resolve_checkpoint(make_config(folder, tmp_path / "out"))
    assert list((tmp_path / "out" / "pins").iterdir()) == [resolved.folder.parent]
    release_pin(resolved.pin)


def test_the_tokenizer_may_come_from_another_folder(tmp_path: Path) -> None:
    folder, other = make_checkpoint(tmp_path / "c"), make_checkpoint(tmp_path / "t")
    (folder / "tokenizer.json").unlink()
    (folder / "chat_template.jinja").write_text("the checkpoint's own")
    resolved = resolve_checkpoint(make_config(folder, tmp_path / "out", tokenizer_path=str(other)))
    assert (resolved.folder / "tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes()
    assert not (resolved.folder / "chat_template.jinja").exists(), "the template goes with the tokenizer"
    assert resolved.identity.tokenizer_digest == digest_tokenizer(other)
    release_pin(resolved.pin)
    with pytest.raises(CheckpointError, match=r"tokenizer_path: .* is not a folder"):
        resolve_checkpoint(make_config(folder, tmp_path / "out", tokenizer_path=str(tmp_path / "none")))


@pytest.mark.parametrize("offline", [True, False])
def test_a_hub_id_without_a_hub_says_so_and_what_to_do(tmp_path: Path, offline: bool) -> None:
    code = (
        "import sys; from schemas.config import EvaluationConfig; from schemas.errors import CheckpointError\n"
        "from tasks.checkpoint.resolution import resolve_checkpoint\n"
        "try: resolve_checkpoint(EvaluationConfig.model_validate_json(sys.argv[1]))\n"
        "except CheckpointError as exc: print(exc)\n"
    )
    # Port 9 of this machine answers nothing: the hub's client meets a refused connection.
    network = {"HF_HUB_OFFLINE": "1"} if offline else {"HF_ENDPOINT": "http://127.0.0.1:9"}
    env = {**os.environ, "HF_HOME": str(tmp_path / "hub"), **network}
    argv = [sys.executable, "-c", code, make_config("org/model@main", tmp_path / "out").model_dump_json()]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=120)
    assert "org/model@main: there is no such folder here, and the hub cannot be reached" in done.stdout
    assert "name a local folder" in done.stdout


def test_an_adapter_is_resolved_with_its_base(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    adapter = make_adapter(tmp_path / "checkpoint-6", base)
    resolved = resolve_checkpoint(make_config(adapter, tmp_path / "out"))
    assert (resolved.report.global_step, resolved.base_name) == (6, str(base))
    assert resolved.adapter is not None
    assert (resolved.adapter.path, resolved.adapter.max_rank) == (resolved.pin.folder, 2)
    assert (resolved.folder / "model.safetensors").samefile(base / "model.safetensors")
    assert resolved.identity.tokenizer_digest == digest_tokenizer(base)
    whole = resolve_checkpoint(make_config(base, tmp_path / "out"))
    assert (whole.adapter, whole.base_name) == (None, None)
    assert whole.identity.weight_digest != resolved.identity.weight_digest
    for each in (resolved, whole):
        release_pin(each.pin)


def test_base_path_and_tokenizer_path_go_before_what_an_adapter_says(tmp_path: Path) -> None:
    base, tokenizer = make_base(tmp_path / "base"), make_family("llama", tmp_path / "tokenizer")
    adapter = make_adapter(tmp_path / "a", "org/gone")
    named = partial(make_config, adapter, tmp_path / "out", base_path=str(base), tokenizer_path=str(tokenizer))
    resolved = resolve_checkpoint(named())
    assert resolved.base_name == str(base)
    assert resolved.identity.tokenizer_digest == digest_tokenizer(resolved.folder) == digest_tokenizer(tokenizer)
    inspected = inspect_source(named())
    assert inspected is not None
    assert inspected[1] == tokenizer
    held = resolve_checkpoint(named(pinned_path=str(resolved.pin.folder)))
    assert held.identity == resolved.identity
    for each in (resolved, held):
        release_pin(each.pin)


@pytest.mark.parametrize("base", ["/absent", "x" * 5000, "file"])
def test_a_base_path_that_is_no_folder_is_refused(tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    adapter = make_adapter(tmp_path / "a", make_base(tmp_path / "base"))
    with pytest.raises(CheckpointError, match=r"actor\.base_path: .* is not a folder; name the one"):
        resolve_checkpoint(make_config(adapter, tmp_path / "out", base_path=base))


def test_an_adapter_of_too_high_a_rank_is_refused_for_vllm_alone(tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "a", make_base(tmp_path / "base"), rank_pattern={"other_proj": 513})
    report = inspect_checkpoint(adapter)
    document = {"actor": {"path": str(adapter)}, "valid_dataset": {"path": "reasoning_gym:chain_sum"}}
    config = EvaluationConfig.model_validate(document)
    with pytest.raises(CheckpointError, match=r"rank is 513, vllm takes at most 512; add rollout.backend=transformers"):
        check_adapter(config, report)
    check_adapter(EvaluationConfig.model_validate(document | {"rollout": {"backend": "transformers:d1"}}), report)
    check_adapter(config, inspect_checkpoint(tmp_path / "base"))


def test_code_of_a_checkpoint_is_refused_with_our_key_before_anything_is_pinned(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    own_code = {**CONFIG, "model_type": "ours", "auto_map": {"AutoModelForCausalLM": "ours.Ours"}}
    (folder / "config.json").write_text(json.dumps(own_code))
    for resolve in (inspect_source, resolve_checkpoint):
        with pytest.raises(CheckpointError, match=r"engine\.trust_remote_code=true"):
            resolve(make_config(folder, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_what_needs_conversion_says_so_in_a_sentence(tmp_path: Path) -> None:
    save = tmp_path / "global_step_80"
    (save / "actor").mkdir(parents=True)
    (save / "actor" / "model_world_size_2_rank_0.pt").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=f"^the checkpoint {save}/actor needs conversion:"):
        resolve_checkpoint(make_config(save / "actor", tmp_path / "out"))
