"""Every way in which a checkpoint folder is not whole is found by metadata, named with its file and numbers."""

import json
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.global_step import find_position
from infra.checkpoints.safetensors_header import read_header
from schemas.errors import CheckpointError
from tests.support.checkpoint_folders import CONFIG, make_checkpoint, safetensors

SHARD = "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"


def test_a_whole_checkpoint_is_complete_and_described(tmp_path: Path) -> None:
    report = inspect_checkpoint(make_checkpoint(tmp_path / "checkpoint-120", num_shards=3))
    assert (report.status, report.problems, report.layout) == ("complete", (), "huggingface")
    assert report.global_step == 120
    assert [path.name for path in report.weight_files] == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    assert (report.architecture, report.dtype, report.num_parameters) == ("LlamaForCausalLM", "bfloat16", 36)
    assert report.context_length == 1024
    assert report.eos_token_ids == (2, 5, 7, 9), "the union of tokenizer, generation_config and config"
    assert report.has_chat_template


def test_one_file_is_a_checkpoint_too(tmp_path: Path) -> None:
    report = inspect_checkpoint(str(make_checkpoint(tmp_path)))
    assert (report.status, report.num_parameters, report.global_step) == ("complete", 12, None)


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def _remove(*names: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / name).unlink() for name in names] and None


def _cut(name: str, num_bytes: int) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:num_bytes]) and None


def _config(**changes: object) -> Callable[[Path], None]:
    return _write("config.json", json.dumps({**CONFIG, **changes}).encode())


def _header(text: bytes, data: bytes = b"") -> Callable[[Path], None]:
    return _write(SHARD, struct.pack("<Q", len(text)) + text + data)


def _index(weight_map: object) -> Callable[[Path], None]:
    return _write(INDEX, json.dumps({"weight_map": weight_map}).encode())


