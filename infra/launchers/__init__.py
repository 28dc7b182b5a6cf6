"""Adapters that start, watch and stop worker processes."""
