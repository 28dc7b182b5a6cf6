"""What every engine adapter offers, and the one place where foreign exceptions become ours.

Owns the interface and the choice of adapter. Must not import an engine at module level: an adapter is imported when it
is opened, in the engine environment.
"""

import math
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from schemas.errors import EngineError, EngineOutOfMemoryError, MilepostError
from schemas.inference import EngineFacts, EngineSpec
from schemas.sampling import SamplingSpec
from schemas.states import FinishReason


class RequestRefusedError(EngineError):
    """The engine refused this one request; the others are not affected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One completion to make."""

    request_id: str
    """Unique among the unfinished requests of an engine."""
    prompt_token_ids: list[int]
    """The prompt as the model gets it; an adapter neither adds nor cuts a token."""
    seed: int
    """In [0, 2^63); decides the sample whatever else is in the batch (up to rounding of the logits)."""
    sampling: SamplingSpec | None = None
    """None for the settings that the engine was opened with."""
    with_logprobs: bool = False
    """Whether the log-probability of each token is handed back; off, as a long completion has thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One finished completion."""

    request_id: str
    """As in the request."""
    text: str
    """Without stop string and special tokens; a character that the length limit cut in half is left out."""
    token_ids: tuple[int, ...]
    """What was sampled, the end-of-sequence token included."""
    finish_reason: FinishReason
    """Why it ended."""
    mean_logprob: float | None
    """Mean over `token_ids` of the log-probability under the model (temperature 1, nothing cut off); nats. None without
    tokens, and where one of them has no finite one."""
    entropy: float | None
    """Mean over positions of the entropy of that distribution; nats; None where the engine cannot tell, or where it is
    not finite."""
    latency_s: float
    """From `add` to the last token; includes waiting for a place in the batch."""
    logprobs: tuple[float | None, ...] | None = None
    """Of each of `token_ids`, as in `mean_logprob`, None for one that is not finite; None unless the request asked."""
    num_broken: int = 0
    """Tokens whose log-probability is not finite."""
    broken_at: int | None = None
    """The first of them; None without any."""


def finite(value: float | None) -> float | None:
    """Return a number, None for one that is NaN or infinite: no file holds such a one."""
    return value if value is not None and math.isfinite(value) else None


class Engine(Protocol):
    """A loaded model that works through a queue of requests. Used by one thread."""

    @property
    def facts(self) -> EngineFacts:
        """What shaped the numbers."""
        ...

    @property
    def num_unfinished(self) -> int:
        """Requests added and not yet returned by `step`."""
        ...

    @property
    def num_passes(self) -> int:
        """Forward passes made so far: it stands still while the model hangs, whatever `step` returns."""
        ...

    def add(self, request: GenerationRequest) -> None:
        """Queue a request.

        Raises:
            RequestRefusedError: this request cannot be served, with the numbers; the queue is as before.
        """
        ...

    def step(self) -> list[Generation]:
        """Work for about a second at most (one forward pass may take longer) and return what finished.

        Raises:
            EngineOutOfMemoryError: the engine is dead for want of memory.
            EngineError: the engine is dead for another reason.
        """
        ...

    def close(self) -> None:
        """Give memory and processes back; unfinished requests are dropped."""
        ...


_OUT_OF_MEMORY: Final = re.compile(
    "|".join(
        (
            r"CUDA out of memory",
            r"(?:CUDA|HIP) error: out of memory",
            r"hipErrorOutOfMemory",
            r"Cuda failure[^\n]*out of memory",  # NCCL
            r"CUBLAS_STATUS_ALLOC_FAILED",
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
            r"std::bad_alloc",
            r"Cannot allocate memory",
            # vLLM at start: more asked than free, nothing left for the cache, cache smaller than one sequence
            r"Available memory on node",
            r"Free memory on device .* is less than desired",
            r"No available memory for the cache blocks",
            r"To serve at least one request with the model's max seq len",
        )
    ),
    re.DOTALL,
)
"""A CPU allocation failure is a plain RuntimeError known only by its text; so are vLLM's refusals at start."""


_CHILD_FAILED: Final = re.compile("(?:WorkerProc|Engine core) initialization failed")
"""What vLLM says of the processes of an engine that has several: why, only their own words in the log tell."""


def hides_shortage(message: str, log: str) -> bool:
    """Whether an engine failed, by its `message`, as a process of its own did, and that one, by the log, for memory."""
    return bool(_CHILD_FAILED.search(message)) and bool(_OUT_OF_MEMORY.search(log))


_GAVE_UP: Final = re.compile(r"RuntimeError: (?:cancelled|Executor failed\.)$")
"""What vLLM's calls end with once a process of its engine is gone."""
_CHILD_DIED: Final = re.compile(r"Worker proc \S+ died unexpectedly \(exit code: (-?\d+|None)\)")


class LostChild(NamedTuple):
    """A process of an engine that died under it."""

    exit_code: int | None
    """Negative for a signal; None where the engine looked too early to be told."""


def find_lost_child(message: str, log: str) -> LostChild | None:
    """Return the process whose death, by the log, made an engine fail with `message`; None if it failed otherwise."""
    died = _CHILD_DIED.search(log) if _GAVE_UP.search(message) else None
    return died and LostChild(None if died[1] == "None" else int(died[1]))


@contextmanager
def translated(spec: EngineSpec, sampling: SamplingSpec) -> Generator[None]:
    """Turn what an engine raises inside the block into an error of ours; those pass as they are.

    Only an exception that is known to mean want of memory, itself or in its chain of causes, becomes
    EngineOutOfMemoryError: shrinking the batch would hide a bug.

    Raises:
        EngineOutOfMemoryError: the engine ran out of memory, with what to lower.
        EngineError: anything else, with its type and text.
    """
    try:
        yield
    except MilepostError:
        raise
    except Exception as exc:
        for cause in _causes(exc):
            if isinstance(cause, MemoryError) or _names_memory(cause):
                raise EngineOutOfMemoryError(
                    f"{spec.engine} ran out of memory with batch_size {spec.batch_size}, max_model_len "
                    f"{spec.max_model_len}, max_new_tokens {sampling.max_new_tokens}, memory_ratio "
                    f"{spec.memory_ratio or 'default'}: lower batch_size or max_new_tokens, or change memory_ratio. "
                    f"The engine said: {_first_lines(cause)}"
                ) from exc
        raise EngineError(f"{spec.engine} failed with {type(exc).__name__}: {_first_lines(exc)}") from exc


def _causes(exc: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = exc
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _names_memory(exc: BaseException) -> bool:
    # torch.OutOfMemoryError by name: this module also runs where torch is absent.
    is_torch = type(exc).__name__ == "OutOfMemoryError" and type(exc).__module__.startswith("torch")
    return is_torch or (isinstance(exc, RuntimeError | ValueError | OSError) and bool(_OUT_OF_MEMORY.search(str(exc))))


def _first_lines(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:600] or type(exc).__name__
