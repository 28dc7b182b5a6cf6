"""The batch script is a pure function of what is to run: golden texts, and bash reads back exactly what was meant."""

import ast
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.jobs.base import LaunchSpec, Placement
from infra.slurm.script import BatchJob, batch_options, batch_script, quote_directive
from schemas.errors import ConfigError
from schemas.slurm import SlurmConfig

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "slurm"
ACCEPT = "MILEPOST_ACCEPT_GOLDEN=1 pytest tests/unit/infra/slurm/test_script.py"
HOSTILE = 'it\'s a $(touch pwned) `x` "so" 100% \\n'


def element(number: int, *, folder: str = "/runs/r", num_gpus: int = 1, num_cpus: int = 8) -> LaunchSpec:
    return LaunchSpec(
        key=f"r/replica-{number}",
        argv=("/env/bin/python", "-m", "tasks.inference.worker", f"{folder}/{number}/spec.json"),
        cwd=Path(f"{folder}/{number}"),
        log_path=Path(f"{folder}/{number}.log"),
        placement=Placement(num_gpus=num_gpus, num_cpus=num_cpus),
        env={"PYTHONPATH": "/milepost", "PYTHONUNBUFFERED": "1"},
    )


def job(config: SlurmConfig, *elements: LaunchSpec) -> BatchJob:
    return BatchJob(name="milepost-r-0123abcd", comment="r/replica-0 +1 0a1b2c", elements=elements, config=config)


