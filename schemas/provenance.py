"""What made the numbers of a run: software and hardware."""

from pydantic import Field

from schemas.base import Model


class Gpu(Model):
    """One GPU as the driver names it."""

    name: str
    """Product name."""
    memory_mib: int
    """Total memory in MiB."""
    driver_version: str
    """Version of the driver."""


class Provenance(Model):
    """Versions and hardware at the time of a launch."""

    milepost_version: str
    """Version of Milepost."""
    git_commit: str | None
    """Commit of the checkout the code runs from; None outside one."""
    git_dirty: bool | None
    """Whether tracked files of that checkout were changed; None outside one."""
    python_version: str
    """Version of the controller's Python."""
    packages: dict[str, str]
    """Controller: version by package, of the installed ones among those that shape numbers."""
    engine_packages: dict[str, str] = Field(default_factory=dict)
    """Engine environment: version by package, its `python` included; empty when it was not asked."""
    host: str
    """Name of the machine."""
    operating_system: str
    """Kernel and architecture."""
    cpu_model: str
    """Model name of the processor."""
    num_cores: int
    """Cores that this process may use."""
    memory_bytes: int
    """Physical memory."""
    gpus: tuple[Gpu, ...]
    """The GPUs that the driver lists; empty without any."""

    def versions(self) -> dict[str, str]:
        """Return both environments' packages in one mapping, as the column `versions` of `runs` keeps them.

        A package that both have is kept twice; the engine's is marked `(engine)`.
        """
        both = {"python": self.python_version, **self.packages}
        for name, version in self.engine_packages.items():
            both[f"{name} (engine)" if name in both else name] = version
        return dict(sorted(both.items()))
