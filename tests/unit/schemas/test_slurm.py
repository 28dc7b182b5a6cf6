"""What can be asked of Slurm, and the forms of its time limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.slurm import SlurmConfig, parse_time_limit


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("10:30", 630),
        ("2:00:01", 7201),
        ("1-0", 86_400),
        ("1-2:30", 95_400),
        ("1-02:30:15", 95_415),
        ("UNLIMITED", None),
        ("infinite", None),
        ("0", None),
        ("0:00", None),
        ("00:00:00", None),
        ("0-0", None),
    ],
)
def test_a_time_limit_is_read_as_slurm_reads_it(text: str, seconds: int | None) -> None:
    assert parse_time_limit(text) == seconds


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_what_sinfo_prints_is_read(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}" if days else f"{hours}:{minutes:02d}:{seconds:02d}"
    assert parse_time_limit(text) == (((days * 24 + hours) * 60 + minutes) * 60 + seconds or None)


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-5", "1.5", "1-", "n/a"])
def test_what_is_no_time_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="minutes"):
        parse_time_limit(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partition", "a\nb"),
        ("account", " "),
        ("time", "soon"),
        ("memory", "lots"),
        ("memory", "1.5G"),
        ("extra", ["--array=0-3"]),
        ("extra", ["--requeue"]),
        ("extra", ["--clusters=other"]),
        ("extra", ["-M other"]),
        ("extra", ["--test-only"]),
        ("extra", ["--parsable"]),
        ("extra", ["--uid=0"]),
        ("extra", ["--gid=0"]),
        ("extra", ["--clust other"]),
        ("extra", ["--"]),
        ("extra", ["exclusive"]),
        ("extra", ["--exclusive\n--array=3"]),
        ("env", {"A-B": "x"}),
        ("env", {"A": True}),
        ("env", {"A": 3.10}),
        ("env", {"A": None}),
        ("env", {"A": "x\0"}),
        ("container", "apptainer 'exec"),
        ("max_queue_s", 0),
        ("client", "rest"),
        ("extra", ["--exclude=node7"]),
        ("exclude_nodes", ["node 7"]),
        ("exclude_nodes", ["node7,node8"]),
        ("exclude_nodes", ["./file"]),
        ("cpus_per_replica", 0),
    ],
)
def test_what_slurm_cannot_be_asked_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        SlurmConfig.model_validate({field: value})


def test_values_as_yaml_gives_them_are_taken() -> None:
    config = SlurmConfig.model_validate({"extra": "--exclusive", "env": {"A": 1, "B": "x"}, "time": "1-00:00"})
    allowed = ("--wait-all-nodes=1", "--export-file=/f", "--cluster-constraint=a", "--mail-type=FAIL")
    assert SlurmConfig.model_validate({"extra": allowed}).extra == allowed
    assert SlurmConfig.model_validate({"exclude_nodes": "gpu-[7-9,12]a.b"}).exclude_nodes == ("gpu-[7-9,12]a.b",)
    assert (config.extra, config.env) == (("--exclusive",), {"A": "1", "B": "x"})