JOBS = {
    "plain": job(SlurmConfig(), element(0), element(1)),
    "everything": job(
        SlurmConfig(
            partition="gpu,big",
            account="team a",
            qos="high",
            time="1-12:00:00",
            constraint="[a100|h100]&nvlink",
            reservation="milepost",
            memory="64G",
            extra=("--mail-type=FAIL",),
            exclude_nodes=("node[7-9]", "node12"),
            env={"TOKEN": "never in a script"},
            container="apptainer exec --nv --bind '/data/my files' /images/vllm.sif",
        ),
        replace(element(0, num_gpus=8, num_cpus=64), exclude_nodes=("node3",)),
    ),
    "pyxis": job(
        SlurmConfig(
            env={"HF_HOME": "/never/in a script"},
            container="srun --container-image='/images/it is $(vllm).sqsh' --container-mounts='/a b:/a b,/c:/c'",
        ),
        element(0, folder="/a b/it's", num_gpus=2),
        element(1, folder="/a=b/it's", num_gpus=2),
    ),
    "hostile": job(
        SlurmConfig(account=HOSTILE, container="srun --container-image='my image'"),
        element(0, folder=f"/runs/{HOSTILE}\nline", num_gpus=0, num_cpus=1),
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_the_script_is_the_golden_one(name: str) -> None:
    text = batch_script(JOBS[name])
    path = GOLDEN / f"{name}.sh"
    if os.environ.get("MILEPOST_ACCEPT_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"a change that is wanted is accepted by: {ACCEPT}"
    assert not any(value in text for value in JOBS[name].config.env.values())


@pytest.mark.parametrize("name", JOBS)
def test_bash_can_read_the_script(name: str) -> None:
    subprocess.run(["bash", "-n", GOLDEN / f"{name}.sh"], check=True)


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=40)
@given(word=TEXT, value=TEXT)
def test_bash_reads_back_whatever_was_written(word: str, value: str) -> None:
    spec = LaunchSpec(
        key="k",
        argv=("program", word),
        cwd=Path("/") / word.replace("/", "_"),
        log_path=Path("/log"),
        placement=Placement(num_gpus=0, num_cpus=1),
        env={"VALUE": value},
    )
    script = batch_script(job(SlurmConfig(), spec))
    until_esac = script[: script.index("\nesac\n") + len("\nesac\n")]
    tell = 'printf "%s\\0" "${argv[@]}" "$folder" "$VALUE"'
    environment = {"SLURM_ARRAY_TASK_ID": "0", "LC_ALL": "C.UTF-8"}
    answer = subprocess.run(["bash", "-c", until_esac + tell], env=environment, capture_output=True, check=True)
    assert answer.stdout.decode().split("\0")[:-1] == ["program", word, str(spec.cwd), value]


@settings(max_examples=20)
@given(word=TEXT, value=TEXT)
def test_what_an_image_sets_does_not_win(word: str, value: str) -> None:
    spec = LaunchSpec(
        key="k",
        argv=("python3", "-c", "import os, sys; print(ascii([sys.argv[1:], os.environ['VALUE']]))", word, "--", "A=b"),
        cwd=Path("/"),
        log_path=Path("/log"),
        placement=Placement(num_gpus=0, num_cpus=1),
        env={"VALUE": value},
    )
    image = "env -i VALUE=image PATH=/usr/bin:/bin LC_ALL=C.UTF-8 SLURM_JOB_ID=5"
    script = batch_script(job(SlurmConfig(container=image), spec))
    esac = script.index("\nesac\n") + len("\nesac\n")
    start = script[script.index("env -i ") : script.index(" </dev/null &")]
    environment = {"SLURM_ARRAY_TASK_ID": "0", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    answer = subprocess.run(["bash", "-c", script[:esac] + start], env=environment, capture_output=True, check=True)
    assert ast.literal_eval(answer.stdout.decode()) == [[word, "--", "A=b"], value]


def test_an_image_makes_no_rank_of_a_replica_and_takes_its_devices_not_away() -> None:
    tell = (
        "import os; print(sorted((name, value) for name, value in os.environ.items()"
        " if 'RANK' in name or 'MASTER' in name or 'SIZE' in name or 'VISIBLE' in name or 'PMI' in name))"
    )
    spec = replace(element(0), argv=(sys.executable, "-c", tell), env={})
    image = "env -i RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=n1 MASTER_PORT=29500 PMI_SIZE=2 PATH=/usr/bin:/bin"
    script = batch_script(job(SlurmConfig(container=image, env={"MASTER_PORT": "from a secret place"}), spec))
    esac = script.index("\nesac\n") + len("\nesac\n")
    start = script[script.index("env -i ") : script.index(" </dev/null &")]
    given = {"CUDA_VISIBLE_DEVICES": "2,3", "ROCR_VISIBLE_DEVICES": "", "MASTER_PORT": "1"}
    environment = {"SLURM_ARRAY_TASK_ID": "0", "PATH": "/usr/bin:/bin", **given}
    answer = subprocess.run(["bash", "-c", script[:esac] + start], env=environment, capture_output=True, check=True)
    assert ast.literal_eval(answer.stdout.decode()) == sorted(given.items())


def test_a_job_removes_the_caches_of_those_that_were_killed_on_its_node(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    dead, alive, elsewhere = (
        tmp_path / f"milepost+{name}" for name in (f"n1+7.{ended.pid}", f"n1+8.{os.getpid()}", f"n1-b+9.{ended.pid}")
    )
    for cache in (dead, alive, elsewhere):
        (cache / "triton").mkdir(parents=True)
    code = (
        "import os, pathlib; path = pathlib.Path(os.environ['VLLM_CACHE_ROOT']); path.mkdir(parents=True); print(path)"
    )
    spec = replace(element(0), argv=(sys.executable, "-c", code), cwd=tmp_path, log_path=tmp_path / "log")
    script = tmp_path / "job.sh"
    script.write_text(batch_script(job(SlurmConfig(), spec)))
    slurm = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "10", "SLURMD_NODENAME": "n1"}
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), **slurm}
    subprocess.run(["bash", script], env=environment, check=True)
    assert [cache.exists() for cache in (dead, alive, elsewhere)] == [False, True, True]
    own = Path((tmp_path / "log").read_text().strip()).parent
    assert own.name.startswith("milepost+n1+10.")
    assert not own.exists()


def test_a_line_break_is_in_no_directive() -> None:
    for text in ("a\nb", "a\rb", "a\0b"):
        with pytest.raises(ConfigError, match="line break"):
            quote_directive(text)
    # shell comments are all that Slurm reads; a directive after the first command would be ignored
    script = batch_script(JOBS["hostile"])
    directives = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    assert script.splitlines()[1 : 1 + len(directives)] == directives


def test_the_output_of_slurm_goes_where_its_patterns_cannot_lead_it_astray() -> None:
    assert batch_options(Path("/a/100%j")) == ["--chdir=/", "--output=/a/100%%j/slurm-%A_%a.out"]
    assert batch_options(Path("/a\\b")) == ["--chdir=/", "--output=/dev/null"]
