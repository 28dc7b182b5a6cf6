"""The process that owns one replica: `python -m tasks.inference.worker SPEC_JSON [--stop-on-stdin-eof]`.

Loads the engine once, keeps its queue full, journals every sample the moment it is finished, and ends with a result
that says how. Runs in the engine environment; talks with its controller through files only. With `--wait ENGINE_IMPORT`
it is started ahead: it imports that engine, and its arguments come through stdin once there is a spec.
"""

import argparse
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import pyarrow.parquet as pq

from infra.checkpoints.weight_sample import sample_weights
from infra.engines.base import Engine, Generation, GenerationRequest, RequestRefusedError
from infra.engines.selection import import_engine, open_engine
from infra.launchers.waiting import prepare_until_ordered
from infra.tokenizer.files import digest_chat_template, digest_tokenizer, find_chat_template
from schemas.errors import EngineOutOfMemoryError, MilepostError, WorkerError
from schemas.identity import SampleKey, prompt_hash, sample_seed
from schemas.inference import EngineFacts, EngineImport, SampleRecord, WorkerResult, WorkerSpec
from schemas.states import WorkerOutcome, WorkerPhase
from schemas.tables import PROMPT_SCHEMA, WORK_SCHEMA, conform
from tasks.inference.exchange.journal import JournalWriter
from tasks.inference.exchange.worker_files import (
    EXIT_CODES,
    WAIT,
    StartedLog,
    claim_folder,
    read_spec,
    write_facts,
    write_result,
)
from tasks.inference.worker.broken_numbers import NumbersCheck
from tasks.inference.worker.canaries import answer_canaries
from tasks.inference.worker.heartbeat import (
    HeartbeatThread,
    WorkerProgress,
    WorkState,
    call_when_asked_to_stop,
    call_when_silent,
    end_children,
)
from tasks.inference.worker.work_queue import WorkQueue

_LOGPROB_DIGITS: Final = 6
_SPARE_SHARE: Final = 8
"""One request beyond the batch for so many places in it: a place that falls free is filled in the engine's next step.
More would wait in the engine, where no other replica can have them."""
_NODE: Final = "MILEPOST_NODE"
"""Set by the batch script: what a scheduler calls this machine may differ from what it calls itself."""
_LOOK_S: Final = 0.5
"""Time between two looks at what the controller has changed in the work."""


class _Task(NamedTuple):
    item_id: str
    repeat: int
    seed: int
    token_ids: list[int]


class PromptTable:
    """The prompts of a run by item id; token ids become Python integers only when asked for."""

    def __init__(self, path: Path) -> None:
        """Read PROMPT_SCHEMA from `path`."""
        table = conform(pq.read_table(path), PROMPT_SCHEMA)
        self._token_ids = table.column("token_ids").combine_chunks()
        self._rows = {item_id: row for row, item_id in enumerate(table.column("item_id").to_pylist())}
        self._path = path

    def token_ids(self, item_id: str) -> list[int]:
        """Return the prompt of an item.

        Raises:
            WorkerError: the run has no such item.
        """
        if item_id not in self._rows:
            raise WorkerError(
                f"item {item_id!r} of the work has no prompt in {self._path}; it has {len(self._rows)} items"
            )
        return self._token_ids[self._rows[item_id]].as_py() or []


@dataclass(slots=True, kw_only=True)
class _Clock:
    """When the phases of this process began, by time.monotonic, and its CPU seconds then."""

    process: float
    generating: float | None = None
    generating_cpu_s: float = 0.0
    first_token: float | None = None
    last_sample: float | None = None
    last_sample_cpu_s: float = 0.0


