"""Which engine a specification names."""

from contextlib import suppress
from importlib import import_module

from infra.engines.base import Engine
from schemas.errors import SetupError
from schemas.inference import EngineImport, EngineSpec
from schemas.sampling import SamplingSpec


def import_engine(wanted: EngineImport) -> None:
    """Import what `open_engine` would, which then takes seconds less. What cannot be imported is for it to tell."""
    with suppress(ImportError, SetupError):
        if wanted.engine == "vllm":
            from infra.engines.vllm import import_vllm

            import_vllm(wanted.num_threads, strict=wanted.strict)
        elif wanted.engine == "transformers":
            import_module("infra.engines.row_sampling")  # torch and transformers with it


def open_engine(spec: EngineSpec, sampling: SamplingSpec, num_threads: int | None) -> Engine:
    """Load the engine that `spec` names; `num_threads` limits its CPU threads, None leaves them to the engine.

    Call it once per process, before anything imports torch: thread settings are read at import.

    Raises:
        SetupError: there is no such adapter, or its packages are not in this environment.
        EngineOutOfMemoryError: the model or its cache does not fit.
        EngineError: loading failed for another reason.
    """
    if spec.engine == "vllm":
        from infra.engines.vllm import VllmEngine

        return VllmEngine(spec, sampling, num_threads)
    if spec.engine == "transformers":
        from infra.engines.transformers import TransformersEngine

        return TransformersEngine(spec, sampling, num_threads)
    if spec.engine == "stand_in":
        from infra.engines.stand_in import StandInEngine

        return StandInEngine(spec, sampling)
    raise SetupError(f"engine {spec.engine!r} has no adapter here; use rollout.backend vllm:d1 or transformers:d1")
