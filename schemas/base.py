"""The one base of every model that crosses a room or a disk."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Frozen, and strict about unknown keys: a misspelt key is an error, not a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=())
