"""Arrow schemas of everything kept in Parquet: the store's tables and a run's own files.

Every field carries its description as metadata (`description`), every schema its version (`milepost.schema_version`).
`conform` reads what an older version wrote: absent columns become null.
"""

from typing import Any, Final

import pyarrow as pa

from schemas.errors import StoreError

SCHEMA_VERSION: Final = 1
"""Raised when a column changes; an added nullable column keeps older files readable."""


def _field(name: str, kind: pa.DataType, description: str, *, nullable: bool = False) -> "pa.Field[pa.DataType]":
    return pa.field(name, kind, nullable=nullable, metadata={"description": description})


def _schema(*fields: "pa.Field[pa.DataType]") -> pa.Schema:
    return pa.schema(list(fields), metadata={"milepost.schema_version": str(SCHEMA_VERSION)})


_ELEMENT: Final = pa.field("element", pa.string())
"""Member of a list, named as Parquet names it, so that a file has the very schema."""

_TOKEN_IDS: Final = pa.list_(pa.field("element", pa.int32()))
"""Likewise."""

_LOGPROBS: Final = pa.list_(pa.field("element", pa.float32()))
"""Likewise; 32 bits hold seven digits."""

_IDENTITY = (
    _field("run_id", pa.string(), "Run that made the row"),
    _field("experiment_name", pa.string(), "experiment_name of the configuration"),
    _field("trial_name", pa.string(), "trial_name of the configuration"),
    _field("checkpoint", pa.string(), "Checkpoint as the user named it"),
    _field("weight_digest", pa.string(), "Digest of the weights' bytes, hex"),
    _field("global_step", pa.int64(), "Training step of the checkpoint; null when unknown", nullable=True),
    _field("dataset", pa.string(), "Name of the dataset"),
    _field("dataset_version", pa.string(), "Digest of the dataset's items, hex"),
)

SAMPLES: Final = _schema(
    *_IDENTITY,
    _field("item_id", pa.string(), "Stable id of the problem"),
    _field("repeat", pa.int32(), "Which completion of the item, from 0"),
    _field("subsets", pa.map_(pa.string(), pa.string()), "Strata of the item, such as subject and level"),
    _field("prompt_hash", pa.string(), "Digest of the prompt's token ids, hex"),
    _field("prompt", pa.string(), "Prompt as rendered by the chat template"),
    _field("completion", pa.string(), "Text the model made; null when generation failed", nullable=True),
    _field("finish_reason", pa.string(), "stop or length; null when generation failed", nullable=True),
    _field("num_prompt_tokens", pa.int32(), "Tokens given"),
    _field("num_completion_tokens", pa.int32(), "Tokens made; null when generation failed", nullable=True),
    _field("gold", pa.string(), "Gold answer as the dataset has it"),
    _field("answer", pa.string(), "Answer found in the completion; null when none", nullable=True),
    _field("verdict", pa.string(), "correct, wrong, no_answer, unparsed, truncated, timeout, crashed or failed"),
    _field("score", pa.float64(), "Score in [0, 1]; null when there is none", nullable=True),
    _field("reward", pa.float64(), "What the user's reward function returned; null when there is none", nullable=True),
    _field("seed", pa.int64(), "Seed of the sample"),
    _field("replica", pa.int32(), "Replica that made it; null when generation failed", nullable=True),
    _field("attempt", pa.int32(), "Launch of the run that made it; null when generation failed", nullable=True),
    _field("batch_size", pa.int32(), "Batch size it ran at; null when generation failed", nullable=True),
    _field("mean_logprob", pa.float64(), "Mean log-probability of the completion's tokens, nats", nullable=True),
    _field("entropy", pa.float64(), "Mean entropy of the next-token distribution, nats", nullable=True),
    _field("latency_s", pa.float64(), "Seconds from entering the engine to the last token", nullable=True),
    _field("error", pa.string(), "Why the row has no score; null when it has one", nullable=True),
    _field("cluster_id", pa.string(), "Equal in problems that belong together; null: it stands alone", nullable=True),
    _field(
        "completion_token_ids",
        _TOKEN_IDS,
        "Tokens made, the end-of-sequence token included; null where store.keep_tokens is false",
        nullable=True,
    ),
    _field(
        "token_logprobs",
        _LOGPROBS,
        "Log-probability of each of them under the model, nats; null likewise",
        nullable=True,
    ),
)

