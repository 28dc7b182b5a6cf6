"""Every wrong input ends the command with exit code 2, a message that helps, and nothing launched."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.preflight import check_layout_elsewhere
from schemas.config import load_config
from schemas.errors import ConfigError
from tests.support.checkpoint_folders import CONFIG
from tests.support.evaluation_bench import ROWS, Bench, remove_template

ROOT = Path(__file__).resolve().parents[3]
SHARD = "model-00002-of-00003.safetensors"

Damage = Callable[[Path], object]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def spoil_config(folder: Path) -> None:
    (folder / "config.json").write_text(
        json.dumps({key: value for key, value in CONFIG.items() if key != "architectures"})
    )


def cut_shard(folder: Path) -> None:
    shard = folder / SHARD
    shard.write_bytes(shard.read_bytes()[:-5])


def keep_pickle_only(folder: Path) -> None:
    for path in folder.glob("model*"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")


def remove_all(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove_all, ["empty"]),
        (
            lambda folder: (folder / SHARD).unlink(),
            [SHARD, "listed in model.safetensors.index.json but not there", "copy it"],
        ),
        (cut_shard, [SHARD, "bytes"]),
        (spoil_config, ["config.json: architectures is None", "LlamaForCausalLM", "copy config.json"]),
        (lambda folder: (folder / "tokenizer.json").unlink(), ["no tokenizer", "tokenizer_path"]),
        (remove_template, ["chat template", "chat_template.jinja", "tokenizer_path"]),
        (keep_pickle_only, ["pytorch_model.bin", "safetensors", "allow_pickle_weights"]),
    ],
)
def test_a_damaged_checkpoint(bench: Bench, damage: Damage, words: list[str]) -> None:
    damage(bench.checkpoint)
    message = bench.refused()
    assert str(bench.checkpoint) in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("others", [(), ("tokenizer_path=${actor.path}",)])
def test_a_checkpoint_that_is_not_there(bench: Bench, others: tuple[str, ...]) -> None:
    message = bench.refused("actor.path=/no/such/checkpoint", *others)
    assert "/no/such/checkpoint" in message
    assert "actor.path" in message
    assert "tokenizer_path" not in message


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("rollout.backend=vllm:d0", ["'vllm:d0'", "from 1 to 65536", "write for instance vllm:d4t2"]),
        ("rollout.backend=vllm:d2d3", ["'vllm:d2d3'", "'d' is given twice", "at most once", "write for instance"]),
        ("rollout.backend=d4", ["'d4': no engine", "one of vllm, sglang", "write for instance vllm:d4"]),
        ("rollout.backend=sglang:e2d4", ["'sglang:e2d4'", "no dimension 'e'", "d (replicas)", "write for instance"]),
        ("rollout.backend=sglang:d1", ["'sglang:d1'", "available: vllm, transformers", "add rollout.backend=vllm:d1"]),
        ("scheduler.type=ray", ["'ray'", "available: local", "add scheduler.type=local"]),
        ("gconfig.n_samples=0", ["gconfig.n_samples = 0", "≥ 1", "the default is"]),
        ("gconfig.temperature=-1", ["gconfig.temperature = -1", "≥ 0", "the default is"]),
        (
            "gconfig.max_new_tokens=1024",
            ["max_new_tokens must be below the context length 1,024", "got 1,024", "lower"],
        ),
        ("gconfig.max_new_tokens=0", ["gconfig.max_new_tokens = 0", "≥ 1"]),
        ("gconfig.max_new_token=5", ["gconfig.max_new_token", "gconfig.max_new_tokens"]),
        ("gconfig=5", ["gconfig = 5", "expected a section with n_samples"]),
        ("nothing_of_the_kind=1", ["nothing_of_the_kind", "no such key", "experiment_name"]),
        ("gconfig.n_samples", ["'gconfig.n_samples'", "expected key.path=value"]),
        (
            "valid_dataset.path=/no/such/data.jsonl",
            ["'/no/such/data.jsonl' does not exist", "Set valid_dataset.path to"],
        ),
        ("valid_dataset.path=reasoning_gym:chain_sums", ["chain_sums", "chain_sum"]),
        ("tokenizer_path=/no/such/tokenizer", ["tokenizer_path: /no/such/tokenizer", "tokenizer.json"]),
        ("engine.python=/no/such/python", ["engine.python is /no/such/python", "name a Python interpreter"]),
        ("rollout.backend=vllm:d9999", ["9999 replicas need 9999 CPU cores", "use at most d"]),
        ("rollout.backend=vllm:d1t2", ["a replica of 2 GPUs", "use t1p1"]),
    ],
)
def test_a_value_that_cannot_be(bench: Bench, override: str, words: list[str]) -> None:
    message = bench.refused(override)
    for word in words:
        assert word in message


def test_a_torn_last_line(bench: Bench) -> None:
    bench.data.write_text(ROWS + '{"question": "4 + 1?", "ans')
    message = bench.refused()
    assert f"{bench.data}: 1 of 4 rows cannot be used" in message
    assert "row 4: is not JSON" in message
    assert "Mend the rows" in message


def test_a_column_that_is_not_there(bench: Bench) -> None:
    message = bench.refused("valid_dataset.columns.prompt=task", "valid_dataset.columns.gold=answer")
    assert "column 'task' is not in the data" in message
    assert "'question', 'answer'" in message
    assert "Set valid_dataset.columns.prompt" in message


def test_a_dataset_without_rows(bench: Bench) -> None:
    bench.data.write_text("")
    assert str(bench.data) in bench.refused()


def test_an_engine_environment_without_the_engine(bench: Bench) -> None:
    python = bench.config.parent / "python"
    python.write_text('#!/bin/sh\necho \'{"torch": "2.0", "python": "3.11.2"}\'\n')
    message = bench.refused()
    assert str(python) in message
    assert "make setup" in message


def test_an_engine_environment_that_does_not_run(bench: Bench) -> None:
    (bench.config.parent / "python").write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    message = bench.refused()
    assert "broken" in message
    assert "make setup" in message


@pytest.mark.parametrize("text", ["actor: {path: [\n", "- 1\n- 2\n", "\t:x\n", "a: 1\na: 2\n", "\x00\x01"])
def test_a_yaml_that_does_not_parse(bench: Bench, text: str) -> None:
    bench.config.write_text(text)
    assert str(bench.config) in bench.refused()


def test_a_config_that_is_not_there(bench: Bench) -> None:
    bench.config.unlink()
    assert str(bench.config) in bench.refused()


def test_a_file_in_the_place_of_the_store(bench: Bench) -> None:
    bench.fileroot.write_text("")
    message = bench.refused()
    assert f"{bench.fileroot} is a file" in message
    assert "cluster.fileroot" in message


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody can write: for root, who may write anything, a read-only mount."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    if os.geteuid() != 0:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
        yield folder
        folder.chmod(stat.S_IRWXU)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "milepost-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("root writes everywhere, and this machine does not let it mount a read-only tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_store_that_cannot_be_written(bench: Bench, unwritable: Path) -> None:
    message = bench.refused(f"cluster.fileroot={unwritable / 'out'}")
    assert str(unwritable) in message
    assert "cluster.fileroot" in message


def test_json_holds_the_error(bench: Bench) -> None:
    result = bench.evaluate("gconfig.n_samples=0", "--json")
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert document["error"]["type"] == "ConfigError"
    assert document["error"]["exit_code"] == 2
    assert "n_samples" in document["error"]["message"]


def test_a_refused_input_costs_no_import_of_prefect_or_an_engine(bench: Bench) -> None:
    (bench.checkpoint / SHARD).unlink()
    code = (
        "import sys\nfrom flows.cli import app\n"
        "try:\n    app(['evaluate', sys.argv[1]])\n"
        "except SystemExit as exc:\n"
        "    print(exc.code, sorted({'prefect', 'torch', 'vllm', 'transformers', 'scipy.stats'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", code, str(bench.config)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stdout == "2 []\n", result.stderr


def test_what_cannot_be_launched_is_not_deployed(bench: Bench) -> None:
    bench.config.write_text(bench.config.read_text() + "rollout: {backend: 'sglang:d1'}\n")
    result = CliRunner().invoke(app, ["deploy", str(bench.config)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "rollout.backend is 'sglang:d1', whose engine this version cannot launch" in result.stderr


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that answers as `sinfo` does where one partition allows an hour."""
    program = tmp_path / "bin" / "sinfo"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'n1|main*|up|1:00:00|4|(null)|idle'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("cluster")
