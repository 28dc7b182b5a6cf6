"""The files of a development cluster lie in its folder, listen on this machine alone, and name what was asked for."""

import re
from pathlib import Path

import pytest

from infra.devcluster.cluster import DevCluster
from infra.devcluster.configuration import ClusterPaths, gres_conf, slurm_conf, slurmdbd_conf
from infra.devcluster.preparation import check_machine, node_memory_mib
from schemas.devcluster import DevClusterSpec
from schemas.errors import SetupError

SPEC = DevClusterSpec(num_nodes=3, gpus_per_node=2, cpus_per_node=4, memory_per_node_mib=8000, accounting=True)
PATHS = ClusterPaths(folder=Path("/cluster"))


def configuration(spec: DevClusterSpec = SPEC, *, with_cgroups: bool = True) -> str:
    return slurm_conf(spec, PATHS, first_port=17000, host="here", with_cgroups=with_cgroups)


def test_every_node_has_a_port_of_its_own_and_its_devices() -> None:
    nodes = re.findall(r"NodeName=(\S+) NodeHostname=here NodeAddr=127.0.0.1 Port=(\d+) .* Gres=gpu:2", configuration())
    assert nodes == [("n1", "17002"), ("n2", "17003"), ("n3", "17004")]
    assert re.findall(r"SlurmctldPort=(\d+)|AccountingStoragePort=(\d+)", configuration()) == [
        ("17000", ""),
        ("", "17001"),
    ]
    assert gres_conf(SPEC, PATHS).count("Name=gpu File=/cluster/dev/") == 6
    assert gres_conf(SPEC.model_copy(update={"gpus_per_node": 0}), PATHS) == ""


def test_two_clusters_have_no_job_number_in_common() -> None:
    other = slurm_conf(SPEC, PATHS, first_port=17100, host="here", with_cgroups=True)
    assert "FirstJobId=1\n" in configuration()
    assert "FirstJobId=100001\n" in other


def test_nothing_outside_the_folder_is_named_and_nobody_else_can_connect() -> None:
    text = configuration() + slurmdbd_conf(PATHS, first_port=17000)
    paths = re.findall(r"(?<![\w/])/[\w./%-]+", text)
    assert len(paths) > 5
    assert all(path.startswith("/cluster/") for path in paths)
    assert "NoCtldInAddrAny" in text
    assert text.count("NoInAddrAny") == 2


def test_without_control_groups_or_accounting_their_parts_are_off() -> None:
    text = configuration(SPEC.model_copy(update={"accounting": False}), with_cgroups=False)
    assert "proctrack/linuxproc" in text
    assert "OverMemoryKill" in text
    assert "accounting_storage/none" in text
    assert "slurmdbd" not in text


@pytest.mark.parametrize("folder", ["/a b", "/a'b", "/a\nb", "/" + "a" * 90])
def test_a_folder_that_cannot_stand_in_slurms_files_is_refused(folder: str) -> None:
    with pytest.raises(SetupError, match="name another --folder"):
        check_machine(Path(folder), SPEC)


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("infra.devcluster.preparation._ADMINISTRATOR_FOLDERS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=r"apt-get install .*mariadb-server munge slurm-wlm slurm-wlm-basic-plugins"):
        check_machine(tmp_path, SPEC)


def test_a_folder_without_a_cluster_has_none_to_take_down(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    cluster = DevCluster(tmp_path)
    cluster.down()
    assert (tmp_path / "mine").exists()
    assert not cluster.status().is_up


def test_a_machine_without_memory_for_a_node_is_refused() -> None:
    assert node_memory_mib(8 << 30) == 8192
    with pytest.raises(SetupError, match=r"255 MiB of memory are available here and a node needs at least 256"):
        node_memory_mib((256 << 20) - 1)
