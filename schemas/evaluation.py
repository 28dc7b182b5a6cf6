"""`EvaluationConfig`: everything a user can set, as one frozen model."""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic.config import JsonDict

from schemas.alerts import AlertsConfig
from schemas.backend import Backend
from schemas.base import ADDED_LATER, Section
from schemas.chat import ChatConfig
from schemas.consistency import ConsistencyConfig
from schemas.drift import DriftConfig
from schemas.errors import LaunchError
from schemas.grading import GradingConfig
from schemas.inference import EngineName
from schemas.prompt import PromptConfig
from schemas.refresh import RefreshConfig
from schemas.sampling import GenerationConfig, GenerationOverrides
from schemas.sections import (
    ActorConfig,
    ClusterConfig,
    EngineConfig,
    EvaluatorConfig,
    MetricsConfig,
    OomConfig,
    RolloutConfig,
    SchedulerConfig,
    SchedulerType,
    SglangConfig,
    StoreConfig,
    VllmConfig,
)
from schemas.valid_dataset import ValidDatasetConfig
from schemas.watch import WatchConfig

LAUNCHABLE_ENGINES: Final[tuple[EngineName, ...]] = ("vllm", "transformers", "stand_in")
"""The engines that have an adapter in this version."""
LAUNCHABLE_SCHEDULERS: Final[tuple[SchedulerType, ...]] = ("local", "slurm")
"""The schedulers that have a launcher in this version."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MAX_NAME: Final = 128
_NAME_RULE: Final = f"a letter or digit, then letters, digits, '.', '_' or '-'; at most {_MAX_NAME} in all"

_MATH_REWARDS: Final = re.compile(
    r"areal\.reward\.(?:gsm8k|geometry3k|math_parser|math_verify)\.\w+|examples\.math\.\w+\.\w+_reward_fn"
)
"""AReaL's reward functions that compare a mathematical answer with the gold: what `math` does."""
BUILT_IN_REWARDS: Final = ("auto", "math", "reasoning_gym")
"""What `reward_fn` takes beside a function of the user's own."""
_SINGLE_TURN_CLASS: Final = "RLVRWorkflow"
"""AReaL's workflow of one prompt and one completion."""


def _checked_name(value: str) -> str:
    if not _NAME.fullmatch(value) or len(value) > _MAX_NAME:
        raise ValueError(f"it names a folder of the store; allowed: {_NAME_RULE}")
    return value


def _workflow_of_training(value: object) -> object:
    if isinstance(value, str) and "." in value and value.rsplit(".", 1)[1] == _SINGLE_TURN_CLASS:
        return "single_turn"
    return value


def _reward_of_training(value: object) -> object:
    return "math" if isinstance(value, str) and _MATH_REWARDS.fullmatch(value) else value


def _checked_reward(value: str) -> str:
    is_path = "." in value and all(part.isidentifier() for part in value.split("."))
    if value not in BUILT_IN_REWARDS and not is_path:
        raise ValueError("no such grader, and no dotted path of a function")
    return value


RunName = Annotated[str, AfterValidator(_checked_name)]
WorkflowName = Annotated[Literal["single_turn"], BeforeValidator(_workflow_of_training)]
RewardName = Annotated[str, BeforeValidator(_reward_of_training), AfterValidator(_checked_reward)]

_WORKFLOWS: Final[JsonDict] = {"allowed": f"single_turn, or AReaL's dotted path ending in .{_SINGLE_TURN_CLASS}"}
_REWARDS: Final[JsonDict] = {"allowed": f"{', '.join(BUILT_IN_REWARDS)}, or a function's package.module.function"}


