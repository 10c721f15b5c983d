"""Optional token of a robot's server: a secret in the environment of the server and of every client."""

from __future__ import annotations

import os
import re

from robo_rl.errors import InvalidSetting

VARIABLE = "ROBO_RL_ROBOT_TOKEN"
HEADER = "X-Robo-Token"
_ALLOWED = re.compile(r"[!-~]{16,200}")


def robot_token() -> str:
    """Return the token in this process's environment, "" if there is none; raises InvalidSetting if the token is too weak."""
    token = os.environ.get(VARIABLE, "")
    if token and not _ALLOWED.fullmatch(token):
        raise InvalidSetting(
            f"{VARIABLE} holds no token of a robot's server.",
            got=f"{len(token)} characters",
            allowed="16 to 200 letters, digits and signs, without a space",
            fix='python -c "import secrets; print(secrets.token_urlsafe(24))" makes one',
        )
    return token
