"""Resolve a checkpoint: from what the user named to a complete, identified and pinned folder.

Owns the order of the steps: inspect, pin, identify, in which nothing is hashed that could be removed meanwhile.
Folders, links and the hub are infra.checkpoints'.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.architecture import check_engine_loads, check_tokenizer_loads
from infra.checkpoints.digests import digest_checkpoint
from infra.checkpoints.global_step import named_position
from infra.checkpoints.hub import fetch_checkpoint, is_hub_id
from infra.checkpoints.layouts.base import is_folder
from infra.checkpoints.model_config import digest_model_config
from infra.checkpoints.options import InspectionOptions
from infra.checkpoints.pins import (
    Pin,
    adopt_leftover_pin,
    adopted_pin,
    pin_checkpoint,
    release_leftover_pins,
    release_pin,
    source_digest,
)
from infra.tokenizer.files import (
    digest_chat_template,
    digest_tokenizer,
    find_chat_template,
    read_json_object,
    read_optional_json,
)
from schemas.checkpoint import CheckpointIdentity, CheckpointReport, CheckpointStatus
from schemas.config import EvaluationConfig
from schemas.errors import CheckpointError
from schemas.inference import AdapterSpec
from schemas.paths import expand_user
from schemas.training_position import TrainingPosition

logger = logging.getLogger(__name__)

_SENTENCES: Final[dict[CheckpointStatus, str]] = {
    "complete": "is complete",
    "incomplete": "is incomplete",
    "needs_conversion": "needs conversion",
    "not_a_checkpoint": "is not a checkpoint",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCheckpoint:
    """A checkpoint that can be evaluated. `release_pin(resolved.pin)` when it has been."""

    name: str
    """The checkpoint as the user named it."""
    report: CheckpointReport
    """What inspection found, its paths inside `folder`."""
    identity: CheckpointIdentity
    """Digests of weights, configuration, tokenizer and chat template."""
    folder: Path
    """Where the engine loads from: weights, configuration, tokenizer and chat template (tokenizer_path's, if set). Of
    an adapter: its base's, with the tokenizer that goes with the two."""
    adapter: AdapterSpec | None = None
    """What is applied to it; None for a whole model."""
    base_name: str | None = None
    """The model that training of the adapter started from, as it names it; None for a whole model."""
    pin: Pin
    """What holds `folder`; `pin.pinned` is False where hard links could not be made."""


def resolve_checkpoint(config: EvaluationConfig) -> ResolvedCheckpoint:
    """Inspect, pin and identify the checkpoint `actor.path`: a folder, or a hub id `org/name[@revision]`.

    Of a LoRA adapter with the model that it is applied to: `actor.base_path`, a folder or a hub id, else the one it
    names.

    Pins go to {cluster.fileroot}/pins, digests already computed to {cluster.fileroot}/cache. When the folder has been
    removed since a run of it was killed, the pin which that run left is used. `actor.pinned_path` is read in its place
    where it is given.

    Raises:
        CheckpointError: it cannot be evaluated, with every problem found and what to do about each.
        StoreError: `cluster.fileroot` cannot be written.
    """
    pin_root = _pin_root(config)
    options = _options(config)
    source = _find_source(config)
    leftover = None if _exists(source) else adopt_leftover_pin(pin_root, source)
    found = leftover.folder if leftover else source
    report = _inspect_complete(found, options)
    _check_engine_loads(report, config)
    for note in report.notes:
        logger.warning("%s: %s", found, note)
    if leftover is None:
        release_leftover_pins(pin_root, source)
        pin = pin_checkpoint(report, pin_root, source=source, tokenizer_folder=options.tokenizer_folder)
    else:
        pin = adopted_pin(report, source, leftover.ownership)
    try:
        # Again: what was inspected may have been replaced before it was linked, what is pinned stays.
        pinned = _inspect_complete(pin.folder, replace(options, tokenizer_folder=None, base_folder=None))
        # A position that the state or a link's name told is not in the pinned folder.
        position = _position(config.actor.path, report)
        pinned = pinned.model_copy(update={"global_step": position.global_step, "epoch": position.epoch})
        cache_file = config.cluster.folder / "cache" / "weight_digests.json"
        identity = identify_checkpoint(pinned, cache_file=cache_file)
    except BaseException:
        release_pin(pin)
        raise
    resolved = ResolvedCheckpoint(name=config.actor.path, report=pinned, identity=identity, folder=pin.folder, pin=pin)
    if report.adapter is None or pinned.adapter is None:
        return resolved
    return replace(
        resolved,
        folder=pinned.adapter.base_folder,
        adapter=AdapterSpec(path=pin.folder, max_rank=pinned.adapter.max_rank),
        base_name=report.adapter.base_name,
    )


def inspect_source(config: EvaluationConfig) -> tuple[CheckpointReport, Path] | None:
    """Return the report of a checkpoint and its tokenizer's folder, pinning and hashing nothing.

    None when the folder is gone and a killed run left a pin of it, which `resolve_checkpoint` takes over.

    Raises:
        CheckpointError: it cannot be evaluated, with every problem found.
    """
    options = _options(config)
    source = _find_source(config)
    if not _exists(source) and _has_leftover(_pin_root(config), source):
        return None
    report = _inspect_complete(source, options)
    _check_engine_loads(report, config)
    return report, report.tokenizer_folder or report.path


def identify_checkpoint(report: CheckpointReport, *, cache_file: Path | None = None) -> CheckpointIdentity:
    """Return the digests of a complete checkpoint's weights, configuration, tokenizer and chat template.

    Raises:
        CheckpointError: a file vanished, cannot be read, or changed while it was read.
    """
    folder = report.tokenizer_folder or report.path
    return CheckpointIdentity(
        weight_digest=digest_checkpoint(report, cache_file=cache_file),
        tokenizer_digest=digest_tokenizer(folder),
        chat_template_digest=digest_chat_template(find_chat_template(folder)),
        model_config_digest=digest_model_config(report),
    )


def _pin_root(config: EvaluationConfig) -> Path:
    return config.cluster.folder / "pins"


def _find_source(config: EvaluationConfig) -> Path:
    """Return the folder that is evaluated; one that exists, or of which a pin is left, wins over the hub."""
    name = config.actor.pinned_path or config.actor.path
    path = expand_user(name)
    if _exists(path) or not is_hub_id(name) or _has_leftover(_pin_root(config), path):
        return path
    try:
        return fetch_checkpoint(name, allow_pickle_weights=config.engine.allow_pickle_weights)
    except CheckpointError as exc:
        raise CheckpointError(f"actor.path: {exc}") from exc


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # not to be looked at: the inspection says why


def _has_leftover(pin_root: Path, path: Path) -> bool:
    return any(pin_root.glob(f"{source_digest(path.absolute())}-*"))


def _position(name: str, report: CheckpointReport) -> TrainingPosition:
    """What the name tells goes before what the folder tells, which may be a copy under another name."""
    named = named_position(expand_user(name))
    return report.position if named.global_step is None else named


def find_tokenizer(tokenizer_path: str) -> Path:
    """Return the folder of a tokenizer, fetched where a hub id names it.

    Raises:
        CheckpointError: it is no folder, or cannot be fetched.
    """
    try:
        found = _find_folder(tokenizer_path, partial(fetch_checkpoint, tokenizer_only=True))
    except CheckpointError as exc:
        raise CheckpointError(f"tokenizer_path: {exc}") from exc
    if found is None:
        raise CheckpointError(f"tokenizer_path: {tokenizer_path} is not a folder; name one that holds tokenizer.json")
    return found


def find_base(base_path: str | None, *, allow_pickle_weights: bool) -> Path | None:
    """Return the folder of the model that adapters are applied to, fetched where a hub id names it; None for None.

    Raises:
        CheckpointError: it is no folder, or cannot be fetched.
    """
    if base_path is None:
        return None
    try:
        found = _find_folder(base_path, partial(fetch_checkpoint, allow_pickle_weights=allow_pickle_weights))
    except CheckpointError as exc:
        raise CheckpointError(f"actor.base_path: {exc}") from exc
    if found is None:
        raise CheckpointError(
            f"actor.base_path: {base_path} is not a folder; name the one that holds config.json and the weights of the "
            f"model that the adapter is applied to"
        )
    return found


def _find_folder(name: str, fetch: Callable[[str], Path]) -> Path | None:
    path = expand_user(name)
    if is_folder(path):
        return path
    return fetch(name) if is_hub_id(name) and not _exists(path) else None


def _options(config: EvaluationConfig) -> InspectionOptions:
    allow_pickle_weights = config.engine.allow_pickle_weights
    # `tokenizer_path: ${actor.path}`, as training configs have it, is the checkpoint's own: what is wrong is actor.path
    tokenizer_path = None if config.tokenizer_path == config.actor.path else config.tokenizer_path
    return InspectionOptions(
        tokenizer_folder=find_tokenizer(tokenizer_path) if tokenizer_path else None,
        base_folder=find_base(config.actor.base_path, allow_pickle_weights=allow_pickle_weights),
        allow_pickle_weights=allow_pickle_weights,
    )


def _inspect_complete(folder: Path, options: InspectionOptions) -> CheckpointReport:
    report = inspect_checkpoint(
        folder,
        tokenizer_folder=options.tokenizer_folder,
        allow_pickle_weights=options.allow_pickle_weights,
        base_folder=options.base_folder,
    )
    if report.status != "complete":
        listed = "".join(f"\n  - {problem}" for problem in report.problems)
        raise CheckpointError(f"the checkpoint {folder} {_SENTENCES[report.status]}:{listed}")
    return report


def _check_engine_loads(report: CheckpointReport, config: EvaluationConfig) -> None:
    folder = report.path if report.adapter is None else report.adapter.base_folder
    settings, trusts = read_json_object(folder / "config.json"), config.engine.trust_remote_code
    tokenizer = read_optional_json((report.tokenizer_folder or report.path) / "tokenizer_config.json")
    problem = check_engine_loads(settings, config.engine_name, trust_remote_code=trusts) or check_tokenizer_loads(
        tokenizer, settings, config.engine_name, trust_remote_code=trusts
    )
    if problem is not None:
        raise CheckpointError(f"the checkpoint {folder} cannot be evaluated by {config.engine_name}:\n  - {problem}")
