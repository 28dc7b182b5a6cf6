"""The sections of the configuration that evaluation reads, one model each.

Defaults say what an engineer gets who sets nothing; each field's docstring gives the unit and the reason. Keys that
AReaL's training reads and evaluation does not are no fields here: schemas/config/training_keys.py lists them.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from schemas.backend import BACKEND_PATTERN, ENGINES, Backend, parse_backend
from schemas.base import Section
from schemas.errors import ConfigError
from schemas.paths import expand_user
from schemas.slurm import SlurmConfig
from schemas.stand_in import StandInConfig

Dtype = Literal["auto", "bfloat16", "float16", "float32"]
SchedulerType = Literal["local", "ray", "slurm"]


def _checked_backend(text: str) -> str:
    try:
        parse_backend(text)
    except ConfigError as exc:
        raise ValueError(str(exc)) from exc
    return text


def _local_when_unset(value: object) -> object:
    return "local" if value is None else value


class ClusterConfig(Section):
    """Where results go and what hardware there is."""

    fileroot: str = Field(default="milepost-out", min_length=1)
    """Folder of runs and store, relative to the working directory unless absolute. The default keeps a first try at
    hand instead of in a shared folder that may not exist."""
    n_nodes: int = Field(default=1, ge=1)
    """Machines that the scheduler may use. 1: the machine at hand."""
    n_gpus_per_node: int | None = Field(default=None, ge=0)
    """GPUs on each machine. None: count them where the evaluation runs, so that one config serves any machine."""

    @property
    def folder(self) -> Path:
        """`fileroot` as an absolute path, `~` being whoever evaluates."""
        return expand_user(self.fileroot).absolute()


class SchedulerConfig(Section):
    """Who starts the replicas."""

    type: Annotated[SchedulerType, BeforeValidator(_local_when_unset)] = "local"
    """`local` starts processes on this machine, `slurm` a job for each replica; null means local, as training configs
    write it. `ray` is refused: this version has no launcher for it."""
    slurm: SlurmConfig = Field(default_factory=SlurmConfig)
    """Read when the type is slurm."""


class RolloutConfig(Section):
    """The engine and its replicas."""

    backend: Annotated[str, AfterValidator(_checked_backend)] = Field(
        default="vllm:d1",
        json_schema_extra={
            "allowed": f"one of {', '.join(ENGINES)}, a colon, then d, t and p with their numbers",
            "pattern": BACKEND_PATTERN,
        },
    )
    """Engine and parallelism: d replicas, each over t·p GPUs. The default is one replica of the fastest engine on one
    device, which every machine has. `sglang` and `openai` are refused, as this version has no adapter for them, unless
    `engine.stand_in` takes their place."""
    max_concurrent_rollouts: int | None = Field(default=None, ge=1, le=65_536)
    """Most sequences that one replica generates at once (its batch size). None: the engine's own default."""
    setup_timeout: float = Field(default=600.0, gt=0, le=86_400)
    """Seconds until a replica must have loaded its weights. The default allows for 70B parameters from a network disk
    with a cold cache."""
    hang_timeout: float = Field(default=600.0, gt=0, le=86_400)
    """Seconds without a step of its engine after which a generating replica is taken to be hung, and is started again.
    The default is far above the slowest prefill, and a frozen disk may last a few minutes."""
    max_restarts: int = Field(default=5, ge=0, le=1000)
    """Times in a row that a replica whose worker died may be started again without finishing a sample. Five outlast a
    node that fails at once; a replica that makes headway is started 100 times at most."""

    @property
    def parsed_backend(self) -> Backend:
        """`backend`, parsed."""
        return parse_backend(self.backend)


class OomConfig(Section):
    """What is done when a replica runs out of memory."""

    shrink: bool = True
    """Whether it is started again with half the batch, down to one sequence; what it had finished stays. Off: the run
    fails."""
    grow_after: int = Field(default=3, ge=1, le=1000)
    """Runs without want of memory at a shrunk batch size after which the next one tries twice of it. Three tell a
    passing shortage from a lasting one."""


