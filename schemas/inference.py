"""The plan of a run and what controller and worker tell each other through files.

A plan says everything that decides a sample, and nothing about who makes it: replicas, batches and attempts may change
between a crash and the resumed run, the plan may not.
"""

from pathlib import Path
from typing import Literal

from schemas.base import Model
from schemas.checkpoint import CheckpointIdentity
from schemas.sampling import SamplingSpec
from schemas.stand_in import StandInConfig, StandInSpec
from schemas.states import FinishReason, WorkerOutcome, WorkerPhase

EngineName = Literal["vllm", "sglang", "transformers", "openai", "stand_in"]


class AdapterSpec(Model):
    """A LoRA adapter to apply to the model."""

    path: Path
    """Pinned folder of the adapter: adapter_config.json and adapter_model.safetensors."""
    max_rank: int
    """Largest rank of an update."""


class EngineSpec(Model):
    """How one replica loads its engine."""

    engine: EngineName
    """Which adapter in infra/engines."""
    model_path: Path
    """The (pinned) checkpoint folder; of an adapter, its base's."""
    adapter: AdapterSpec | None = None
    """What is applied to it; None for a whole model."""
    dtype: str
    """torch dtype name, or `auto` for the checkpoint's own."""
    max_model_len: int
    """Context length to provision, in tokens."""
    batch_size: int
    """Most sequences generated at once."""
    tensor_parallel: int = 1
    """GPUs that share each layer."""
    pipeline_parallel: int = 1
    """GPUs that share the stack of layers."""
    memory_ratio: float | None = None
    """Share of the device's memory that the engine may take, in (0, 1]; None for the adapter's default."""
    trust_remote_code: bool = False
    """Whether Python code inside the checkpoint may run."""
    seed: int
    """The run's seed; each sample brings its own."""
    strict: bool = False
    """Whether a sample may not depend on what shares its batch."""
    stand_in: StandInSpec | None = None
    """What engine `stand_in` is told; None for the others."""


class EngineImport(Model):
    """What decides how an engine is imported; known before anything is planned."""

    engine: EngineName
    """Which adapter in infra/engines."""
    num_threads: int | None
    """CPU threads of the replica; None leaves them to the engine."""
    strict: bool
    """Whether a sample may not depend on what shares its batch."""


class PlannedItem(Model):
    """One item of the plan."""

    item_id: str
    """Id of the item in the dataset."""
    prompt_hash: str
    """Digest of the prompt's token ids: what was planned is what was answered."""
    num_prompt_tokens: int
    """Length of the rendered prompt."""


class RefusedItem(Model):
    """An item that cannot be generated; it becomes `failed` rows, never a score."""

    item_id: str
    """Id of the item in the dataset."""
    prompt_hash: str
    """Digest of the prompt's token ids."""
    reason: str
    """Reason for the refusal, with the numbers."""


class Plan(Model):
    """Everything that decides the samples of a run. plan.json; immutable."""

    plan_key: str
    """Digest over all below: the same command finds its unfinished run by it."""
    seed: int
    """The run's seed; a sample's own is f(seed, item_id, repeat)."""
    n_samples: int
    """Completions per item."""
    engine: EngineName
    """The engine's name."""
    dtype: str
    """dtype asked of the engine."""
    weight_digest: str
    """Identity of the weights."""
    tokenizer_digest: str
    """Identity of the tokenizer's files."""
    chat_template_digest: str
    """Identity of the chat template."""
    model_config_digest: str = ""
    """Identity of config.json and the EOS ids; empty in plans of earlier versions, which left them out."""
    dataset: str
    """The dataset's name."""
    dataset_version: str
    """The dataset's digest."""
    num_skipped_rows: int = 0
    """Rows of the dataset left out because they cannot be used (`valid_dataset.invalid_rows: skip`)."""
    sampling: SamplingSpec
    """Sampling parameters of the completions."""
    strict: bool = False
    """Whether samples are made with deterministic settings."""
    stand_in: StandInConfig | None = None
    """Settings of the dummy engine; None for the others."""
    max_model_len: int
    """Context length in tokens."""
    items: tuple[PlannedItem, ...]
    """The items to generate, in the dataset's order."""
    refused: tuple[RefusedItem, ...] = ()
    """The items that cannot be."""

    @property
    def identity(self) -> CheckpointIdentity:
        """The model that makes the samples."""
        return CheckpointIdentity(
            weight_digest=self.weight_digest,
            tokenizer_digest=self.tokenizer_digest,
            chat_template_digest=self.chat_template_digest,
            model_config_digest=self.model_config_digest,
        )

    @property
    def num_planned(self) -> int:
        """Samples of the run, the refused ones included."""
        return (len(self.items) + len(self.refused)) * self.n_samples


