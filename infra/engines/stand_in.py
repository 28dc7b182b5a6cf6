"""A try-out engine: made-up completions at a set pace, without a model, a GPU or an engine's packages.

Behaves like an engine in all that the rest sees (queue, batch, lengths, seeds, log-probabilities), so that launchers,
schedulers and the flow are tried in seconds. A completion depends on prompt, seed and settings alone. Answers are right
at the set rate, and repeats of one item resemble each other as a model's do. Memory, a crash and a hang are real ones,
where its settings ask for them.
"""

import math
import os
import random
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final, Literal

from infra.engines.base import Generation, GenerationRequest, RequestRefusedError, translated
from infra.engines.device import package_versions
from infra.machine.resources import cpu_model_name
from schemas.errors import EngineError
from schemas.identity import prompt_hash
from schemas.inference import EngineFacts, EngineSpec
from schemas.sampling import SamplingSpec
from schemas.stand_in import StandInSpec
from schemas.states import FinishReason

_LOG_SD: Final = 0.6
"""Spread of the log of completion lengths, about that of chain-of-thought answers."""
_ITEM_SHARE: Final = 0.7
"""Share of the variance that belongs to the item: repeats of one item are alike."""
_NO_ANSWER_RATE: Final = 0.02
_VOCABULARY: Final = 32_000
_LONGEST_STEP_S: Final = 1.0
"""`Engine.step` comes back about once a second."""


@dataclass(slots=True, kw_only=True)
class _Running:
    generation: Generation
    added_at: float
    num_left: int
    memory: bytes


def is_poisoned(key: str, poison: Literal["deadly", "hanging"], rate: float) -> bool:
    """Return whether the item of that prompt hash is among the share `rate` that kills or stops its worker."""
    return random.Random(f"{key} {poison}").random() < rate  # noqa: S311 - no secret is drawn


