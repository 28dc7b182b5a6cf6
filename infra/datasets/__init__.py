"""Sources of evaluation items and the adapters of well-known datasets."""
