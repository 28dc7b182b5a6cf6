"""Which GPUs this process may use."""

import os
from collections.abc import Mapping
from typing import Literal

from infra.machine.resources import ask_nvidia_smi
from schemas.errors import SetupError

Device = Literal["cuda", "cpu"]


def visible_gpus(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none without a driver.

    An inherited CUDA_VISIBLE_DEVICES is a limit, and read as CUDA does: it ends at the first entry that is no device.

    Raises:
        SetupError: the driver does not answer.
    """
    present = _list_gpus()
    inherited = environ.get("CUDA_VISIBLE_DEVICES")
    if inherited is None or not present:
        return tuple(str(index) for index in range(len(present)))
    names: list[str] = []
    for entry in (part.strip() for part in inherited.split(",")):
        is_index = entry.isdigit() and int(entry) < len(present)
        is_uuid = entry.startswith("MIG-") or any(uuid.startswith(entry) for uuid in present if entry.startswith("GPU"))
        if not (is_index or is_uuid) or entry in names:
            break
        names.append(entry)
    return tuple(names)


def _list_gpus() -> tuple[str, ...]:
    """Return the UUIDs of the machine's GPUs in index order."""
    rows = ask_nvidia_smi("uuid")
    if rows is None:
        raise SetupError("nvidia-smi does not answer; run it to see what the driver lacks, or use a CPU engine")
    return tuple(uuid for (uuid,) in rows)