class SetAsideItem(Model):
    """An item that is generated no more; what is left of it becomes `failed` samples."""

    item_id: str
    """Id of the item in the dataset."""
    reason: str
    """What it did to its workers."""


class WorkCut(Model):
    """cut.json: the worker starts no more than so many of the samples that it was given, the rest goes to others."""

    number: int
    """From 1; a later cut replaces an earlier one."""
    num_rows: int
    """Samples that it may start, those of before included."""
    num_given: int = 0
    """Additions that `num_rows` takes account of: a worker that has not seen them all yet lets the cut wait."""


class WorkerSpec(Model):
    """All that a worker is told. spec.json in its output folder."""

    run_id: str
    """The run it works for."""
    replica: int
    """Number of the replica, from 0."""
    attempt: int
    """Which launch of the run this is, from 1."""
    engine: EngineSpec
    """The engine to load."""
    sampling: SamplingSpec
    """Sampling parameters of the completions."""
    seed: int
    """The run's seed."""
    prompts_path: Path
    """Parquet of PROMPT_SCHEMA (schemas/tables.py): the rendered prompts of the plan."""
    work_path: Path
    """Parquet of WORK_SCHEMA: the (item_id, repeat)s this worker makes, in order."""
    num_alone: int = 0
    """Number of first samples that are made one at a time: one of them is suspected of killing its workers."""
    set_aside: tuple[SetAsideItem, ...] = ()
    """Items of the work that are not generated."""
    awaits_more: bool = False
    """Whether work may be taken away from this worker or given to it while it runs; it ends when told so."""
    output_dir: Path
    """Folder of journal, heartbeat and result; owned by this worker alone."""
    num_threads: int | None = None
    """CPU threads of this replica; None on GPU."""
    heartbeat_interval_s: float = 1.0
    """Seconds between heartbeats."""
    owner_beat_path: Path | None = None
    """File that the run's owner changes while it lives (infra/ownership/run_ownership.py).

    The worker ends when it stands still. None: the worker hears of its controller's end by other means."""
    owner_silence_s: float = 60.0
    """Longest time that it may stand still, in seconds by the worker's clock."""
    canaries: tuple[str, ...] = ()
    """Items to answer first, greedily, for comparison with the other replicas; never part of the samples."""
    canary_tokens: int = 64
    """Longest completion of a canary, in tokens."""
    keeps_completion_ids: bool = False
    """Whether samples are journalled with their token ids."""
    keeps_logprobs: bool = False
    """Whether they are journalled with the log-probability of each token."""


class SampleRecord(Model):
    """One finished completion as the worker journals it: one JSON line."""

    item_id: str
    """Id of the item in the plan."""
    repeat: int
    """Which completion of the item, from 0."""
    prompt_hash: str
    """Digest of the token ids that the engine was given."""
    completion: str
    """The text, stop string and special tokens excluded."""
    finish_reason: FinishReason | None
    """Reason for the end of the completion; None when generation failed."""
    num_prompt_tokens: int
    """Tokens given."""
    num_completion_tokens: int
    """Tokens made, the end-of-sequence token included."""
    mean_logprob: float | None
    """Mean over the completion's tokens of their log-probability under the model; nats; None without tokens."""
    entropy: float | None = None
    """Mean over positions of the entropy of the next-token distribution; nats; None where the engine cannot tell."""
    seed: int
    """The sample's own seed."""
    latency_s: float
    """From entering the engine to the last token."""
    batch_size: int
    """Batch size setting it ran at."""
    replica: int
    """Number of the replica that made it."""
    attempt: int
    """In which launch."""
    finished_at: float
    """Unix time in seconds."""
    error: str | None = None
    """Reason for which generation failed; None where it did not."""
    completion_ids: tuple[int, ...] | None = None
    """The tokens made; None unless the worker was told to keep them."""
    token_logprobs: tuple[float | None, ...] | None = None
    """Log-probability of each of them, nats, to six decimals; None likewise, and for one that is not finite."""