METRICS: Final = _schema(
    *_IDENTITY,
    _field("subset", pa.string(), "all, else key=value"),
    _field("metric", pa.string(), "Name of the metric"),
    _field("value", pa.float64(), "Estimate; null when undefined", nullable=True),
    _field("stderr", pa.float64(), "Standard error; null when undefined", nullable=True),
    _field("ci_low", pa.float64(), "Lower end of the 95% confidence interval", nullable=True),
    _field("ci_high", pa.float64(), "Upper end of the 95% confidence interval", nullable=True),
    _field("num_planned", pa.int64(), "Samples planned in the subset"),
    _field("num_scored", pa.int64(), "Samples with a verdict on the model"),
    _field("num_failed", pa.int64(), "Samples without one: refused, timed out, crashed"),
    _field("higher_is_better", pa.bool_(), "Direction of the metric; null when neither", nullable=True),
)

RUNS: Final = _schema(
    *_IDENTITY,
    _field("plan_key", pa.string(), "Digest of everything that decides the samples, hex"),
    _field("started_at", pa.timestamp("us", tz="UTC"), "First start of the run"),
    _field("finished_at", pa.timestamp("us", tz="UTC"), "When it was published"),
    _field("wall_s", pa.float64(), "Seconds of controller time over all attempts"),
    _field("engine_s", pa.float64(), "Seconds of generation, summed over replicas and attempts", nullable=True),
    _field("num_attempts", pa.int32(), "Launches it took"),
    _field("num_replicas", pa.int32(), "Replicas of the last launch"),
    _field("num_planned", pa.int64(), "Samples planned"),
    _field("num_scored", pa.int64(), "Samples with a verdict on the model"),
    _field("num_failed", pa.int64(), "Samples without one"),
    _field("num_prompt_tokens", pa.int64(), "Tokens given over all samples"),
    _field("num_completion_tokens", pa.int64(), "Tokens made over all samples"),
    _field("tokenizer_digest", pa.string(), "Digest of the tokenizer's files, hex"),
    _field("chat_template_digest", pa.string(), "Digest of the chat template, hex"),
    _field("config_digest", pa.string(), "Digest of the resolved configuration, hex"),
    _field("seed", pa.int64(), "Seed of the run"),
    _field("n_samples", pa.int32(), "Completions per item"),
    _field("engine", pa.string(), "Engine adapter"),
    _field("dtype", pa.string(), "dtype in use", nullable=True),
    _field("device", pa.string(), "Device of the engine; several kinds are joined by commas", nullable=True),
    _field("host", pa.string(), "Machine of the controller; null when unknown", nullable=True),
    _field("operating_system", pa.string(), "Its kernel and architecture; null when unknown", nullable=True),
    _field("cpu_model", pa.string(), "Its processor; null when unknown", nullable=True),
    _field("num_cores", pa.int32(), "Cores the controller may use; null when unknown", nullable=True),
    _field("memory_bytes", pa.int64(), "Physical memory of that machine; null when unknown", nullable=True),
    _field("gpus", pa.list_(pa.string()), "Its GPUs by name; null when unknown", nullable=True),
    _field("milepost_version", pa.string(), "Version of Milepost"),
    _field("git_commit", pa.string(), "Commit of Milepost's checkout; null outside one", nullable=True),
    _field("git_dirty", pa.bool_(), "Whether that checkout had changes; null outside one", nullable=True),
    _field("versions", pa.map_(pa.string(), pa.string()), "Package versions of controller and engine"),
    _field("differences", pa.list_(pa.string()), "What changed between the attempts of the run, in words"),
    _field("config", pa.string(), "Resolved configuration as YAML"),
    _field("base_checkpoint", pa.string(), "Base of a LoRA adapter; null for a whole model", nullable=True),
    _field("regrade_of", pa.string(), "Run whose samples were graded again; null for a run's own", nullable=True),
    _field("model_config_digest", pa.string(), "Digest of the checkpoint's config.json and EOS ids", nullable=True),
    _field("num_skipped_rows", pa.int64(), "Rows left out by valid_dataset.invalid_rows: skip", nullable=True),
)

