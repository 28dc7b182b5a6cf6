"""What in a text is a credential, and what of the environment a configuration may read.

Messages reach logs, chats, Prefect's database and the store: a credential that was put in the wrong place must not.
"""

import re
from typing import Final

HIDDEN: Final = "***"
"""Stands for what was a credential."""

_SECRETS: Final = re.compile(
    r"(?P<address>\b(?:hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/|"
    r"[\w.-]+\.webhook\.office\.com/|[\w.-]+\.logic\.azure\.com\S*?sig=|api\.telegram\.org/bot))[^\s\"'`;,)\]}]+"
    r"|(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]{1,30}://)[^\s\"'@/]{1,200}@"
    r"|\b(?:hf_[A-Za-z0-9]{16,}|xox[a-z]-[A-Za-z0-9-]{8,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|"
    r"github_pat_\w{16,}|glpat-[\w-]{16,}|AKIA[A-Z0-9]{12,}|AIza[\w-]{30,}|pnu_\w{16,})"
    r"|(?P<name>\b(?:(?:api|access)[_-]?key|token|passw(?:or)?d|secret)\s?[=:]\s?[\"']?)[A-Za-z0-9_./+=-]{12,}",
    re.IGNORECASE,
)
"""Addresses that are credentials, logins inside URLs, tokens by their prefixes, values behind a telling name."""

_MAY_BE_READ: Final = re.compile(
    r"HOME|USER|LOGNAME|HOSTNAME|PWD|TMPDIR|SCRATCH|WORK|PROJECT|CUDA_VISIBLE_DEVICES|SLURM_\w+|HF_HOME|HF_HUB_CACHE|"
    r"\w+_(?:DIR|ROOT|PATH|HOME|FOLDER|NAME|NODES|GPUS|SIZE|PARTITION|ACCOUNT|VERSION|STEP|SEED)"
)
_NEVER_READ: Final = re.compile(r"TOKEN|SECRET|PASS|CREDENTIAL|API_?KEY|PRIVATE|WEBHOOK|JWT", re.IGNORECASE)
ENVIRONMENT_RULE: Final = "HOME, USER, TMPDIR and the like, SLURM_…, names that end in _DIR, _ROOT, _PATH, _NAME …"
"""Names of variables that a configuration may read, in words."""


def hide_secrets(text: str) -> str:
    """Return `text` with what is a credential in it replaced by `***`; what names its place stays."""

    def hidden(match: re.Match[str]) -> str:
        if match["scheme"]:
            return f"{match['scheme']}{HIDDEN}@"
        return f"{match['address'] or match['name'] or ''}{HIDDEN}"

    return _SECRETS.sub(hidden, text)


def may_read_variable(name: str) -> bool:
    """Return whether a configuration, which is printed and stored, may hold the value of an environment variable."""
    return _MAY_BE_READ.fullmatch(name) is not None and _NEVER_READ.search(name) is None