class ActorConfig(Section):
    """The model under evaluation."""

    path: str = Field(min_length=1)
    """Folder of a Hugging Face checkpoint or of a LoRA adapter, or a hub id."""
    base_path: str | None = Field(default=None, min_length=1)
    """Folder or hub id of the model that a LoRA adapter is applied to; whole models do not need it. None: the one that
    the adapter's adapter_config.json names."""
    dtype: Dtype = "auto"
    """dtype of weights and activations. `auto`: the checkpoint's own, so that what was trained is what is evaluated."""
    pinned_path: str | None = Field(default=None, min_length=1)
    """Folder that holds what `path` names, where it is kept apart: what `milepost watch` evaluates although the trainer
    may have removed it. None: `path` itself."""


class EvaluatorConfig(Section):
    """When a trainer evaluates; any of the frequencies that falls due does. None in all: never by itself."""

    freq_epochs: int | None = Field(default=None, ge=1)
    """Epochs between evaluations. None: epochs do not matter."""
    freq_steps: int | None = Field(default=None, ge=1)
    """Training steps between evaluations. None: steps do not matter."""
    freq_secs: int | None = Field(default=None, ge=1)
    """Seconds between evaluations. None: time does not matter."""
    eval_before_train: bool = False
    """Whether to evaluate the model that training starts from. Off, as AReaL has it."""


class EngineConfig(Section):
    """The engine's environment and what it may do."""

    python: str | None = Field(default=None, min_length=1)
    """Python interpreter of the engine environment. None: `.venv-engine` of the checkout, else the running one."""
    memory_ratio: float | None = Field(default=None, gt=0, le=1)
    """Share of a device's memory that the engine may take. None: as the engine's section says, else its default."""
    trust_remote_code: bool = False
    """Whether Python code inside the checkpoint may run. Off: a checkpoint is data."""
    allow_pickle_weights: bool = False
    """Whether weights in pickle files may be loaded. Off: unpickling runs code; safetensors does not."""
    stand_in: StandInConfig | None = None
    """Makes up answers in place of the backend's engine, to try a cluster or the flow without a model; `{}` takes the
    defaults. None: the backend's engine generates."""


class VllmConfig(Section):
    """What evaluation reads of a training config's `vllm` section."""

    max_model_len: int | None = Field(default=None, ge=1)
    """Context length to provision, in tokens. None: what the checkpoint and the longest prompt ask for."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of a device's memory; engine.memory_ratio goes before it. None: the adapter's default."""


class SglangConfig(Section):
    """What evaluation reads of a training config's `sglang` section."""

    context_length: int | None = Field(default=None, ge=1)
    """Context length to provision, in tokens. None: what the checkpoint and the longest prompt ask for."""
    mem_fraction_static: float | None = Field(default=None, gt=0, le=1)
    """Share of a device's memory; engine.memory_ratio goes before it. None: the adapter's default."""


_Ks = tuple[Annotated[int, Field(ge=1)], ...]


class StoreConfig(Section):
    """What is kept of each sample beside its text, its verdict and its numbers."""

    keep_tokens: bool = True
    """Whether token ids and their log-probabilities are kept, about 6 bytes per token on disk. Off saves that, and a
    metric of tokens that is wanted later needs a new generation."""


class MetricsConfig(Section):
    """Which of the metrics that take a k are computed, and for which k."""

    pass_at_k: _Ks | None = None
    """The k of pass@k. None: the powers of two below n_samples, and n_samples. It is null where k > n_samples."""
    maj_at_k: _Ks | None = None
    """The k of maj@k. None: n_samples alone, where it is above 1."""

    @field_validator("pass_at_k", "maj_at_k")
    @classmethod
    def _sort_and_deduplicate(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return None if value is None else tuple(sorted(set(value)))