DRIFT: Final = _schema(
    *_IDENTITY,
    _field("kind", pa.string(), "number, category, text, vector, output (what the model made) or contract (a rule)"),
    _field("name", pa.string(), "Feature or rule"),
    _field("drifted", pa.bool_(), "Whether the feature drifted, or the rule is broken"),
    _field("statistic", pa.float64(), "Value of the test's statistic", nullable=True),
    _field("effect", pa.float64(), "Size of the change, 0 for none; docs/drift.md has the units", nullable=True),
    _field("effect_floor", pa.float64(), "Smallest effect that counts", nullable=True),
    _field("p_value", pa.float64(), "Chance of such a statistic without drift", nullable=True),
    _field("underpowered", pa.bool_(), "Whether a change of the floor's size could go unseen", nullable=True),
    _field("smallest_detectable", pa.float64(), "Effect that would be seen in four of five cases", nullable=True),
    _field("psi", pa.float64(), "Population stability index; for information", nullable=True),
    _field("jensen_shannon", pa.float64(), "Jensen-Shannon distance in [0, 1]; for information", nullable=True),
    _field("kl", pa.float64(), "Kullback-Leibler divergence, nats; for information", nullable=True),
    _field("num_reference", pa.int64(), "Rows compared with; null for a rule", nullable=True),
    _field("num_current", pa.int64(), "Rows compared"),
    _field("num_violations", pa.int64(), "Rows that break the rule; null for a feature", nullable=True),
    _field("item_ids", pa.list_(_ELEMENT), "The first 20 of those rows; null for a feature", nullable=True),
    _field("details", pa.string(), "What changed most, in words"),
    _field("status", pa.string(), "frozen, unchanged, checked or not_due; docs/drift.md says what each means"),
    _field("reference_version", pa.string(), "Version of the rows compared with"),
    _field("current_version", pa.string(), "Version of the rows compared"),
    _field("checked_at", pa.timestamp("us", tz="UTC"), "When they were compared"),
)

SHARDS: Final = _schema(
    *_IDENTITY,
    _field("attempt", pa.int32(), "Launch of the run"),
    _field("replica", pa.int32(), "Replica of that launch"),
    _field("num_samples", pa.int64(), "Samples it made"),
    _field("num_items", pa.int64(), "Problems it worked on"),
    _field(
        "accuracy",
        pa.float64(),
        "Share of its scored samples that are correct; null without one or unfinished",
        nullable=True,
    ),
    _field("mean_length", pa.float64(), "Mean tokens of its completions; null likewise", nullable=True),
    _field("no_answer_rate", pa.float64(), "Share of its samples that state no answer; null likewise", nullable=True),
    _field("mean_logprob", pa.float64(), "Mean of its samples' mean_logprob, nats; null likewise", nullable=True),
    _field("residuals", pa.map_(pa.string(), pa.float64()), "By measure: distance from all, in standard deviations"),
    _field("problems", pa.list_(pa.string()), "What speaks against it; empty for a healthy replica"),
    _field("is_quarantined", pa.bool_(), "Whether its samples were set aside and made again"),
    _field("engine", pa.string(), "Engine adapter it ran; null when it never said", nullable=True),
    _field("dtype", pa.string(), "dtype in use; null when it never said", nullable=True),
    _field("device", pa.string(), "Its device; null when it never said", nullable=True),
    _field("node", pa.string(), "Machine it ran on; null when it never said", nullable=True),
    _field("weight_sample", pa.string(), "Digest of a sample of the weights it loaded, hex", nullable=True),
    _field("versions", pa.map_(pa.string(), pa.string()), "Package versions of its engine"),
)

CONSISTENCY: Final = _schema(
    *_IDENTITY,
    _field("check", pa.string(), "What was compared; verdict for what follows from all"),
    _field("outcome", pa.string(), "passed, violated or cannot_tell"),
    _field("decides", pa.bool_(), "Whether the verdict rests on it; the others are shown"),
    _field("suspects", pa.list_(pa.string()), "Replicas that differ from the others"),
    _field("statistic", pa.float64(), "Largest residual, distance or difference", nullable=True),
    _field("threshold", pa.float64(), "What it was held against", nullable=True),
    _field("p_value", pa.float64(), "Chance of it among replicas that agree; null where not needed", nullable=True),
    _field("detectable", pa.float64(), "Difference of one replica that would have been seen", nullable=True),
    _field("message", pa.string(), "What was found, in words"),
)

ALERTS: Final = _schema(
    *_IDENTITY,
    _field("event", pa.string(), "Name of the event"),
    _field("event_id", pa.string(), "The same for the same cause"),
    _field("occurred_at", pa.timestamp("us", tz="UTC"), "When it was first met"),
    _field("message", pa.string(), "What happened, how much, against what"),
    _field("silenced", pa.bool_(), "Whether no message was sent, as one like it had been a short time before"),
)

TABLES: Final[dict[str, pa.Schema]] = {
    "runs": RUNS,
    "samples": SAMPLES,
    "metrics": METRICS,
    "drift": DRIFT,
    "shards": SHARDS,
    "consistency": CONSISTENCY,
    "alerts": ALERTS,
}
"""The store's tables by name."""

