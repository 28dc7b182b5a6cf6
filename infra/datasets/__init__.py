"""Sources of evaluation items and the adapters of well-known datasets.

`sources` know where rows lie and nothing of their meaning; `adapters` know what a row means and nothing of where it
lay; `loading` joins and validates them. Nothing here renders a prompt or reads a tokenizer.
"""

from infra.datasets.loading import load_dataset as load_dataset
