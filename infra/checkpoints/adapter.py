"""LoRA adapters as peft saves them: adapter_config.json and adapter_model.safetensors, without the base's weights.

Owns what makes an adapter whole, and that its updates fit the model that it names: of the engines one leaves out in
silence what it finds no module for. What a whole model is, is huggingface.py's.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from infra.checkpoints import huggingface
from infra.checkpoints.adapter_config import (
    CONFIG_NAME,
    PICKLE_NAME,
    WEIGHTS_NAME,
    AdapterConfig,
    UnsupportedAdapterError,
    read_adapter_config,
)
from infra.checkpoints.findings import MAX_SHOWN, Findings, list_names
from infra.checkpoints.global_step import find_position
from infra.checkpoints.hub import find_snapshot, is_hub_id
from infra.checkpoints.huggingface import InspectedModel
from infra.checkpoints.layouts.base import is_folder, is_weights, names_in
from infra.checkpoints.links import describe_links
from infra.checkpoints.options import InspectionOptions
from infra.checkpoints.safetensors_header import Tensor, read_header
from infra.tokenizer.files import VOCABULARY_FILES
from schemas.checkpoint import AdapterReport, CheckpointReport
from schemas.errors import CheckpointError

BASE_FOLDER: Final = "base_model"
"""Folder in an adapter's own that holds its base: so a pin keeps the two together."""

_UPDATE: Final = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.weight", re.DOTALL)
_PLAIN_DTYPES: Final = frozenset({"BF16", "F16", "F32", "F64"})
"""Of weights whose stored shape is that of the layer; quantised ones may be packed."""
_MERGE: Final = (
    "python -c 'import sys; from peft import AutoPeftModelForCausalLM as M; "
    'M.from_pretrained(sys.argv[1], dtype="auto").merge_and_unload().save_pretrained(sys.argv[2])\''
)


class _Update(NamedTuple):
    """The low-rank update of one linear layer: scale * B A."""

    a: Tensor | None
    """(rank, in)."""
    b: Tensor | None
    """(out, rank)."""


class _Base(NamedTuple):
    name: str
    model: InspectedModel


def is_adapter(folder: Path) -> bool:
    """Tell whether a folder holds an adapter and no whole weights."""
    names = names_in(folder)
    return CONFIG_NAME in names and not any(
        is_weights(name) and name not in (WEIGHTS_NAME, PICKLE_NAME) for name in names
    )


def inspect(folder: Path, options: InspectionOptions) -> CheckpointReport:
    """Read the adapter's metadata and its base's. The report tells of the two together; its files are the adapter's.

    Raises:
        OSError: a file vanished or may not be read.
    """
    findings = Findings()
    config = _read_config(folder, findings)
    tensors = _read_weights(folder, findings)
    base = _inspect_base(folder, config, options, findings) if config is not None else None
    position = find_position(folder)
    if config is None or base is None:
        return CheckpointReport(
            path=folder,
            status=findings.status,
            layout="huggingface",
            global_step=position.global_step,
            epoch=position.epoch,
            problems=tuple(findings.problems),
        )
    _check_updates(folder, tensors, config, findings)
    whole = base.model.report
    if tensors and whole.status == "complete":
        _check_fit(folder, tensors, config, base, findings)
    own = sum(tensor.num_elements for tensor in tensors.values())
    return whole.model_copy(
        update={
            "path": folder,
            "status": findings.status,
            "global_step": position.global_step,
            "epoch": position.epoch,
            "problems": tuple(findings.problems),
            "notes": (*describe_links(folder), *whole.notes),
            "weight_files": (folder / WEIGHTS_NAME,) if tensors else (),
            "num_parameters": None if whole.num_parameters is None else whole.num_parameters + own,
            "tokenizer_folder": whole.tokenizer_folder or whole.path,
            "adapter": AdapterReport(
                base_name=base.name,
                base_folder=whole.path,
                base_weight_files=whole.weight_files,
                max_rank=max(config.ranks),
                settings=config.settings,
            ),
        }
    )


