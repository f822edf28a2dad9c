"""The knobs and the environment in; who is logged in, and what `status`, `about` and `models` print, out."""

import json
import os

from tests.agent import failures
from tests.agent.arguments import Parsed
from tests.agent.config import Config
from tests.agent.emitter import Record
from tests.agent.failures import Failure
from tests.agent.knobs import Knobs

VERSION = "2026.10.01-e373342"


class Account:
    def __init__(self, knobs: Knobs, config: Config) -> None:
        self._knobs = knobs
        self._config = config
        self._logged_in = knobs.text("login") != "none"
        self._email = knobs.text("email", "user@example.com")
        self.version = knobs.text("version", VERSION)

    def log_in(self, parsed: Parsed) -> str:
        """Where the key comes from, as `init` says it."""
        key, source = parsed.value("api-key"), "flag"
        if key is None:
            key, source = os.environ.get("CURSOR_API_KEY"), "env"
        if key is not None:
            if not key or key.startswith("bad"):  # set but empty is a bad key, too
                raise failures.bad_key()
            return source
        if parsed.value("auth-token") or os.environ.get("CURSOR_AUTH_TOKEN") or self._logged_in:
            return "login"
        raise failures.not_logged_in()

    def models(self, parsed: Parsed) -> str:
        self.log_in(parsed)
        if self._knobs.flag("models_fail"):
            said = self._knobs.text("models_fail")
            raise Failure("Error: Failed to list models" if said in ("1", "true") else said)
        lines = [f"{id} - {label}{self._marks(id)}" for id, label in self._knobs.models()]
        tip = "Tip: use --model <id> (or /model <id> in interactive mode) to switch."
        return "\n".join(["Available models", "", *lines, "", tip])

    def _marks(self, id: str) -> str:
        marks = [mark for mark, model in (("current", self._config.model), ("default", "auto")) if id == model]
        return f" ({', '.join(marks)})" if marks else ""

    def status(self) -> str:
        return f"✓ Logged in as {self._email}" if self._logged_in else "Not logged in"  # a key changes nothing

    def status_json(self) -> str:
        on = self._logged_in
        user = {"email": self._email, "userId": 7, "firstName": "Stand", "lastName": "In", "createdAt": "2026-01-01"}
        status = {"status": "authenticated" if on else "unauthenticated", "isAuthenticated": on}
        tokens = {"hasAccessToken": on, "hasRefreshToken": on}
        return _json({**status, **tokens, **({"userInfo": user} if on else {"message": "Not logged in"})})

    def about(self) -> str:
        system = os.uname()
        rows = {
            "CLI Version": self.version,
            "Model": self._label,
            "Subscription Tier": self._knobs.text("tier", "Pro"),
            "OS": f"{system.sysname.lower()} ({system.machine})",
            "Terminal": "unknown",
            "Shell": os.path.basename(os.environ.get("SHELL", "sh")),
            "User Email": self._email if self._logged_in else "Not logged in",
        }
        return "\n".join(["About Cursor CLI", "", *(f"{name:<19} {value}" for name, value in rows.items())])

    def about_json(self) -> str:
        system = os.uname()
        return _json(
            {
                "cliVersion": self.version,
                "latestStatus": "latest",
                "latestVersion": self.version,
                "model": self._label,
                "subscriptionTier": self._knobs.text("tier", "Pro"),
                "osPlatform": system.sysname.lower(),
                "osArch": system.machine,
                "userEmail": self._email if self._logged_in else None,
                "terminalProgram": "unknown",
                "shell": os.path.basename(os.environ.get("SHELL", "sh")),
                "lastRequestId": None,
            }
        )

    @property
    def _label(self) -> str:
        return dict(self._knobs.models()).get(self._config.model, self._config.model)


def _json(data: Record) -> str:
    return json.dumps(data, ensure_ascii=False, indent=2)
