"""A real Slurm on one machine, for tests and try-outs."""
