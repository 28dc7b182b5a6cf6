"""What makes two evaluations of one model the same: the key under which it is evaluated once."""

import hashlib
import json

from schemas.base import Model
from schemas.config import EvaluationConfig


def evaluation_key(config: EvaluationConfig) -> str:
    """Return the hex digest of everything in `config` that decides samples and scores, the checkpoint apart.

    Who launches, how many at once, what is reported and who is told are not part of it: changing them must not have a
    year of checkpoints evaluated anew. Nor are values that equal their defaults, so that a key added to a section by a
    later version changes nothing.
    """
    parts: dict[str, Model] = {
        "generation": config.generation,
        "valid_dataset": config.valid_dataset,
        "grading": config.grading,
    }
    document: dict[str, object] = {
        name: part.model_dump(mode="json", exclude_defaults=True) for name, part in parts.items()
    }
    document |= {
        "names": [config.experiment_name, config.trial_name],
        "seed": config.seed,
        "tokenizer_path": None if config.tokenizer_path == config.actor.path else config.tokenizer_path,
        "engine": config.engine_name,
        "dtype": config.actor.dtype,
        "strict": config.consistency.strict,
        "workflow": config.eval_workflow or config.workflow,
        "reward_fn": config.reward_fn,
        "pool": config.refresh.pool,
    }
    if config.engine.stand_in is not None:
        document["stand_in"] = config.engine.stand_in.model_dump(mode="json", exclude_defaults=True)
    text = json.dumps(document, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode("ascii"), digest_size=8, person=b"milepost-watch").hexdigest()


def evaluation_name(config: EvaluationConfig) -> str:
    """Return experiment, trial and dataset, for people."""
    dataset = config.valid_dataset.name or config.valid_dataset.path
    return f"{config.experiment_name}/{config.trial_name} on {dataset}"
