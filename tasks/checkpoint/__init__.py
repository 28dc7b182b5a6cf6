"""Resolve a checkpoint: preflight, identity and pin."""