WHOLE_MAP = {f"layer.{i}": f"model-0000{i + 1}-of-00003.safetensors" for i in range(3)}
TENSOR = {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_remove("config.json"), r"config\.json: the file is not there"),
        (_write("config.json", b'{"a'), r"config\.json: not valid JSON"),
        (_write("config.json", b"\xff\xfe"), r"config\.json: not valid JSON"),
        (_write("config.json", b"[1]"), r"config\.json: holds a JSON list, expected an object"),
        (_config(architectures=None), r"config\.json: architectures is None, expected a list such as"),
        (_config(architectures=[]), r"config\.json: architectures is \[\]"),
        (_remove(SHARD), rf"{SHARD}: listed in {INDEX} but not there"),
        (_cut(SHARD, 0), rf"{SHARD}: the file is empty \(0 bytes\)"),
        (_cut(SHARD, 5), rf"{SHARD}: 5 bytes, too short"),
        (_cut(SHARD, 60), rf"{SHARD}: truncated: its header ends at byte \d+, the file at 60"),
        (_cut(SHARD, -1), rf"{SHARD}: truncated: \d+ bytes, its header needs \d+"),
        (_write(SHARD, safetensors({"layer.1": (3, 4)}) + b"x"), "longer than its header says"),
        (_write(SHARD, b"\xff" * 64), r"claim a header of 18,446,744,073,709,551,615 bytes"),
        (_header(b"{nope"), f"{SHARD}: its header is not JSON"),
        (_header(b"[]"), f"{SHARD}: its header is not a JSON object"),
        (_header(b"{}"), f"{SHARD}: holds no tensor"),
        (_header(json.dumps({"layer.1": {**TENSOR, "shape": [3]}}).encode(), b"1234"), r"needs 6 bytes, .*span 4"),
        (_header(json.dumps({"layer.1": {**TENSOR, "shape": [-2]}}).encode(), b"1234"), "lacks a valid dtype, shape"),
        (_header(json.dumps({"a": {**TENSOR, "data_offsets": [4, 8]}}).encode(), b"12345678"), "starts at byte 4"),
        (
            _header(json.dumps({"layer.1": TENSOR, "b": {**TENSOR, "data_offsets": [2, 6]}}).encode(), b"123456"),
            "starts at byte 2 of the data where 4 is next",
        ),
        (_header(json.dumps({"other": TENSOR}).encode(), b"1234"), rf"{SHARD}: does not hold layer\.1"),
        (_write("model-00009-of-00009.safetensors", b"x"), rf"model-00009-of-00009\.safetensors: not part of {INDEX}"),
        (_write("model.safetensors", safetensors({"a": (1,)})), rf"model\.safetensors: not part of {INDEX}"),
        (_remove(INDEX), rf"{INDEX}: not there, so the 3 shards"),
        (_write(INDEX, b"{"), rf"{INDEX}: not valid JSON"),
        (_index({}), rf"{INDEX}: has no weight_map"),
        (_index({**WHOLE_MAP, "x": "../outside.safetensors"}), "places x outside the folder"),
        (_remove("tokenizer.json"), "no tokenizer .*tokenizer_path"),
        (_cut("tokenizer.json", 900), r"tokenizer\.json: empty or cut short"),
        (_write("tokenizer_config.json", b"{"), r"tokenizer_config\.json: not valid JSON"),
        (_write("generation_config.json", b"nul"), r"generation_config\.json: not valid JSON"),
    ],
)  # fmt: skip
def test_each_damage_is_named(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    folder = make_checkpoint(tmp_path / "c", num_shards=3)
    damage(folder)
    report = inspect_checkpoint(folder)
    assert report.status == "incomplete"
    assert len(report.problems) == 1
    with pytest.raises(CheckpointError, match=message):
        raise CheckpointError(report.problems[0])


def test_several_damages_are_told_together(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, num_shards=3)
    for damage in (_remove("config.json"), _cut(SHARD, 9), _remove("tokenizer.json")):
        damage(folder)
    assert len(inspect_checkpoint(folder).problems) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is nothing at this path"),
        (lambda path: path.write_text("x"), "this is a file"),
        (lambda path: path.mkdir(), "the folder is empty"),
        (lambda path: (path / "notes").mkdir(parents=True), "no config.json and no weights .found: notes"),
        (lambda path: make_checkpoint(path / "checkpoint-7"), "holds checkpoint folders .checkpoint-7"),
    ],
)
def test_what_is_no_checkpoint_is_told_apart(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    make(tmp_path / "it")
    report = inspect_checkpoint(tmp_path / "it")
    assert report.status == "not_a_checkpoint"
    with pytest.raises(CheckpointError, match=message):
        raise CheckpointError(report.problems[0])


def test_pickle_weights_need_conversion_unless_allowed(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    report = inspect_checkpoint(folder)
    assert report.status == "needs_conversion"
    assert "pytorch_model.bin: pickle weights only" in report.problems[0]
    assert "safetensors" in report.problems[0]
    allowed = inspect_checkpoint(folder, allow_pickle_weights=True)
    assert (allowed.status, [path.name for path in allowed.weight_files]) == ("complete", ["pytorch_model.bin"])
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert inspect_checkpoint(folder, allow_pickle_weights=True).status == "incomplete"


def test_a_missing_chat_template_is_reported_and_no_problem_in_itself(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    (folder / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|im_end|>"}}')
    report = inspect_checkpoint(folder)
    assert (report.status, report.has_chat_template, report.eos_token_ids) == ("complete", False, (2, 5, 7, 9))


def test_the_tokenizer_may_be_elsewhere(tmp_path: Path) -> None:
    folder, other = make_checkpoint(tmp_path / "c"), make_checkpoint(tmp_path / "t")
    (folder / "tokenizer.json").unlink()
    assert inspect_checkpoint(folder).status == "incomplete"
    assert inspect_checkpoint(folder, tokenizer_folder=other).status == "complete"


@pytest.mark.parametrize(
    ("config", "context", "dtype"),
    [
        ({"max_position_embeddings": 8, "torch_dtype": "torch.float16"}, 8, "float16"),
        ({"text_config": {"max_position_embeddings": 32, "dtype": "float32", "eos_token_id": 4}}, 32, "float32"),
        ({"n_positions": 64}, 64, "bfloat16"),
        ({}, None, "bfloat16"),
        (
            {
                "max_position_embeddings": 32,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
            },
            128,
            "bfloat16",
        ),
        ({"max_position_embeddings": 64, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 64, "bfloat16"),
    ],
)
def test_context_and_dtype_are_found_where_families_keep_them(
    tmp_path: Path, config: dict[str, object], context: int | None, dtype: str
) -> None:
    folder = make_checkpoint(tmp_path)
    (folder / "config.json").write_text(json.dumps({"architectures": ["X"], **config}))
    report = inspect_checkpoint(folder)
    assert (report.status, report.context_length, report.dtype) == ("complete", context, dtype)
    assert (4 in report.eos_token_ids) == ("text_config" in config)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-120", 120), ("global_step_7", 7), ("globalstep12", 12), ("epoch0epochstep3globalstep3", 3),
        ("step_120", 120), ("step-5", 5), ("iter_0000100", 100), ("global_step_120/actor/huggingface", 120),
        ("smollm2-135m-instruct", None), ("my-checkpoint-3b", None), ("step_", None),
    ],
)  # fmt: skip
def test_names_tell_the_step(tmp_path: Path, name: str, step: int | None) -> None:
    (tmp_path / name).mkdir(parents=True)
    assert find_position(tmp_path / name).global_step == step


def test_a_link_and_the_trainers_state_tell_the_step(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-9").mkdir()
    (tmp_path / "latest").symlink_to("checkpoint-9")
    assert find_position(tmp_path / "latest").global_step == 9
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "trainer_state.json").write_text('{"global_step": 44, "epoch": 2.75}')
    assert find_position(tmp_path / "final").global_step == 44
    assert find_position(tmp_path / "final").epoch == 2


@pytest.mark.parametrize("state", ["{}", '{"epoch": "two"}', '{"epoch": -1}', '{"epoch": NaN}', '{"epoch": true}', "{"])
def test_an_epoch_that_nothing_tells_is_none(tmp_path: Path, state: str) -> None:
    (tmp_path / "trainer_state.json").write_text(state)
    assert find_position(tmp_path).epoch is None


def test_a_name_of_areal_tells_the_epoch(tmp_path: Path) -> None:
    folder = tmp_path / "epoch3epochstep7globalstep107"
    folder.mkdir()
    assert find_position(folder).epoch == 3
    assert find_position(folder).global_step == 107


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_shard_or_a_checkpoint_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"any\.safetensors"):
        read_header(path)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=5).filter(lambda name: name != "__metadata__"),
                       st.lists(st.integers(0, 5), max_size=3).map(tuple), max_size=5), st.integers(1, 20))  # fmt: skip