class Worker:
    """One replica at work. `run` does it all; `abandon` may be called from another thread at any time."""

    def __init__(self, spec: WorkerSpec, started: float) -> None:
        """Open the journal; `started`: time.monotonic at the start of the process."""
        self.spec = spec
        self.journal = JournalWriter(spec.output_dir)
        self.progress = WorkerProgress(batch_size=spec.engine.batch_size)
        self._clock = _Clock(process=started)
        self._facts: EngineFacts | None = None
        self._numbers = NumbersCheck("samples")
        self._set_aside = {item.item_id: item.reason for item in spec.set_aside}
        self._next_look = 0.0
        self._ending = threading.Lock()

    def run(self) -> WorkerResult:
        """Make every sample of the work and return how that ended; errors become outcomes."""
        try:
            self._generate_all()
        except EngineOutOfMemoryError as exc:
            return self._result(WorkerOutcome.OUT_OF_MEMORY, str(exc))
        except MemoryError as exc:  # of Python or pyarrow, beside the engine, which takes nearly all there is
            traceback.print_exc()
            return self._result(WorkerOutcome.OUT_OF_MEMORY, f"{type(exc).__name__}: {exc}")
        except MilepostError as exc:
            traceback.print_exc()
            return self._result(WorkerOutcome.FAILED, str(exc))
        except Exception as exc:  # noqa: BLE001 - a bug of ours must leave a result too
            traceback.print_exc()
            return self._result(WorkerOutcome.FAILED, f"{type(exc).__name__}: {exc}")
        return self._result(WorkerOutcome.COMPLETED, "")

    def end(self, result: WorkerResult) -> NoReturn:
        """Write the result and end the process. The first caller decides; interpreter shutdown is skipped."""
        self._ending.acquire()  # never released: whoever comes later waits for the exit
        code = EXIT_CODES[result.outcome]
        try:
            write_result(self.spec.output_dir, result)
        except MilepostError as exc:
            print(exc, file=sys.stderr)
        print(f"worker {result.outcome.value}: {result.message}", file=sys.stderr, flush=True)
        end_children()
        sys.stdout.flush()
        os._exit(code)

    def abandon(self, reason: str) -> NoReturn:
        """End the process now, with every finished sample on disk."""
        try:
            self.journal.sync()
        except MilepostError as exc:
            reason = f"{reason}; {exc}"
        self.end(self._result(WorkerOutcome.CANCELLED, reason))

    def _generate_all(self) -> None:
        prompts = PromptTable(self.spec.prompts_path)
        queue = WorkQueue(conform(pq.read_table(self.spec.work_path), WORK_SCHEMA), self.spec.output_dir)
        self.progress.work = WorkState(0, queue.num_rows, 0)
        self.progress.phase = WorkerPhase.LOADING
        engine = open_engine(self.spec.engine, self.spec.sampling, self.spec.num_threads)
        self._facts = _loaded_facts(engine, self.spec)
        write_facts(self.spec.output_dir, self._facts)
        self._clock.generating = time.monotonic()
        self._clock.generating_cpu_s = time.process_time()
        self.progress.phase = WorkerPhase.GENERATING
        answer_canaries(self.spec, engine, prompts.token_ids, lambda: self._step(engine))
        with StartedLog(self.spec.output_dir) as started:
            self._feed(engine, queue, prompts, started)
        self.journal.close()
        # the engine is not closed: that can hang, and the end of the process frees all it holds

    def _step(self, engine: Engine) -> list[Generation]:
        generations = engine.step()
        self.progress.num_steps = engine.num_passes
        if self._clock.first_token is None:
            self._clock.first_token = time.monotonic()
        return generations

    def _feed(self, engine: Engine, queue: WorkQueue, prompts: PromptTable, started: StartedLog) -> None:
        """Keep the engine's queue full until no sample is left, journalling what it finishes."""
        running: dict[str, _Task] = {}
        while True:
            while len(running) < self._capacity(queue, len(running)) and (key := queue.take()) is not None:
                request_id, task = str(queue.num_taken), self._task(key, prompts)
                refusal = self._set_aside.get(key.item_id)
                if refusal is None:
                    started.append(key)
                    refusal = self._add(engine, request_id, task)
                if refusal is None:
                    running[request_id] = task
                else:
                    self._keep(_record(self.spec, task, None, error=refusal))
            self._tell(queue)
            if running:
                for generation in self._step(engine):
                    task = running.pop(generation.request_id)
                    broken = self._numbers.note(task.item_id, generation)
                    self._keep(_record(self.spec, task, generation, error=broken))
                self._numbers.check()
            elif not self._wait_for_more(queue):
                self._numbers.check(is_last=True)
                return

    def _add(self, engine: Engine, request_id: str, task: _Task) -> str | None:
        """Queue a request; return why the engine refuses it, else None."""
        request = GenerationRequest(
            request_id=request_id,
            prompt_token_ids=task.token_ids,
            seed=task.seed,
            with_logprobs=self.spec.keeps_logprobs,
        )
        try:
            engine.add(request)
        except RequestRefusedError as exc:
            return str(exc)
        return None

    def _capacity(self, queue: WorkQueue, num_running: int) -> int:
        """Return how many requests the engine may have: one, while samples are made that may kill it."""
        num_ended = queue.num_taken - num_running
        batch_size = self.spec.engine.batch_size
        return 1 if num_ended < self.spec.num_alone else batch_size + batch_size // _SPARE_SHARE + 1

    def _task(self, key: SampleKey, prompts: PromptTable) -> _Task:
        seed = sample_seed(self.spec.seed, key.item_id, key.repeat)
        return _Task(key.item_id, key.repeat, seed, prompts.token_ids(key.item_id))

    def _tell(self, queue: WorkQueue) -> None:
        """Take account of what the controller changed in the work, and have the heartbeat say so."""
        if self.spec.awaits_more and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_S
            queue.look()
        self.progress.work = WorkState(queue.num_taken, queue.num_rows, queue.cut_number)

    def _wait_for_more(self, queue: WorkQueue) -> bool:
        """Return whether there are samples to make, at once or after a while; False when there will be none."""
        while queue.num_taken == queue.num_rows:
            if not self.spec.awaits_more or queue.has_ended:
                return False
            self.progress.phase = WorkerPhase.IDLE
            time.sleep(_LOOK_S)
            self._tell(queue)
        self.progress.phase = WorkerPhase.GENERATING
        return True

    def _keep(self, record: SampleRecord) -> None:
        self.journal.append(record)
        progress = self.progress
        progress.num_done += 1
        progress.num_prompt_tokens += record.num_prompt_tokens
        progress.num_completion_tokens += record.num_completion_tokens
        self._clock.last_sample = time.monotonic()
        self._clock.last_sample_cpu_s = time.process_time()

    def _result(self, outcome: WorkerOutcome, message: str) -> WorkerResult:
        clock, progress = self._clock, self.progress
        ready, first, last = clock.generating, clock.first_token, clock.last_sample
        has_generated = ready is not None and last is not None
        return WorkerResult(
            outcome=outcome,
            message=message,
            facts=self._facts,
            num_done=progress.num_done,
            started_at=time.time() - (time.monotonic() - clock.process),
            startup_s=None if ready is None else ready - clock.process,
            first_token_s=None if first is None else first - clock.process,
            generate_s=None if ready is None or last is None else last - ready,
            generate_cpu_s=clock.last_sample_cpu_s - clock.generating_cpu_s if has_generated else None,
            num_prompt_tokens=progress.num_prompt_tokens,
            num_completion_tokens=progress.num_completion_tokens,
        )


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the worker that the command line names and end the process with its outcome's exit code."""
    started = _process_start()
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == [WAIT]:
        engine = EngineImport.model_validate_json(arguments[1])
        arguments = prepare_until_ordered(lambda: import_engine(engine))
    parser = argparse.ArgumentParser(prog="python -m tasks.inference.worker", description="Generate one replica's work")
    parser.add_argument("spec", type=Path, help="spec.json (schemas.inference.WorkerSpec)")
    parser.add_argument("--stop-on-stdin-eof", action="store_true", help="end when the controller's pipe closes")
    options = parser.parse_args(arguments)
    try:
        spec = read_spec(options.spec)
        if not claim_folder(spec.output_dir):
            print(f"another worker is at work in {spec.output_dir}: this one ends", file=sys.stderr, flush=True)
            sys.exit(EXIT_CODES[WorkerOutcome.CANCELLED])
        worker = Worker(spec, started)
    except MilepostError as exc:
        print(exc, file=sys.stderr, flush=True)
        sys.exit(EXIT_CODES[WorkerOutcome.FAILED])
    call_when_asked_to_stop(
        worker.abandon, with_controller=options.stop_on_stdin_eof, interval_s=spec.heartbeat_interval_s
    )
    if spec.owner_beat_path is not None:
        call_when_silent(
            spec.owner_beat_path,
            worker.abandon,
            silence_s=spec.owner_silence_s,
            interval_s=spec.heartbeat_interval_s,
        )
    heartbeat = HeartbeatThread(
        spec.output_dir,
        worker.progress,
        interval_s=spec.heartbeat_interval_s,
        sync=worker.journal.sync,
        give_up=worker.abandon,
    )
    heartbeat.start()
    result = worker.run()
    worker.progress.phase = WorkerPhase.FINISHED
    heartbeat.stop()
    worker.end(result)