PROMPT_SCHEMA: Final = _schema(
    _field("item_id", pa.string(), "Stable id of the problem"),
    _field("prompt_hash", pa.string(), "Digest of token_ids, hex"),
    _field("prompt", pa.string(), "Prompt as rendered by the chat template"),
    _field("token_ids", pa.list_(pa.int32()), "The prompt as the engine gets it; exactly one BOS where there is one"),
    _field("gold", pa.string(), "Gold answer as the dataset has it"),
    _field("grader", pa.string(), "math, reasoning_gym or function"),
    _field("grader_data", pa.string(), "What that grader needs beyond the gold"),
    _field("subsets", pa.map_(pa.string(), pa.string()), "Strata of the item"),
    _field("cluster_id", pa.string(), "Equal in items that belong together; null: it stands alone", nullable=True),
)
"""prompts.parquet of a run: one row per item, refused ones included."""

WORK_SCHEMA: Final = _schema(
    _field("item_id", pa.string(), "Stable id of the problem"),
    _field("repeat", pa.int32(), "Which completion of the item, from 0"),
)
"""work.parquet of a worker."""

PROFILE_SCHEMA: Final = _schema(
    _field("item_id", pa.string(), "Id of the problem"),
    _field("prompt", pa.string(), "What it asks, without system prompt and instruction"),
    _field("answer", pa.string(), "Gold answer; null where there is none", nullable=True),
    _field("subset", pa.list_(_ELEMENT), "Its strata, each as key=value"),
    _field("grader", pa.string(), "Who grades it"),
)
"""A frozen profile: the rows that later ones are compared with."""

JOURNAL_SCHEMA: Final = _schema(
    _field("item_id", pa.string(), "As in the plan"),
    _field("repeat", pa.int32(), "Which completion of the item, from 0"),
    _field("prompt_hash", pa.string(), "Digest of the token ids that the engine was given"),
    _field("completion", pa.string(), "The text"),
    _field("finish_reason", pa.string(), "stop or length", nullable=True),
    _field("num_prompt_tokens", pa.int32(), "Tokens given"),
    _field("num_completion_tokens", pa.int32(), "Tokens made"),
    _field("mean_logprob", pa.float64(), "Nats", nullable=True),
    _field("entropy", pa.float64(), "Nats", nullable=True),
    _field("seed", pa.int64(), "Seed of the sample"),
    _field("latency_s", pa.float64(), "Seconds"),
    _field("batch_size", pa.int32(), "Batch size it ran at"),
    _field("replica", pa.int32(), "Who made it"),
    _field("attempt", pa.int32(), "In which launch"),
    _field("finished_at", pa.float64(), "Unix time in seconds"),
    _field("error", pa.string(), "Why generation failed", nullable=True),
    _field("completion_ids", _TOKEN_IDS, "Tokens made, where they are kept", nullable=True),
    _field("token_logprobs", _LOGPROBS, "Nats per token, where kept", nullable=True),
)
"""A finished chunk of a worker's journal; the columns of schemas.inference.SampleRecord."""

GRADE_SCHEMA: Final = _schema(
    _field("item_id", pa.string(), "As in the plan"),
    _field("repeat", pa.int32(), "Which completion of the item, from 0"),
    _field("replica", pa.int32(), "Who made the completion that was graded"),
    _field("attempt", pa.int32(), "In which launch"),
    _field("verdict", pa.string(), "schemas.states.Verdict"),
    _field("answer", pa.string(), "Answer found in the completion", nullable=True),
    _field("score", pa.float64(), "Score in [0, 1]", nullable=True),
    _field("reason", pa.string(), "Why there is no score", nullable=True),
    _field("reward", pa.float64(), "What the user's reward function returned", nullable=True),
)
"""grades.parquet of a run: one row per sample, saying of which completion where two attempts made one."""


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return `table` with exactly the columns of `schema`, in order: absent nullable ones null, unknown ones dropped.

    Raises:
        StoreError: a column that may not be null is absent, or a column cannot be cast.
    """
    columns: list[pa.ChunkedArray[Any] | pa.Array[Any]] = []
    for field in schema:
        if field.name in table.column_names:
            try:
                columns.append(table.column(field.name).cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
                raise StoreError(
                    f"column {field.name!r} is {table.schema.field(field.name).type}, expected {field.type}: {exc}"
                ) from exc
        elif field.nullable:
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            raise StoreError(f"column {field.name!r} is missing; the table has {', '.join(table.column_names)}")
    return pa.Table.from_arrays(columns, schema=schema)
