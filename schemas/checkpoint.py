"""What is known of a checkpoint folder without loading it."""

import hashlib
from pathlib import Path
from typing import Literal

from schemas.base import Model
from schemas.training_position import TrainingPosition

CheckpointStatus = Literal["complete", "incomplete", "needs_conversion", "not_a_checkpoint"]


class AdapterReport(Model):
    """What a LoRA adapter needs beside its own files."""

    base_name: str
    """The model that it is applied to, as adapter_config.json or the configuration names it."""
    base_folder: Path
    """Folder of that model: configuration and weights."""
    base_weight_files: tuple[Path, ...]
    """Weight files of the base model, in the order of its index."""
    max_rank: int
    """Largest rank of an update."""
    settings: str
    """What of adapter_config.json decides the model, as JSON."""


class CheckpointReport(Model):
    """The result of reading a folder's metadata: file names, JSON files and safetensors headers."""

    path: Path
    """The folder that was read."""
    status: CheckpointStatus
    """`complete` is the only status that is evaluated."""
    layout: str
    """Which trainer's layout was recognised, such as `huggingface`; empty when none was."""
    global_step: int | None
    """The training step that the folder's name or state gives."""
    epoch: int | None = None
    """The training epoch, from 0, that they give."""
    problems: tuple[str, ...]
    """Each reason against `complete`, with what to do."""
    notes: tuple[str, ...] = ()
    """What a person should know of it that is no reason against `complete`."""
    architecture: str | None = None
    """First entry of `architectures` in config.json."""
    dtype: str | None = None
    """dtype of the weights as config.json or the shard headers name it, such as `bfloat16`."""
    weight_files: tuple[Path, ...] = ()
    """The shards in index order; of an adapter its own file."""
    num_parameters: int | None = None
    """Sum over tensors of the product of their shapes; of an adapter, its base's among them."""
    context_length: int | None = None
    """Longest prompt plus completion that the model takes, in tokens (max_position_embeddings)."""
    eos_token_ids: tuple[int, ...] = ()
    """Union of generation_config.json, config.json and the tokenizer's EOS: any of them ends a completion."""
    has_chat_template: bool = False
    """Whether chat_template.jinja or tokenizer_config.json holds a template."""
    num_embeddings: int | None = None
    """Rows of the token embedding: prompts hold token ids below it; None where the headers leave it open."""
    media_token_ids: tuple[int, ...] | None = None
    """Tokens that stand for an image, a video or a sound; None for a model that takes text alone."""
    tokenizer_folder: Path | None = None
    """Folder of tokenizer and chat template, when not `path`."""
    adapter: AdapterReport | None = None
    """Of a LoRA adapter: what it is applied to; None for a whole model."""

    @property
    def loaded_files(self) -> tuple[Path, ...]:
        """Every weight file that an engine loads: an adapter's base's too."""
        return self.weight_files if self.adapter is None else (*self.weight_files, *self.adapter.base_weight_files)

    @property
    def position(self) -> TrainingPosition:
        """How far training had come."""
        return TrainingPosition(global_step=self.global_step, epoch=self.epoch)


class CheckpointIdentity(Model):
    """Digests that say which model made a sample; hex, 128 bit."""

    weight_digest: str
    """Over the bytes of every shard, independent of the folder's name. Of an adapter: over its base's and its settings
    as well."""
    tokenizer_digest: str
    """Over the tokenizer's files."""
    chat_template_digest: str
    """Over the chat template; of the empty text where there is none."""
    model_config_digest: str
    """Over what of config.json decides the model, and over the EOS ids of all files. Of an adapter: its base's."""

    @property
    def digest(self) -> str:
        """Over all of these: two checkpoints of one digest give the same samples."""
        return hashlib.blake2b(self.model_dump_json().encode(), digest_size=16, person=b"milepost-model").hexdigest()
