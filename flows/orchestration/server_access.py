"""How a command reaches its Prefect server: the address and where it is set, the login, and never by a proxy to itself.

Owns what Prefect's client is told; must not decide whether what answers is a server (`prefect_answers`).
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from schemas.errors import SetupError

TELEMETRY_OFF: Final = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
_VARIABLE: Final = "PREFECT_API_URL"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")
_SOCKS: Final = "socks"


def reach_loopback_directly() -> str | None:
    """Keep proxies away from this machine's own servers; return a line about a proxy that cannot be used at all.

    A proxy of the environment is asked for 127.0.0.1 too, unless `no_proxy` names it.
    """
    names = [name for name in os.environ if name.lower() in _PROXIES]
    if not any(os.environ[name] for name in names):
        return None
    excepted = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if excepted.strip() != "*":
        listed = [each.strip() for each in excepted.split(",") if each.strip()]
        excepted = ",".join([*listed, *(each for each in _LOOPBACK if each not in listed)])
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = excepted
    if find_spec("socksio"):
        return None
    # httpx makes a client of every proxy in the environment, and fails on this kind whatever it is asked for
    unusable = [name for name in names if os.environ[name].lower().startswith(_SOCKS)]
    for name in unusable:
        del os.environ[name]
    if not unusable:
        return None
    return f"{', '.join(unusable)} is left out: a SOCKS proxy needs the package socksio in {sys.prefix}"


def load_prefect() -> None:
    """Import Prefect, which reads its settings.

    Raises:
        SetupError: one of them cannot be used.
    """
    from pydantic import ValidationError

    try:
        import_module("prefect.context")
    except ValueError as exc:  # of pydantic, of its settings, of a TOML file
        reasons = (
            "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors())
            if isinstance(exc, ValidationError)
            else str(exc)
        )
        raise SetupError(
            f"Prefect's settings cannot be used: {reasons}; correct them in the environment (PREFECT_…), .env, "
            "prefect.toml, pyproject.toml or profiles.toml, where Prefect reads them"
        ) from exc


def use_login() -> None:
    """Let Prefect's client send the login of this user's `milepost server`, where that is what PREFECT_API_URL names.

    PREFECT_API_AUTH_STRING and PREFECT_API_KEY, where the user has set them, come first.
    """
    from prefect.context import refresh_global_settings_context
    from prefect.settings import get_current_settings

    from infra.prefect_server.login import find_login

    reach_loopback_directly()
    settings = get_current_settings()
    if not settings.api.url or settings.api.auth_string or settings.api.key:
        return
    login = find_login(settings.api.url, settings.home)
    if login is not None:
        os.environ["PREFECT_API_AUTH_STRING"] = login  # for the processes that this one starts too
        refresh_global_settings_context()


def export_settings() -> None:
    """Put what Prefect's files say of its server into the environment, for what reads nothing else."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_KEY, PREFECT_API_URL

    for setting in (PREFECT_API_URL, PREFECT_API_AUTH_STRING, PREFECT_API_KEY):
        if value := setting.value():
            os.environ[setting.name] = str(value)


def name_source() -> str | None:
    """Return which file sets PREFECT_API_URL, for people; None where the environment variable does, or nothing.

    The order is Prefect's own: the environment, .env, prefect.toml, pyproject.toml, the profile.
    """
    from dotenv import dotenv_values
    from prefect.settings.models.api import APISettings
    from prefect.settings.sources import (
        PrefectTomlConfigSettingsSource,
        ProfileSettingsTomlLoader,
        PyprojectTomlConfigSettingsSource,
    )

    if os.environ.get(_VARIABLE):
        return None
    if Path(".env").is_file() and dotenv_values(".env").get(_VARIABLE):
        return str(Path(".env").absolute())
    files = {"prefect.toml": PrefectTomlConfigSettingsSource, "pyproject.toml": PyprojectTomlConfigSettingsSource}
    for name, source in files.items():
        if source(APISettings).toml_data.get("url"):
            return str(Path(name).absolute())
    profile = ProfileSettingsTomlLoader(APISettings)
    return f"the active profile in {profile.profiles_path}" if profile.profile_settings.get(_VARIABLE) else None
