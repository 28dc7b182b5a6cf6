"""The outside world, one adapter per file: engines, launchers, stores, checkpoint folders, datasets."""
