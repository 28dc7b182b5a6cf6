"""Orchestration: order, branching, retries and names. No arithmetic, no file formats."""
