"""A broken replica: a worker whose engine hands each answer to the wrong request.

`python -m tests.support.swapping_worker SPEC_JSON …`, in place of tasks.inference.worker.
"""

from dataclasses import replace

import tasks.inference.worker.process as worker
from infra.engines.base import Engine, Generation, GenerationRequest
from infra.engines.selection import open_engine
from schemas.inference import EngineFacts, EngineSpec
from schemas.sampling import SamplingSpec


class SwappingEngine:
    """An engine that answers the first request with what belongs to the second, and so on."""

    def __init__(self, spec: EngineSpec, sampling: SamplingSpec, num_threads: int | None) -> None:
        """Load the engine that it breaks."""
        self._inner: Engine = open_engine(spec, sampling, num_threads)
        self._done: list[Generation] = []

    @property
    def facts(self) -> EngineFacts:
        """Those of a healthy replica."""
        return self._inner.facts

    @property
    def num_unfinished(self) -> int:
        """Those that it has not handed over."""
        return self._inner.num_unfinished + len(self._done)

    @property
    def num_passes(self) -> int:
        """Those of the engine that it breaks."""
        return self._inner.num_passes

    def add(self, request: GenerationRequest) -> None:
        """Queue a request."""
        self._inner.add(request)

    def step(self) -> list[Generation]:
        """Hand over what finished once nothing runs, each with its neighbour's answer."""
        self._done += self._inner.step()
        if self._inner.num_unfinished:
            return []
        done, self._done = self._done, []
        return [
            replace(answer, request_id=asked.request_id)
            for asked, answer in zip(done, done[1:] + done[:1], strict=True)
        ]

    def close(self) -> None:
        """Close the engine."""
        self._inner.close()


if __name__ == "__main__":
    worker.open_engine = SwappingEngine
    worker.main()