def test_what_a_cluster_would_refuse_is_told_where_it_can_be_asked(bench: Bench, tmp_path: Path) -> None:
    def look(*overrides: str) -> None:
        check_layout_elsewhere(load_config(bench.config, overrides))

    slurm = ("scheduler.type=slurm", "scheduler.slurm.client=cli")
    with pytest.raises(ConfigError, match="no partition 'gpuu'; it has: main"):
        look(*slurm, "scheduler.slurm.partition=gpuu")
    with pytest.raises(ConfigError, match="at most 1:00:00"):
        look(*slurm, "scheduler.slurm.time=2:00:00")
    # what only this machine lacks, the one of the runs may have
    look(*slurm, "scheduler.slurm.partition=gpuu", f"engine.python={tmp_path / 'none'}")
    look("rollout.backend=vllm:d999")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("prefect.toml", "broken = [", "prefect.toml"),
        (".env", "PREFECT_CLIENT_MAX_RETRIES=x", "max_retries"),
    ],
)
def test_a_setting_of_prefect_that_cannot_be_is_no_traceback(tmp_path: Path, file: str, text: str, words: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", "from flows.cli import main; main()", "deploy"],
        cwd=tmp_path,
        env=inherited | {"PREFECT_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "error: Prefect's settings cannot be used" in done.stderr
    assert words in done.stderr


def test_prefect_api_url_without_a_server(bench: Bench) -> None:
    command = [sys.executable, "-c", "from flows.cli import main; main()", "evaluate", str(bench.config)]
    environment = {**os.environ, "PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT_HOME": str(bench.fileroot / "p")}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stderr
    assert "PREFECT_API_URL is http://127.0.0.1:9/api" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (bench.fileroot / "runs").exists()