def _read_config(folder: Path, findings: Findings) -> AdapterConfig | None:
    try:
        return read_adapter_config(folder)
    except UnsupportedAdapterError as exc:
        _ask_to_merge(folder, str(exc), findings)
    except CheckpointError as exc:
        findings.problems.append(str(exc))
    return None


def _read_weights(folder: Path, findings: Findings) -> dict[str, Tensor]:
    if not (folder / WEIGHTS_NAME).is_file():
        if (folder / PICKLE_NAME).is_file():
            what = f"{PICKLE_NAME}: pickle weights, and loading a pickle can run code; where you trust it"
            _ask_to_merge(folder, what, findings)
        else:
            findings.problems.append(
                f"{folder}: {CONFIG_NAME} without {WEIGHTS_NAME}; wait until it is written, or save the adapter again"
            )
        return {}
    try:
        tensors = read_header(folder / WEIGHTS_NAME)
    except CheckpointError as exc:
        findings.problems.append(str(exc))
        return {}
    if not tensors:
        findings.problems.append(f"{WEIGHTS_NAME}: holds no tensor; save the adapter again")
    return tensors


def _inspect_base(folder: Path, config: AdapterConfig, options: InspectionOptions, findings: Findings) -> _Base | None:
    """Return the adapter's base, with the tokenizer that goes with the two; None where it is not to be found."""
    try:
        place = _find_base(folder, config, options)
    except CheckpointError as exc:
        findings.problems.append(str(exc))
        return None
    own = folder if any((folder / name).is_file() for name in VOCABULARY_FILES) else None
    if own is None and (folder / "chat_template.jinja").is_file() and options.tokenizer_folder is None:
        findings.problems.append(
            f"{folder}: chat_template.jinja without a tokenizer; copy the tokenizer's files of the base model beside it"
        )
    inherited = InspectionOptions(
        tokenizer_folder=options.tokenizer_folder or own,
        allow_pickle_weights=options.allow_pickle_weights,
        base_folder=None,
    )
    model = huggingface.inspect(place, inherited)
    findings.problems.extend(f"its base {place}: {problem}" for problem in model.report.problems)
    findings.needs_conversion |= model.report.status == "needs_conversion"
    return _Base(str(options.base_folder or config.base_model_name_or_path or place), model)


def _find_base(folder: Path, config: AdapterConfig, options: InspectionOptions) -> Path:
    """Return the folder of the model that the adapter is applied to.

    Raises:
        CheckpointError: there is none, or it is no whole model.
    """
    place = _search_base(folder, config, options)
    if place.is_dir() and is_adapter(place):
        what = "the adapter itself" if place.samefile(folder) else "an adapter itself"
        raise CheckpointError(
            f"{folder}: its base {place} is {what}, and a base has to be a whole model; set actor.base_path to the "
            f"folder of the model that training started from"
        )
    return place


def _search_base(folder: Path, config: AdapterConfig, options: InspectionOptions) -> Path:
    if (folder / BASE_FOLDER).is_dir():
        return folder / BASE_FOLDER
    if options.base_folder is not None:
        return options.base_folder
    named = config.base_model_name_or_path
    if not named.strip():
        raise CheckpointError(
            f"{CONFIG_NAME}: base_model_name_or_path is absent or empty, so it names no base model; set "
            f"actor.base_path to the folder, or the hub id, of the model that training started from"
        )
    own = folder.absolute()
    for above in (own, own.parent, Path.cwd()):
        if is_folder(above / named):
            return above / named
    snapshot = find_snapshot(named, revision=config.revision)
    if snapshot is not None:
        return snapshot
    shown = repr(named[:MAX_SHOWN])
    fetching = f", or to {named} to have it fetched" if is_hub_id(named) else ""
    raise CheckpointError(
        f"{CONFIG_NAME}: base_model_name_or_path is {shown}, which is no folder (looked for in {own}, in {own.parent} "
        f"and here) nor in the hub client's cache; set actor.base_path to the base's folder{fetching}"
    )


