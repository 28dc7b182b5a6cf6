"""Checkpoint folders as trainers leave them, one file per layout."""

from infra.checkpoints.inspection import inspect_checkpoint as inspect_checkpoint
