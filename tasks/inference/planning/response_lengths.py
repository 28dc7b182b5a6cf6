"""How long the answers to each problem were before: what balances the replicas of the next run."""

import logging

import pyarrow as pa
import pyarrow.compute as pc

from infra.store import Store
from schemas.errors import StoreError

logger = logging.getLogger(__name__)

_COLUMNS = ("item_id", "num_completion_tokens")


def earlier_lengths(store: Store, dataset: str) -> dict[str, float]:
    """Return item to the mean tokens of its completions in the last run on that dataset; empty without one.

    Runs of other weights and other settings serve as well: what is wanted is which problems take long. An earlier run
    that cannot be read is no reason not to make this one.
    """
    try:
        run = next((run for run in store.runs() if run.dataset == dataset), None)
        if run is None:
            return {}
        table = store.table("samples", run_id=run.run_id).to_table(columns=list(_COLUMNS))
    except (StoreError, OSError, pa.ArrowInvalid) as exc:
        logger.warning("the replicas are not balanced by the lengths of earlier answers: %s", exc)
        return {}
    made = table.filter(pc.field("num_completion_tokens") > 0)
    means = made.group_by("item_id").aggregate([("num_completion_tokens", "mean")]).to_pydict()
    return dict(zip(means["item_id"], means["num_completion_tokens_mean"], strict=True))
