"""What an evaluation can be held to: findings that do not stop it, but may fail whoever asked for it."""

from typing import Final, Literal, get_args

Gate = Literal["drift", "inconsistency", "regression"]
"""drift: the dataset drifted or breaks its contract; inconsistency: the replicas disagree;
regression: the model is worse than an earlier checkpoint."""

GATES: Final[tuple[Gate, ...]] = get_args(Gate)
GATE_FAILED: Final = 3
"""Exit code of a command whose gate failed."""
