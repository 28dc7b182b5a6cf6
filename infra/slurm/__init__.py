"""Talking with Slurm: the text of a job, its commands, what its states mean."""
