"""Foreign exceptions are translated once: want of memory in every known shape, and nothing else as that."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from infra.engines.base import RequestRefusedError, translated
from infra.engines.selection import open_engine
from schemas.errors import EngineError, EngineOutOfMemoryError, MilepostError, SetupError
from schemas.inference import EngineSpec
from schemas.sampling import SamplingSpec

SPEC = EngineSpec(
    engine="vllm", model_path=Path("model"), dtype="auto", max_model_len=4096, batch_size=96, memory_ratio=0.7, seed=0
)
SAMPLING = SamplingSpec(temperature=0.0, top_p=1.0, top_k=-1, max_new_tokens=777, eos_token_ids=(2,))

TorchOutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})
ForeignOutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {"__module__": "database"})

OUT_OF_MEMORY = [
    MemoryError(),
    TorchOutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    TorchOutOfMemoryError("some other wording"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("NCCL error in: NCCLUtils.cpp:94, unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'"),
    OSError(12, "Cannot allocate memory"),
    ValueError("Available memory on node 0 (4.1/24.0 GiB) on startup is less than desired CPU memory utilization"),
    ValueError("Free memory on device cuda:0 (3.0/79.1 GiB) on startup is less than desired GPU memory utilization"),
    ValueError("No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    ValueError("To serve at least one request with the model's max seq len (8192), 3.0 GiB KV cache is needed"),
]
OTHER = [
    RuntimeError("mat1 and mat2 shapes cannot be multiplied (4x3 and 5x6)"),
    RuntimeError("Engine core initialization failed. See root cause above."),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("Cuda failure 1 'invalid argument'\nthe log is out of memory of what came before"),
    RuntimeError("could not find memory_format"),
    ForeignOutOfMemoryError("not an engine's"),
    KeyError("CUDA out of memory"),
    OSError(28, "No space left on device"),
    AssertionError(),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=repr)
def test_want_of_memory_names_what_to_lower(error: Exception) -> None:
    with pytest.raises(EngineOutOfMemoryError) as caught, translated(SPEC, SAMPLING):
        raise error
    for part in ("batch_size 96", "max_model_len 4096", "max_new_tokens 777", "memory_ratio 0.7", "lower"):
        assert part in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", OTHER, ids=repr)
def test_a_bug_keeps_its_name_and_text_and_is_no_want_of_memory(error: Exception) -> None:
    with pytest.raises(EngineError) as caught, translated(SPEC, SAMPLING):
        raise error
    assert type(error).__name__ in str(caught.value)
    assert " ".join(str(error).split()) in str(caught.value)


def test_the_cause_of_a_general_error_is_found() -> None:
    with pytest.raises(EngineOutOfMemoryError), translated(SPEC, SAMPLING):
        raise RuntimeError("engine failed") from ValueError("No available memory for the cache blocks.")


@pytest.mark.parametrize("error", [SetupError("absent"), RequestRefusedError("too long"), EngineError("dead")])
def test_an_error_of_ours_passes_as_it_is(error: MilepostError) -> None:
    with pytest.raises(type(error)) as caught, translated(SPEC, SAMPLING):
        raise error
    assert caught.value is error
    assert caught.value.__cause__ is None


def test_an_engine_without_adapter_is_refused_with_a_way_out() -> None:
    spec = SPEC.model_copy(update={"engine": "openai"})
    with pytest.raises(SetupError, match=r"openai.*vllm:d1"):
        open_engine(spec, SAMPLING, None)


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is in this environment")
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_an_environment_without_the_engine_says_how_to_get_it(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the adapter sets variables; put back after the test
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    with pytest.raises(SetupError, match="make setup"):
        open_engine(SPEC.model_copy(update={"engine": engine}), SAMPLING, 1)