class StandInEngine:
    """`infra.engines.base.Engine` without a model."""

    def __init__(self, spec: EngineSpec, sampling: SamplingSpec) -> None:
        """Read the golds.

        Raises:
            EngineError: the spec has no stand-in settings, or the golds cannot be read.
        """
        if spec.stand_in is None:
            raise EngineError("engine stand_in has no settings; set engine.stand_in={} to take the defaults")
        self.num_passes = 0
        self._spec = spec
        self._stand_in = spec.stand_in
        self._sampling = sampling
        self._golds = _read_golds(spec.stand_in)
        self._waiting: deque[tuple[GenerationRequest, float]] = deque()
        self._running: list[_Running] = []
        time.sleep(spec.stand_in.load_s)

    @property
    def facts(self) -> EngineFacts:
        """What shaped the numbers."""
        return EngineFacts(
            engine="stand_in",
            versions=package_versions(),
            device=cpu_model_name(),
            device_count=0,
            dtype="float32" if self._spec.dtype == "auto" else self._spec.dtype,
            max_model_len=self._spec.max_model_len,
        )

    @property
    def num_unfinished(self) -> int:
        """Requests added and not yet returned by `step`."""
        return len(self._waiting) + len(self._running)

    def add(self, request: GenerationRequest) -> None:
        """Queue a request.

        Raises:
            RequestRefusedError: an empty prompt, or no room for a completion.
        """
        num_tokens = len(request.prompt_token_ids)
        if not 0 < num_tokens < self._spec.max_model_len:
            raise RequestRefusedError(
                f"the prompt has {num_tokens} tokens; allowed: 1 to max_model_len - 1, {self._spec.max_model_len - 1}"
            )
        self._waiting.append((request, time.monotonic()))

    def step(self) -> list[Generation]:
        """Fill the batch, sleep until its next completion ends (a second at most), and return what ended.

        Raises:
            EngineOutOfMemoryError: the memory of a sequence is refused.
        """
        with translated(self._spec, self._sampling):
            while self._waiting and len(self._running) < self._spec.batch_size:
                self._running.append(self._start(*self._waiting.popleft()))
        if not self._running:
            return []
        step_s = self._stand_in.step_s
        num_steps = min(each.num_left for each in self._running)
        if step_s > 0:
            num_steps = max(1, min(num_steps, int(_LONGEST_STEP_S / step_s)))
        time.sleep(num_steps * step_s)
        self.num_passes += num_steps
        for each in self._running:
            each.num_left -= num_steps
        done = [each for each in self._running if each.num_left <= 0]
        self._running = [each for each in self._running if each.num_left > 0]
        now = time.monotonic()
        return [replace(each.generation, latency_s=now - each.added_at) for each in done]

    def close(self) -> None:
        """Drop what is unfinished."""
        self._waiting.clear()
        self._running.clear()

    def _start(self, request: GenerationRequest, added_at: float) -> _Running:
        key = prompt_hash(request.prompt_token_ids)
        if is_poisoned(key, "deadly", self._stand_in.deadly_item_rate):
            os.kill(os.getpid(), signal.SIGSEGV)
        if is_poisoned(key, "hanging", self._stand_in.hanging_item_rate):
            threading.Event().wait()
        generation = self._complete(request, key)
        return _Running(
            generation=generation,
            added_at=added_at,
            num_left=len(generation.token_ids),
            memory=b"\1" * self._stand_in.sequence_bytes,  # zeros would take no memory before they are written to
        )

    def _complete(self, request: GenerationRequest, key: str) -> Generation:
        sampling = request.sampling or self._sampling
        # greedy decoding ignores the seed
        seed = 0 if sampling.temperature == 0 else request.seed
        by_item, own = (random.Random(f"{key} {name}") for name in ("item", seed))  # noqa: S311 - no secret is drawn
        skill, length = (_mixed(by_item, own) for _ in range(2))
        room = min(sampling.max_new_tokens, self._spec.max_model_len - len(request.prompt_token_ids))
        wanted = max(1, round(self._stand_in.mean_tokens * math.exp(_LOG_SD * length - _LOG_SD**2 / 2)))
        num_tokens = min(wanted, room)
        is_whole = wanted <= room
        logprobs = tuple(-own.expovariate(3.0) for _ in range(num_tokens))
        return Generation(
            request_id=request.request_id,
            text="step " * num_tokens + (self._answer(key, skill, own) if is_whole else ""),
            token_ids=tuple(own.randrange(_VOCABULARY) for _ in range(num_tokens)),
            finish_reason=FinishReason.STOP if is_whole else FinishReason.LENGTH,
            mean_logprob=sum(logprobs) / num_tokens,
            logprobs=logprobs if request.with_logprobs else None,
            entropy=None,
            latency_s=0.0,
        )

    def _answer(self, key: str, skill: float, own: random.Random) -> str:
        gold = self._golds.get(key)
        if gold is None or own.random() < _NO_ANSWER_RATE:
            return "and so on."
        is_right = NormalDist().cdf(skill) < self._stand_in.accuracy / (1 - _NO_ANSWER_RATE)
        return f"so the answer is \\boxed{{{gold if is_right else own.randrange(10**6, 10**7)}}}"


def _mixed(by_item: random.Random, own: random.Random) -> float:
    """Return a standard normal draw, partly the item's and partly the sample's own."""
    return math.sqrt(_ITEM_SHARE) * by_item.gauss(0, 1) + math.sqrt(1 - _ITEM_SHARE) * own.gauss(0, 1)


def _read_golds(stand_in: StandInSpec) -> dict[str, str]:
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(stand_in.answers_path, columns=["prompt_hash", "gold"])
    except (OSError, ValueError) as exc:
        raise EngineError(f"{stand_in.answers_path} cannot be read for golds: {exc}") from exc
    return {str(row["prompt_hash"]): str(row["gold"]) for row in table.to_pylist()}
