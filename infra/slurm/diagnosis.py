"""What `milepost doctor` says of Slurm."""

import shutil

from infra.slurm.selection import SelectedClient
from schemas.diagnosis import Check, CheckStatus
from schemas.errors import SetupError, TransientError


def check_slurm(selected: SelectedClient) -> Check:
    """The cluster that this machine talks with; without one, only `scheduler.type: slurm` is missed."""
    if shutil.which("sinfo") is None:
        return Check(name="slurm", status=CheckStatus.OK, detail="not installed; scheduler.type: local does without")
    try:
        nodes = selected.client.nodes()
    except (SetupError, TransientError) as exc:
        fix = "`sinfo` must work for scheduler.type: slurm; `milepost devcluster up` brings a cluster up to try it"
        return Check(name="slurm", status=CheckStatus.WARNING, detail=str(exc), fix=fix)
    by_name = {node.node: node for node in nodes}
    num_gpus = sum(node.num_gpus for node in by_name.values())
    partitions = ", ".join(sorted({node.partition for node in nodes}))
    detail = f"{len(by_name)} nodes, {num_gpus} GPUs, partitions {partitions}; spoken to by {selected.reason}"
    return Check(name="slurm", status=CheckStatus.OK, detail=detail)