def _process_start() -> float:
    """Return when the interpreter was started, by time.monotonic."""
    import psutil

    return time.monotonic() - (time.time() - psutil.Process().create_time())


def _loaded_facts(engine: Engine, spec: WorkerSpec) -> EngineFacts:
    """Return the engine's facts with digests of the files that this process loaded them from, whatever it was told."""
    folder, adapter = spec.engine.model_path, spec.engine.adapter
    return engine.facts.model_copy(
        update={
            "weight_sample": sample_weights(folder, adapter=adapter and adapter.path),
            "tokenizer_digest": digest_tokenizer(folder),
            "chat_template_digest": digest_chat_template(find_chat_template(folder)),
            "sampling": spec.sampling,
            "node": os.environ.get(_NODE) or platform.node(),
        }
    )


def _record(spec: WorkerSpec, task: _Task, made: Generation | None, *, error: str | None = None) -> SampleRecord:
    """Return what is kept of a sample; `made` is None where the engine refused it. `error`: why it gets no score."""
    return SampleRecord(
        item_id=task.item_id,
        repeat=task.repeat,
        prompt_hash=prompt_hash(task.token_ids),
        completion=made.text if made else "",
        finish_reason=made.finish_reason if made else None,
        num_prompt_tokens=len(task.token_ids),
        num_completion_tokens=len(made.token_ids) if made else 0,
        mean_logprob=made.mean_logprob if made else None,
        entropy=made.entropy if made else None,
        seed=task.seed,
        latency_s=made.latency_s if made else 0.0,
        batch_size=spec.engine.batch_size,
        replica=spec.replica,
        attempt=spec.attempt,
        finished_at=time.time(),
        error=error,
        completion_ids=made.token_ids if made and spec.keeps_completion_ids else None,
        token_logprobs=_rounded(made.logprobs) if made and spec.keeps_logprobs else None,
    )


def _rounded(logprobs: Sequence[float | None] | None) -> tuple[float | None, ...] | None:
    """Return log-probabilities to six decimals: what 32 bits hold of them, in a third of the journal's letters."""
    if logprobs is None:
        return None
    return tuple(each if each is None else round(each, _LOGPROB_DIGITS) for each in logprobs)
