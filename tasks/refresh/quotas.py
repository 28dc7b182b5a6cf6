"""How many items each stratum gives: shares in whole numbers, by largest remainders."""

import hashlib
import json
from collections.abc import Mapping

Stratum = tuple[str, ...]
"""Values of the subset keys that stratify, in their order; an absent one is empty."""


def largest_remainder(total: int, weights: Mapping[Stratum, int]) -> dict[Stratum, int]:
    """Return whole numbers in proportion to `weights` that sum to `total` (Hamilton's method).

    Each is its exact share rounded down or up. Equal remainders are ranked by a digest of the stratum's name: the order
    of `weights` does not matter, and names early in the alphabet have no advantage where strata are many and small. No
    share exceeds its weight while `total` is at most their sum.

    Raises:
        ZeroDivisionError: all weights are 0 and `total` is not.
    """
    if total == 0:
        return dict.fromkeys(weights, 0)
    whole = sum(weights.values())
    shares = {stratum: total * weight // whole for stratum, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda stratum: (-(total * weights[stratum] % whole), _lot(stratum)))
    for stratum in by_remainder[: total - sum(shares.values())]:
        shares[stratum] += 1
    return shares


def _lot(stratum: Stratum) -> bytes:
    return hashlib.blake2b(json.dumps(stratum).encode(), digest_size=16).digest()
