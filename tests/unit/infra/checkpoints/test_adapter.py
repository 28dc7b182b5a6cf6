"""A LoRA adapter is whole with its base, is refused with the reason where it is not, and has an identity of its own."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.adapter_config import AdapterConfig
from infra.checkpoints.digests import digest_checkpoint
from infra.checkpoints.discovery import find_checkpoints
from infra.checkpoints.folder_state import read_state
from infra.checkpoints.pins import link_checkpoint, pin_checkpoint, release_pin, verify_pin
from infra.checkpoints.weight_sample import sample_weights
from schemas.errors import CheckpointError
from tests.support.chat_folders import make_family
from tests.support.checkpoint_folders import (
    LAYERS,
    make_adapter,
    make_base,
    make_checkpoint,
    safetensors,
    updates,
)

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
UPDATE = "base_model.model.model.layers.0.self_attn.q_proj"


def test_an_adapter_is_described_with_its_base(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    report = inspect_checkpoint(make_adapter(tmp_path / "checkpoint-40", base))
    assert (report.status, report.problems, report.layout, report.global_step) == ("complete", (), "huggingface", 40)
    assert (report.architecture, report.dtype, report.context_length) == ("LlamaForCausalLM", "bfloat16", 1024)
    assert report.eos_token_ids == (2, 5, 7, 9)
    assert [path.name for path in report.weight_files] == [WEIGHTS]
    assert report.num_parameters == sum(a * b for a, b in LAYERS.values()) + sum(
        2 * (a + b) for a, b in LAYERS.values()
    )
    assert report.tokenizer_folder == base
    assert report.adapter is not None
    assert (report.adapter.base_name, report.adapter.base_folder) == (str(base), base)
    assert report.adapter.max_rank == 2
    assert report.loaded_files == (tmp_path / "checkpoint-40" / WEIGHTS, base / "model.safetensors")


@pytest.mark.parametrize("place", ["run/checkpoint-1/models/base", "run/models/base", "here/models/base"])
def test_a_relative_base_is_looked_for_where_it_may_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    base = make_base(tmp_path / place)
    (tmp_path / "here").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "here")
    report = inspect_checkpoint(make_adapter(tmp_path / "run/checkpoint-1", "models/base"))
    assert report.adapter is not None
    assert report.adapter.base_folder.samefile(base)
    assert report.status == "complete"


@pytest.mark.parametrize("revision", [None, "v1"])
def test_a_base_in_the_hub_clients_cache_is_found(tmp_path: Path, revision: str | None) -> None:
    from huggingface_hub import constants

    cache = tmp_path / "hub" / "models--org--small"
    make_base(cache / "snapshots" / "0f0f")
    (cache / "refs").mkdir()
    (cache / "refs" / (revision or "main")).write_text("0f0f")
    before = constants.HF_HUB_CACHE
    constants.HF_HUB_CACHE = str(tmp_path / "hub")  # read from the environment once, when it is imported
    try:
        report = inspect_checkpoint(make_adapter(tmp_path / "a", "org/small", revision=revision))
        other = inspect_checkpoint(make_adapter(tmp_path / "b", "org/small", revision="another"))
    finally:
        constants.HF_HUB_CACHE = before
    assert report.adapter is not None
    assert (report.status, report.adapter.base_folder.name, report.adapter.base_name) == (
        "complete", "0f0f", "org/small",
    )  # fmt: skip
    assert "or to org/small to have it fetched" in other.problems[0]


def test_a_base_of_the_users_goes_before_the_one_that_is_named(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    for named in (None, "", "org/gone", make_base(tmp_path / "other", fill=9)):
        report = inspect_checkpoint(make_adapter(tmp_path / "a", named), base_folder=base)
        assert report.adapter is not None
        assert (report.status, report.adapter.base_folder, report.adapter.base_name) == ("complete", base, str(base))


def test_the_adapters_own_tokenizer_goes_before_its_bases(tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "a", make_base(tmp_path / "base"))
    make_family("llama", adapter)
    assert inspect_checkpoint(adapter).tokenizer_folder == adapter
    other = make_checkpoint(tmp_path / "other")
    assert inspect_checkpoint(adapter, tokenizer_folder=other).tokenizer_folder == other


def _config(**changes: object) -> Callable[[Path, Path], object]:
    return lambda adapter, base: make_adapter(adapter, base, **changes)


def _write(name: str, content: bytes) -> Callable[[Path, Path], object]:
    return lambda adapter, _base: (adapter / name).write_bytes(content)


def _tensors(**changes: tuple[int, ...] | None) -> Callable[[Path, Path], object]:
    """Change tensors of the first update, by side and name."""
    shapes = updates() | {f"{UPDATE}.lora_{side}.weight": shape or () for side, shape in changes.items()}
    return _write(WEIGHTS, safetensors({name: shape for name, shape in shapes.items() if shape}))


INCOMPLETE: list[tuple[Callable[[Path, Path], object], str]] = [
    (_write(CONFIG, b"{"), r"adapter_config\.json: not valid JSON"),
    (_write(CONFIG, b"\xff"), r"adapter_config\.json: not valid JSON"),
    (_write(CONFIG, b"[" * 100_000), r"adapter_config\.json: not valid JSON"),
    (_write(CONFIG, b"[1]"), r"adapter_config\.json: holds a JSON list, expected an object"),
    (_write(CONFIG, b"{}"), r"peft_type is absent, allowed: 'LORA'"),
    (_write(CONFIG, b" " * (9 << 20)), r"9,437,184 bytes, at most 8,388,608 are read"),
    (_config(r=0), r"adapter_config\.json: r is 0: .*greater than or equal to 1"),
    (_config(r=-1), "r is -1: "),
    (_config(r="8"), "r is '8': .*valid integer"),
    (_config(r=None), "r is absent"),
    (_config(r=10**30), "r is 1000000"),
    (_config(lora_alpha="much"), "lora_alpha is 'much': .*valid number"),
    (_config(lora_alpha=float("nan")), "lora_alpha is nan: .*finite"),
    (_config(rank_pattern={"q_proj": 0}), r"rank_pattern\.q_proj is 0"),
    (_config(alpha_pattern={"q_(": 1}), r"alpha_pattern is .*no pattern of module names"),
    (_config(base_model_name_or_path=7), "base_model_name_or_path is 7: .*valid string"),
    (_config(base_model_name_or_path=None), "base_model_name_or_path is absent or empty.*actor.base_path"),
    (_config(base_model_name_or_path=" "), "base_model_name_or_path is absent or empty.*actor.base_path"),
    (_config(base_model_name_or_path="/no/such"), r"is '/no/such', which is no folder .*actor\.base_path"),
    (_config(base_model_name_or_path="no\nsuch $(x) 'y'"), r"is \"no\\nsuch \$\(x\) 'y'\", which is no folder"),
    (_config(base_model_name_or_path="nul\0byte"), r"is 'nul\\x00byte', which is no folder"),
    (_config(base_model_name_or_path="x" * 5000), "is 'x{200}', which is no folder"),
    (_config(base_model_name_or_path="."), "its base .* is the adapter itself"),
    (lambda adapter, base: (base / "config.json").unlink(), r"its base .*: config\.json: the file is not there"),
    (lambda adapter, base: (base / "tokenizer.json").unlink(), "its base .*: .*no tokenizer"),
    (lambda adapter, base: (base / "model.safetensors").write_bytes(b"12345678"), "its base .*truncated|its base .*: "),
    (lambda adapter, base: shutil.rmtree(base), "which is no folder"),
    (lambda adapter, base: make_adapter(base, "x").joinpath("model.safetensors").unlink(), "is an adapter itself"),
    (_write("chat_template.jinja", b"x"), "chat_template.jinja without a tokenizer"),
    (_write(WEIGHTS, b""), r"adapter_model\.safetensors: the file is empty"),
    (_write(WEIGHTS, safetensors(updates())[:-1]), r"adapter_model\.safetensors: truncated"),
    (_write(WEIGHTS, safetensors({})), r"adapter_model\.safetensors: holds no tensor"),
    (lambda adapter, base: (adapter / WEIGHTS).unlink(), "without adapter_model.safetensors; wait until it is written"),
    (_tensors(B=None), "lora_A or lora_B is missing of model.layers.0.self_attn.q_proj"),
    (_tensors(A=(3, 4), B=(6, 3)), r"ranks of .*q_proj \(3 by lora_A, 3 by lora_B\); adapter_config.json tells 2"),
    (_tensors(B=(6, 1)), r"q_proj \(2 by lora_A, 1 by lora_B\)"),
    (_tensors(A=(2, 5)), r"1 of 2 updates do not fit the base .*q_proj \(6 x 5, the base has 6 x 4\)"),
    (_tensors(B=(7, 2)), r"q_proj \(7 x 4, the base has 6 x 4\); set actor.base_path"),
    (_config(fan_in_fan_out=True), "2 of 2 updates do not fit the base"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), INCOMPLETE)
def test_each_damage_is_named(tmp_path: Path, damage: Callable[[Path, Path], object], message: str) -> None:
    base, adapter = make_base(tmp_path / "base"), make_adapter(tmp_path / "a", tmp_path / "base")
    damage(adapter, base)
    report = inspect_checkpoint(adapter)
    assert report.status == "incomplete"
    with pytest.raises(CheckpointError, match=message):
        raise CheckpointError("\n".join(report.problems))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_config(peft_type="IA3"), r"peft_type is 'IA3' \(evaluated: 'LORA' or None\)"),
        (_config(use_dora=True), "use_dora is True"),
        (_config(bias="lora_only"), "bias is 'lora_only'"),
        (_config(modules_to_save=["lm_head"]), r"modules_to_save is \['lm_head'\]"),
        (_config(target_parameters=["mlp.experts.gate_up_proj"]), "target_parameters is"),
        (_config(init_lora_weights="pissa_niter_4"), "init_lora_weights is 'pissa_niter_4'"),
        (_config(layer_replication=[[0, 2]], use_dora=True), "use_dora is True .*; layer_replication is"),
        (
            _write(WEIGHTS, safetensors(updates() | {"base_model.model.lm_head.weight": (9, 4)})),
            "lm_head.weight: no low",
        ),
        (_tensors(A=(2, 4, 3)), "q_proj.lora_A.weight: no low-rank updates of linear layers"),
        (
            _write(WEIGHTS, safetensors({name.replace("0", "7"): shape for name, shape in updates().items()})),
            r"2 of 2 modules are not in the base .*layers\.7\.self_attn\.q_proj",
        ),
    ],
)
def test_what_engines_do_not_take_is_to_be_merged(
    tmp_path: Path, change: Callable[[Path, Path], object], message: str
) -> None:
    adapter = make_adapter(tmp_path / "an adapter's", make_base(tmp_path / "base"))
    change(adapter, tmp_path / "base")
    report = inspect_checkpoint(adapter)
    assert report.status == "needs_conversion"
    problems = "\n".join(report.problems)
    with pytest.raises(CheckpointError, match=message):
        raise CheckpointError(problems)
    assert "merge_and_unload().save_pretrained(sys.argv[2])' '" in problems
    assert f"'{tmp_path}/an adapter'\"'\"'s-merged'" in problems


def test_pickle_weights_are_to_be_merged(tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "checkpoint-3", make_base(tmp_path / "base"))
    (adapter / WEIGHTS).rename(adapter / "adapter_model.bin")
    report = inspect_checkpoint(adapter)
    assert report.status == "needs_conversion"
    assert "pickle weights" in report.problems[0]
    assert read_state(adapter, adapter) is not None, "a watcher sees that it is there"


def test_whole_weights_beside_an_adapter_are_refused(tmp_path: Path) -> None:
    folder = make_adapter(make_base(tmp_path / "m"), "x")
    report = inspect_checkpoint(folder)
    assert report.status == "incomplete"
    assert "adapter_config.json: beside whole weights" in report.problems[0]


def test_verls_adapter_is_found_below_the_save(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    save = tmp_path / "global_step_7"
    (save / "actor" / "huggingface").mkdir(parents=True)
    (save / "actor" / "model_world_size_2_rank_0.pt").write_bytes(b"x")
    adapter = make_adapter(save / "actor" / "lora_adapter", base)
    report = inspect_checkpoint(save)
    assert (report.status, report.layout, report.global_step, report.path) == ("complete", "verl", 7, adapter)


def _digest(adapter: Path) -> str:
    report = inspect_checkpoint(adapter)
    assert report.status == "complete", report.problems
    return digest_checkpoint(report)


def test_identity_is_of_adapter_base_and_scale(tmp_path: Path) -> None:
    base, other = make_base(tmp_path / "base"), make_base(tmp_path / "other", fill=3)
    own = _digest(make_adapter(tmp_path / "a", base))
    assert own == _digest(make_adapter(tmp_path / "copy", base, r=2, lora_dropout=0.3, inference_mode=False))
    assert own == _digest(make_adapter(tmp_path / "moved", shutil.copytree(base, tmp_path / "moved base")))
    changed = [
        _digest(make_adapter(tmp_path / "x", other)),
        _digest(make_adapter(tmp_path / "x", base, fill=2)),
        _digest(make_adapter(tmp_path / "x", base, lora_alpha=8)),
        _digest(make_adapter(tmp_path / "x", base, use_rslora=True)),
        _digest(make_adapter(tmp_path / "x", base, alpha_pattern={"q_proj": 1})),
        digest_checkpoint(inspect_checkpoint(base)),
    ]
    assert len({own, *changed}) == 7


def test_a_pin_holds_adapter_and_base(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    adapter = make_adapter(tmp_path / "checkpoint-8", base)
    (adapter / "optimizer.pt").write_bytes(b"large")
    (adapter / "trainer_state.json").write_text('{"global_step": 8}')
    report = inspect_checkpoint(adapter)
    digest = digest_checkpoint(report)
    pin = pin_checkpoint(report, tmp_path / "pins")
    assert (pin.pinned, len(pin.marks)) == (True, 2)
    shutil.rmtree(adapter)
    shutil.rmtree(base)
    held = inspect_checkpoint(pin.folder)
    assert (held.status, held.global_step) == ("complete", 8), held.problems
    assert digest_checkpoint(held) == digest
    assert held.adapter is not None
    assert held.adapter.base_folder == held.tokenizer_folder == pin.folder / "base_model"
    assert held.adapter.base_name == str(base), "as the adapter names it, wherever it is"
    again = link_checkpoint(held, tmp_path / "again" / "m")
    assert again is None
    assert digest_checkpoint(inspect_checkpoint(tmp_path / "again" / "m")) == digest
    verify_pin(pin)
    with (pin.folder / "base_model" / "model.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(CheckpointError, match="was rewritten during the evaluation"):
        verify_pin(pin)
    release_pin(pin)


def test_the_tokenizer_that_goes_with_the_two_is_pinned_with_the_base(tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "a", make_base(tmp_path / "base"))
    make_family("llama", adapter)
    pin = pin_checkpoint(inspect_checkpoint(adapter), tmp_path / "pins")
    own = (adapter / "tokenizer.json").read_bytes()
    assert (pin.folder / "base_model" / "tokenizer.json").read_bytes() == own
    assert inspect_checkpoint(pin.folder).eos_token_ids == inspect_checkpoint(adapter).eos_token_ids
    release_pin(pin)


def test_the_sample_of_weights_is_of_both(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    first = make_adapter(tmp_path / "a", base)
    second = make_adapter(tmp_path / "b", base, fill=7)
    samples = [sample_weights(base), *(sample_weights(base, adapter=adapter) for adapter in (first, second))]
    assert len(set(samples)) == 3
    assert sample_weights(make_base(tmp_path / "copy"), adapter=first) == samples[1]


def test_a_watcher_sees_adapters_among_the_checkpoints(tmp_path: Path) -> None:
    for step in (20, 10):
        make_adapter(tmp_path / "run" / f"checkpoint-{step}", "org/base")
    found = find_checkpoints(tmp_path / "run")
    assert [one.position.global_step for one in found] == [10, 20]
    assert all(one.model == one.folder for one in found)


@given(
    rank=st.integers(1, 512),
    alpha=st.floats(-64, 64),
    other_rank=st.integers(1, 512),
    other_alpha=st.floats(-64, 64),
    root=st.booleans(),
)
def test_an_update_counts_by_the_first_pattern_that_its_modules_name_ends_with(
    rank: int, alpha: float, other_rank: int, other_alpha: float, root: bool
) -> None:
    config = AdapterConfig(
        r=rank,
        lora_alpha=alpha,
        use_rslora=root,
        rank_pattern={"q_proj": other_rank, r"layers\.0\..*": 1},
        alpha_pattern={"self_attn.q_proj": other_alpha},
    )

    def expected(alpha: float, rank: int) -> float:
        return alpha / (rank**0.5 if root else rank)

    assert config.scale("model.layers.1.self_attn.v_proj") == pytest.approx(expected(alpha, rank))
    assert config.scale("model.layers.0.self_attn.q_proj") == pytest.approx(expected(other_alpha, other_rank))
    assert config.scale("model.layers.0.self_attn.v_proj") == pytest.approx(expected(alpha, 1))
    assert config.scale("model.layers.1.mlp.xq_proj") == pytest.approx(expected(alpha, rank)), "whole names only"


def test_a_configuration_of_a_later_peft_is_read(tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "a", make_base(tmp_path / "base"), peft_version="9.9", something_new={"x": [1]})
    assert inspect_checkpoint(adapter).status == "complete"
    assert json.loads((adapter / CONFIG).read_text())["peft_version"] == "9.9"
