"""A few faults of the campaign, with fixed seeds: no sample is lost, published twice, wrong or made again in vain."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from infra.devcluster.cluster import DevCluster
from tests.support.engine_environment import ROOT, require_engine

pytestmark = [pytest.mark.needs_engine, pytest.mark.needs_prefect, pytest.mark.timeout(1200)]


def run_campaign(
    faults: Sequence[str], options: Sequence[str] = (), environment: Mapping[str, str] = os.environ
) -> str:
    """What a small campaign prints; each of its faults must have found its moment."""
    require_engine()
    small = ["--runs", "1", "--items", "80", "--seed", "3", "--step-s", "0.02"]
    command = [sys.executable, str(ROOT / "benchmarks" / "fault_campaign.py"), "--faults", *faults, *small, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "undisturbed: 160 samples" in done.stdout
    for fault in faults:
        assert f"| {fault} | 1 |" in done.stdout
    return done.stdout


def test_faults_on_this_machine_damage_nothing() -> None:
    assert "no moment" not in run_campaign(["worker-sigkill", "controller-sigkill"])


@pytest.mark.needs_slurm
def test_faults_of_a_cluster_damage_nothing(cluster: DevCluster) -> None:
    assert "no moment" not in run_campaign(
        ["node-down", "preempted"], ["--scheduler", "slurm", "--cluster", str(cluster.paths.folder)]
    )


def test_an_unknown_fault_is_named(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "fault_campaign.py"), "--faults", "flood"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no fault 'flood' with --scheduler local; there are: worker-sigkill" in done.stderr
