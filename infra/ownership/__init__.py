"""Folders that belong to a process as long as it lives: runs, and what is not yet published."""