def test_a_shard_is_whole_or_any_cut_of_it_is_found(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, tuple[int, ...]], cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.safetensors"
    whole = safetensors(tensors)
    path.write_bytes(whole)
    assert set(read_header(path)) == set(tensors)
    path.write_bytes(whole[:-cut])
    with pytest.raises(CheckpointError, match=r"cut\.safetensors"):
        read_header(path)


def test_files_that_vanish_meanwhile_give_a_report_and_no_traceback(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c", num_shards=3)
    names = sorted(path.name for path in folder.iterdir())
    contents = {name: (folder / name).read_bytes() for name in names}
    stop = threading.Event()

    def rotate() -> None:
        while not stop.is_set():
            for name in names:
                (folder / name).unlink()
            for name in names:
                (folder / name).write_bytes(contents[name])

    thread = threading.Thread(target=rotate)
    thread.start()
    try:
        statuses = {inspect_checkpoint(folder).status for _ in range(200)}
    finally:
        stop.set()
        thread.join()
    assert statuses <= {"complete", "incomplete", "not_a_checkpoint"}
    assert inspect_checkpoint(folder).status == "complete"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_what_may_not_be_read_is_a_problem(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    (folder / "model.safetensors").chmod(0)
    assert "check its permissions" in inspect_checkpoint(folder).problems[0]
    folder.chmod(0)
    assert "check the permissions" in inspect_checkpoint(folder).problems[0]
    folder.chmod(0o700)


@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja", INDEX, SHARD,
     "special_tokens_map.json"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("make", "kind"), [(os.mkfifo, "a FIFO"), (lambda path: path.symlink_to("/dev/zero"), "a device")]
)
def test_only_regular_files_are_read(tmp_path: Path, name: str, make: Callable[[Path], object], kind: str) -> None:
    folder = make_checkpoint(tmp_path / "c", num_shards=3)
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    report = inspect_checkpoint(folder)
    assert report.status == "incomplete"
    assert any(name in problem and f"({kind}; only regular files are read)" in problem for problem in report.problems)


def test_what_is_linked_outside_is_said_and_a_hub_snapshot_is_not(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    assert inspect_checkpoint(folder).notes == ()
    outside = tmp_path / "ours.jinja"
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    outside.write_text("{{ messages }}")
    (folder / "chat_template.jinja").symlink_to(outside)
    report = inspect_checkpoint(folder)
    assert report.status == "complete"
    assert report.notes == (f"linked outside the checkpoint: chat_template.jinja -> {outside}",)
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    make_checkpoint(snapshot)
    (tmp_path / "models--a--b" / "blobs").mkdir()
    blob = (snapshot / "model.safetensors").rename(tmp_path / "models--a--b" / "blobs" / "abcd")
    (snapshot / "model.safetensors").symlink_to(f"../../blobs/{blob.name}")
    assert inspect_checkpoint(snapshot).notes == ()
