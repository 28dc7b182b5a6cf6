"""transformers' `generate` behind the engine interface: slower than vLLM, but runs every causal model and knows logits.

Batches are static: up to `batch_size` queued requests are generated together in a thread, and each row is handed over
at the token that ends it, not when its batch ends.
"""

# torch has no types in the controller's environment, where this file is checked:
# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportUntypedBaseClass=false
# pyright: reportUnknownLambdaType=false, reportArgumentType=false

import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from infra.engines.base import Generation, GenerationRequest, RequestRefusedError, translated
from infra.engines.device import collect_facts
from infra.engines.loaded_weights import check_loading_report
from infra.engines.lora import merge_adapter
from schemas.errors import EngineError, SetupError
from schemas.inference import EngineFacts, EngineSpec
from schemas.sampling import SamplingSpec

if TYPE_CHECKING:
    from torch import Tensor
    from transformers.modeling_utils import PreTrainedModel
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

    from infra.engines.row_sampling import RowSampler

_WAIT_S: Final = 1.0
"""Longest silence of `step`."""


class TransformersEngine:
    """`infra.engines.base.Engine` by transformers."""

    def __init__(self, spec: EngineSpec, sampling: SamplingSpec, num_threads: int | None) -> None:
        """Load model and tokenizer.

        Raises:
            SetupError, EngineOutOfMemoryError, EngineError: as `open_engine`.
        """
        self.num_passes = 0
        self._spec = spec
        self._sampling = sampling
        self._pending: deque[tuple[GenerationRequest, float]] = deque()
        self._in_use: set[str] = set()
        self._finished: queue.Queue[Generation | Exception] = queue.Queue()
        self._closing = threading.Event()
        self._batch: threading.Thread | None = None
        with translated(spec, sampling):
            self._model, self._tokenizer = _load(spec, num_threads)
        self._facts = collect_facts(spec, dtype=str(self._model.dtype), max_model_len=spec.max_model_len)

    @property
    def facts(self) -> EngineFacts:
        """What shaped the numbers."""
        return self._facts

    @property
    def num_unfinished(self) -> int:
        """Requests added and not yet returned by `step`."""
        return len(self._in_use)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request.

        Raises:
            RequestRefusedError: an empty prompt, a token outside the vocabulary, or no room for a completion.
        """
        ids, vocabulary = request.prompt_token_ids, self._model.get_input_embeddings().num_embeddings
        if request.request_id in self._in_use:
            raise RequestRefusedError(f"request id {request.request_id!r} is in use; ids are unique while unfinished")
        if not ids:
            raise RequestRefusedError("the prompt has no tokens; it needs at least one")
        if min(ids) < 0 or max(ids) >= vocabulary:
            raise RequestRefusedError(
                f"the prompt's token ids span [{min(ids)}, {max(ids)}]; the model knows [0, {vocabulary})"
            )
        if len(ids) >= self._spec.max_model_len:
            raise RequestRefusedError(
                f"the prompt has {len(ids)} tokens and max_model_len is {self._spec.max_model_len}: no room to answer"
            )
        self._in_use.add(request.request_id)
        self._pending.append((request, time.monotonic()))

    def step(self) -> list[Generation]:
        """Return the rows that finished, after waiting a second at most for the first.

        Raises:
            EngineOutOfMemoryError, EngineError: the batch died.
        """
        if self._pending and (self._batch is None or not self._batch.is_alive()):
            self._start_batch()
        finished: list[Generation] = []
        deadline = time.monotonic() + _WAIT_S
        while self._in_use and (not finished or not self._finished.empty()):
            try:
                item = self._finished.get(timeout=0.0 if finished else min(0.05, _WAIT_S))
            except queue.Empty:
                if time.monotonic() > deadline or (self._batch and not self._batch.is_alive()):
                    break
                continue
            if isinstance(item, Exception):
                with translated(self._spec, self._sampling):
                    raise item
            self._in_use.discard(item.request_id)
            finished.append(item)
        return finished

    def close(self) -> None:
        """End the running batch at its next token."""
        self._closing.set()
        self._pending.clear()
        if self._batch is not None:
            self._batch.join()
        self._in_use.clear()

    def _start_batch(self) -> None:
        sampling = self._pending[0][0].sampling or self._sampling
        rows: list[tuple[GenerationRequest, float]] = []
        while self._pending and len(rows) < self._spec.batch_size:
            if (self._pending[0][0].sampling or self._sampling) != sampling:
                break
            rows.append(self._pending.popleft())
        self._batch = threading.Thread(target=self._run_batch, args=(rows, sampling), name="generate", daemon=True)
        self._batch.start()

    def _run_batch(self, rows: list[tuple[GenerationRequest, float]], sampling: SamplingSpec) -> None:
        from infra.engines.row_sampling import Row, RowSampler, TextStream, seeded_generator

        try:
            sampler = RowSampler(
                rows=[
                    Row(
                        request=request,
                        added_at=added_at,
                        generator=seeded_generator(request.seed, self._model.device),
                        stream=TextStream(self._tokenizer, request.prompt_token_ids),
                    )
                    for request, added_at in rows
                ],
                sampling=sampling,
                max_model_len=self._spec.max_model_len,
                deliver=self._finished.put,
            )
            self._generate([request.prompt_token_ids for request, _ in rows], sampling, sampler)
            num_left = sum(not row.is_done for row in sampler.rows)
            if num_left and not self._closing.is_set():
                raise EngineError(f"generate returned with {num_left} of {len(rows)} rows unfinished")  # noqa: TRY301
        except Exception as exc:  # noqa: BLE001 - crosses the thread; `step` translates and raises it
            self._finished.put(exc)

    def _generate(self, prompts: list[list[int]], sampling: SamplingSpec, sampler: "RowSampler") -> None:
        import torch
        from transformers.generation.configuration_utils import GenerationConfig
        from transformers.generation.logits_process import LogitsProcessorList
        from transformers.generation.stopping_criteria import StoppingCriteria, StoppingCriteriaList

        engine = self

        class AllRowsDone(StoppingCriteria):
            """Looks at every pass: ends `generate` with its last row, or when the engine closes."""

            def __call__(self, input_ids: "Tensor", scores: object, **_: object) -> "Tensor":  # noqa: ARG002
                engine.num_passes += 1
                done = [engine._closing.is_set() or row.is_done for row in sampler.rows]
                return torch.tensor(done, dtype=torch.bool, device=input_ids.device)

        longest = max(map(len, prompts))
        pad = next(iter(sampling.eos_token_ids), 0)
        ids = torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        # A configuration of our own: the checkpoint's sampling defaults stay out. The sampler leaves one candidate per
        # row, so the greedy loop takes what it drew.
        config = GenerationConfig(
            max_new_tokens=sampling.max_new_tokens, do_sample=False, pad_token_id=pad, use_cache=True
        )
        with torch.inference_mode():
            self._model.generate(
                inputs=ids.to(self._model.device),
                attention_mask=mask.to(self._model.device),
                generation_config=config,
                logits_processor=LogitsProcessorList([sampler]),
                stopping_criteria=StoppingCriteriaList([AllRowsDone()]),
            )


def _load(spec: EngineSpec, num_threads: int | None) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    try:
        import torch
        from transformers.generation.configuration_utils import GenerationConfig
        from transformers.models.auto.modeling_auto import AutoModelForCausalLM
        from transformers.models.auto.tokenization_auto import AutoTokenizer
    except ImportError as exc:
        raise SetupError(
            f"transformers cannot be imported in the engine environment ({exc}); run `make setup`, or point "
            "engine.python at an environment that has torch and transformers"
        ) from exc
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    num_gpus = spec.tensor_parallel * spec.pipeline_parallel
    if num_gpus > 1 and torch.cuda.device_count() < num_gpus:
        raise SetupError(
            f"tensor_parallel {spec.tensor_parallel} x pipeline_parallel {spec.pipeline_parallel} needs {num_gpus} "
            f"GPUs and this process sees {torch.cuda.device_count()}; use t1p1"
        )
    if spec.memory_ratio is not None and torch.cuda.is_available():
        for device in range(num_gpus):
            torch.cuda.set_per_process_memory_fraction(spec.memory_ratio, device)
    model, report = AutoModelForCausalLM.from_pretrained(
        spec.model_path,
        dtype=spec.dtype,
        trust_remote_code=spec.trust_remote_code,
        use_safetensors=True,
        local_files_only=True,
        device_map="auto" if num_gpus > 1 else None,
        ignore_mismatched_sizes=True,  # named by the report, which is checked
        output_loading_info=True,
    )
    check_loading_report(report, type(model).__name__, spec.model_path)
    if num_gpus == 1 and torch.cuda.is_available():
        model = model.to("cuda")
    if spec.adapter is not None:
        merge_adapter(model, spec.adapter.path)
    model.generation_config = GenerationConfig()
    tokenizer = AutoTokenizer.from_pretrained(
        spec.model_path, trust_remote_code=spec.trust_remote_code, local_files_only=True
    )
    return model.eval(), tokenizer
