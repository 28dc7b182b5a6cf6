"""Checkpoint folders as trainers leave them, one file per layout."""