class CanaryRecord(Model):
    """One canary's answer: one JSON line of canaries.jsonl."""

    item_id: str
    """Id of the item in the plan."""
    prompt_hash: str
    """Digest of the token ids that the engine was given."""
    text: str = ""
    """The completion."""
    token_ids: tuple[int, ...] = ()
    """Tokens of the completion, the end-of-sequence token included."""
    logprobs: tuple[float | None, ...] | None = None
    """Log-probability of each token, nats, None for one that is not finite; None where the engine cannot tell."""
    error: str | None = None
    """Reason for which the engine refused it; None where it did not."""


class Heartbeat(Model):
    """heartbeat.json: replaced atomically once per interval."""

    phase: WorkerPhase
    """What the worker is doing."""
    pid: int
    """Process id of the worker."""
    time: float
    """Unix time in seconds at writing, by the worker's clock."""
    num_done: int = 0
    """Samples journalled by this worker."""
    num_work: int = 0
    """Samples it was given, less those that a cut took away."""
    num_completion_tokens: int = 0
    """Tokens it has made in finished samples."""
    batch_size: int = 0
    """Batch size setting in force."""
    num_started: int = 0
    """Samples handed to the engine, the finished ones included."""
    num_steps: int = 0
    """Steps of the engine since it was loaded: a worker whose count stands still while it generates is hung."""
    cut_number: int = 0
    """The latest cut that `num_work` takes account of."""


class EngineFacts(Model):
    """What shaped the numbers, as seen from inside the engine's process."""

    engine: EngineName
    """The adapter."""
    versions: dict[str, str]
    """Package name to version: engine, torch, transformers, python."""
    device: str
    """Device name, such as a GPU's product name or the CPU's model name."""
    node: str = ""
    """Machine that the worker ran on, by the name that its scheduler knows it by; empty where it did not say."""
    device_count: int
    """Devices this replica uses; 0 on CPU."""
    dtype: str
    """dtype in use."""
    max_model_len: int
    """Context length in force."""
    weight_sample: str | None = None
    """Digest of a sample of the weight files' bytes that this process loaded; None where it cannot be taken."""
    tokenizer_digest: str | None = None
    """Digest of the tokenizer's files that it loaded."""
    chat_template_digest: str | None = None
    """Digest of the chat template beside them."""
    sampling: SamplingSpec | None = None
    """Sampling parameters in use."""


class WorkerResult(Model):
    """result.json: how the worker ended. Absent when it was killed."""

    outcome: WorkerOutcome
    """Outcome of the worker."""
    message: str = ""
    """The reason, for people."""
    facts: EngineFacts | None = None
    """None when the engine never loaded."""
    num_done: int = 0
    """Samples journalled."""
    started_at: float | None = None
    """Start of the process, Unix time in seconds."""
    startup_s: float | None = None
    """From process start to an engine ready for its first request."""
    first_token_s: float | None = None
    """From process start to the end of the engine's first step, which made the first tokens."""
    generate_s: float | None = None
    """From the first request to the last finished sample."""
    generate_cpu_s: float | None = None
    """CPU seconds of the worker's process in that time: far below `generate_s` times its threads on a CPU engine, the
    machine was short of cores."""
    num_prompt_tokens: int = 0
    """Tokens given over all samples."""
    num_completion_tokens: int = 0
    """Tokens made over all samples."""
