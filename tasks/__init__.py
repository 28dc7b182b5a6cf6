"""The stages of an evaluation, one package each. Pure code; `task.py` is a stage's only Prefect file."""
