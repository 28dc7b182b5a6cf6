"""What the ranks of a training run agree on, where there are any: torch.distributed, if this process has imported it.

Nothing is imported here: who has ranks has imported torch already, and a trainer of another kind need not have it.
"""

import os
import sys
from types import ModuleType


def is_first_rank() -> bool:
    """Whether this process speaks for its training run: rank 0, or the only one."""
    distributed = _distributed()
    if distributed is not None:
        return distributed.get_rank() == 0
    return os.environ.get("RANK", "0") == "0"  # torchrun and its like set it before anything is initialised


def find_longest(seconds: float, group: object | None) -> float:
    """Return the largest value that any rank of the process group passes; every rank of it has to call this."""
    distributed = _distributed()
    if distributed is None:
        return seconds
    everywhere = [seconds] * distributed.get_world_size(group)
    distributed.all_gather_object(everywhere, seconds, group=group)
    return max(everywhere)


def _distributed() -> ModuleType | None:
    """Return torch.distributed where it is initialised."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None