class EvaluationConfig(Section):
    """What is evaluated, on what, how and where: the keys of an AReaL training config, plus Milepost's own."""

    experiment_name: RunName = Field(default="default", json_schema_extra={"allowed": _NAME_RULE})
    """Groups the runs of one experiment in the store. The default serves whoever has only one."""
    trial_name: RunName = Field(default="trial0", json_schema_extra={"allowed": _NAME_RULE})
    """Tells trials of one experiment apart. The default is the one training configs use."""
    actor: ActorConfig
    """The model under evaluation."""
    valid_dataset: ValidDatasetConfig
    """The problems."""
    seed: int = Field(default=1, ge=0, lt=2**63, json_schema_extra={"allowed": "0 to 2^63 - 1"})
    """Seed of the run: every sample's own seed follows from it, the item and the repeat. 1, as in training configs."""
    tokenizer_path: str | None = None
    """Folder or hub id whose tokenizer and chat template render the prompts. None: those of `actor.path`, which are
    what the model was trained with."""
    chat: Annotated[ChatConfig, ADDED_LATER] = Field(default_factory=ChatConfig)
    """Variables of the chat template."""
    prompt: Annotated[PromptConfig, ADDED_LATER] = Field(default_factory=PromptConfig)
    """Form of the prompts."""
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)
    """Folder of the results, and the hardware."""
    scheduler: SchedulerConfig = Field(default_factory=SchedulerConfig)
    """Scheduler that starts the replicas."""
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """The engine and its replicas."""
    oom: OomConfig = Field(default_factory=OomConfig)
    """What is done when a replica runs out of memory."""
    gconfig: GenerationConfig = Field(default_factory=GenerationConfig)
    """Sampling of training, and of evaluation unless `eval_gconfig` says otherwise."""
    eval_gconfig: GenerationOverrides | None = None
    """Sampling of evaluation where it differs. None: as in `gconfig`."""
    evaluator: EvaluatorConfig = Field(default_factory=EvaluatorConfig)
    """Frequency at which a trainer evaluates."""
    engine: EngineConfig = Field(default_factory=EngineConfig)
    """The engine's environment and what it may do."""
    vllm: VllmConfig = Field(default_factory=VllmConfig)
    """Read when the backend is vllm."""
    sglang: SglangConfig = Field(default_factory=SglangConfig)
    """Accepted from training configs; this version generates with no SGLang, so that only `engine.stand_in` reads it,
    where the backend is sglang."""
    workflow: WorkflowName = Field(default="single_turn", json_schema_extra=_WORKFLOWS)
    """Way from a problem to completions: one prompt, one completion."""
    eval_workflow: WorkflowName | None = Field(default=None, json_schema_extra=_WORKFLOWS)
    """The workflow of evaluation, where it differs from that of training. None: `workflow`."""
    reward_fn: RewardName = Field(default="auto", json_schema_extra=_REWARDS)
    """What decides whether an answer is right. `auto`: what the dataset brings, which is the scorer of the task for
    reasoning_gym and mathematical equality for the rest. A dotted path names a function of your own with the signature
    of training, `(prompt, completions, prompt_ids, completion_ids, **data) -> float`."""
    grading: GradingConfig = Field(default_factory=GradingConfig)
    """Search for answers, and their comparison."""
    consistency: ConsistencyConfig = Field(default_factory=ConsistencyConfig)
    """Whether all replicas did the same work in the same way."""
    store: Annotated[StoreConfig, ADDED_LATER] = Field(default_factory=StoreConfig)
    """What is kept of each sample."""
    metrics: MetricsConfig = Field(default_factory=MetricsConfig)
    """Which metrics that take a k are computed."""
    drift: DriftConfig = Field(default_factory=DriftConfig)
    """Whether what is asked has changed."""
    refresh: RefreshConfig = Field(default_factory=RefreshConfig)
    """Source of new versions of the validation set, and the moment at which one is drawn."""
    alerts: AlertsConfig = Field(default_factory=AlertsConfig)
    """Alerts and their receivers."""
    watch: WatchConfig = Field(default_factory=WatchConfig)
    """Which checkpoints `milepost watch` evaluates."""

    @model_validator(mode="after")
    def _check_generation(self) -> Self:
        try:
            generation = self.generation
        except ValidationError as exc:
            reasons = "; ".join(error["msg"].removeprefix("Value error, ") for error in exc.errors())
            raise ValueError(f"eval_gconfig over gconfig: {reasons}") from exc
        if generation.is_greedy and generation.n_samples > 1:
            # n copies of one text cost n times the GPU and carry the information of one: pass@k would equal accuracy.
            section = "gconfig" if self.eval_gconfig is None else "eval_gconfig"
            raise ValueError(
                f"n_samples is {generation.n_samples} but generation is greedy, so all completions of a problem would "
                f"be one text; allowed: n_samples 1, or a temperature above 0; set {section}.n_samples=1, or "
                f"{section}.greedy=false and {section}.temperature=1.0"
            )
        return self

    @model_validator(mode="after")
    def _check_completion(self) -> Self:
        if self.prompt.format == "chat":
            return self
        columns = self.valid_dataset.columns
        if columns is not None and columns.messages is not None:
            raise ValueError(
                f"prompt.format is completion, and valid_dataset.columns.messages reads conversations from "
                f"{columns.messages!r}; name a column of text by columns.prompt, or set prompt.format=chat"
            )
        if self.valid_dataset.system_prompt is not None:
            raise ValueError(
                "prompt.format is completion, which has no system turn for valid_dataset.system_prompt; write its text "
                "into prompt.template, or set prompt.format=chat"
            )
        return self

    @property
    def backend(self) -> Backend:
        """Engine and parallelism of `rollout.backend`."""
        return self.rollout.parsed_backend

    @property
    def engine_name(self) -> EngineName:
        """The engine that generates: that of the backend unless engine.stand_in replaces it."""
        return self.backend.engine if self.engine.stand_in is None else "stand_in"

    @property
    def generation(self) -> GenerationConfig:
        """How evaluation draws completions: `eval_gconfig` over `gconfig` where it is set, temperature 0 if greedy."""
        merged = self.gconfig if self.eval_gconfig is None else self.eval_gconfig.over(self.gconfig)
        return merged.model_copy(update={"temperature": 0.0, "greedy": True}) if merged.is_greedy else merged

    @property
    def reward_function(self) -> str | None:
        """The dotted path of `reward_fn`; None where a built-in grader decides."""
        return None if self.reward_fn in BUILT_IN_REWARDS else self.reward_fn

    @property
    def max_model_len(self) -> int | None:
        """Context length to provision in tokens, as the engine's section asks; None when it does not."""
        return self.sglang.context_length if self.backend.engine == "sglang" else self.vllm.max_model_len

    @property
    def memory_ratio(self) -> float | None:
        """Share of a device's memory for the engine: engine.memory_ratio, else the engine's section; None: neither."""
        if self.engine.memory_ratio is not None:
            return self.engine.memory_ratio
        by_engine = {"vllm": self.vllm.gpu_memory_utilization, "sglang": self.sglang.mem_fraction_static}
        return by_engine.get(self.backend.engine)

    def at_checkpoint(self, path: str | None) -> Self:
        """Return the same evaluation of another checkpoint; of its own one where none is given."""
        return self.model_copy(update={"actor": self.actor.model_copy(update={"path": path})}) if path else self


def check_launchable(config: EvaluationConfig) -> None:
    """Return if this version can start what `config` asks for.

    Raises:
        LaunchError: the scheduler or the engine has no adapter yet; the message holds the override that does.
    """
    problems: list[str] = []
    if config.scheduler.type not in LAUNCHABLE_SCHEDULERS:
        problems.append(
            f"scheduler.type is {config.scheduler.type!r}, which this version cannot launch; available: "
            f"{', '.join(LAUNCHABLE_SCHEDULERS)}; add scheduler.type=local"
        )
    backend = config.backend
    if config.engine_name not in LAUNCHABLE_ENGINES:
        dimensions = str(backend).partition(":")[2]
        problems.append(
            f"rollout.backend is {config.rollout.backend!r}, whose engine this version cannot launch; available: "
            f"{', '.join(LAUNCHABLE_ENGINES)}; add rollout.backend=vllm:{dimensions}"
        )
    if problems:
        raise LaunchError("\n".join(problems))