def _check_updates(folder: Path, tensors: Mapping[str, Tensor], config: AdapterConfig, findings: Findings) -> None:
    """Check that the file holds whole updates of linear layers, of the ranks that the configuration tells."""
    others = [name for name, tensor in tensors.items() if not _UPDATE.fullmatch(name) or len(tensor.shape) != 2]
    if others:
        what = f"{WEIGHTS_NAME}: {list_names(others)}: no low-rank updates of linear layers, which alone are evaluated"
        _ask_to_merge(folder, what, findings)
    updates = _pair(tensors)
    single = [module for module, update in updates.items() if update.a is None or update.b is None]
    if single:
        findings.problems.append(f"{WEIGHTS_NAME}: lora_A or lora_B is missing of {list_names(single)}; save it again")
    wrong = [
        f"{module} ({a.shape[0]} by lora_A, {b.shape[1]} by lora_B)"
        for module, (a, b) in updates.items()
        if a is not None and b is not None and not (a.shape[0] == b.shape[1] and a.shape[0] in config.ranks)
    ]
    if wrong:
        ranks = " or ".join(map(str, sorted(config.ranks)))
        findings.problems.append(
            f"{WEIGHTS_NAME}: ranks of {list_names(wrong)}; {CONFIG_NAME} tells {ranks}: the two are of different "
            f"saves; save the adapter again"
        )


def _check_fit(
    folder: Path, tensors: Mapping[str, Tensor], config: AdapterConfig, base: _Base, findings: Findings
) -> None:
    """Check that the base has each of the adapter's layers, in its shape."""
    layers = {name.rpartition(".")[0] for name in base.model.tensors}
    updates = _pair(tensors)
    absent = [module for module in updates if layers and module not in layers]
    if absent:
        what = (
            f"{WEIGHTS_NAME}: {len(absent)} of {len(updates)} modules are not in the base {base.model.report.path} "
            f"({list_names(absent)}); set actor.base_path to the model that training started from, or, where that is "
            f"it and names its layers in another way"
        )
        _ask_to_merge(folder, what, findings)
    unfit: list[str] = []
    for module, (a, b) in updates.items():
        weight = base.model.tensors.get(f"{module}.weight")
        if a is None or b is None or weight is None or weight.dtype not in _PLAIN_DTYPES:
            continue
        shape = (b.shape[0], a.shape[1])
        if weight.shape != (shape[::-1] if config.fan_in_fan_out else shape):
            unfit.append(f"{module} ({shape[0]} x {shape[1]}, the base has {' x '.join(map(str, weight.shape))})")
    if unfit:
        findings.problems.append(
            f"{WEIGHTS_NAME}: {len(unfit)} of {len(updates)} updates do not fit the base {base.model.report.path}: "
            f"{list_names(unfit)}; set actor.base_path to the model that training started from"
        )


def _pair(tensors: Mapping[str, Tensor]) -> dict[str, _Update]:
    updates: dict[str, _Update] = {}
    for name, tensor in tensors.items():
        match = _UPDATE.fullmatch(name)
        if match is not None and len(tensor.shape) == 2:
            update = updates.get(match["module"], _Update(None, None))
            updates[match["module"]] = update._replace(**{match["side"].lower(): tensor})
    return updates


def _ask_to_merge(folder: Path, what: str, findings: Findings) -> None:
    findings.needs_conversion = True
    own, target = shlex.quote(str(folder)), shlex.quote(f"{folder}-merged")
    findings.problems.append(
        f"{what}: merge it into its base where peft is installed, save the tokenizer with it and evaluate that:\n"
        f"    {_MERGE} {own} {target}"
    )
