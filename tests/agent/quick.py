"""What a gateway asks when it starts (`--version`, `--help`, `--list-models`) in; the prepared answers out.

Each gateway of a test asks all three. The modules that a turn needs take several times as long to import as Python
takes to start, so this one imports nothing that is written in Python. It answers as `tests.agent.main` would, or not at
all: where the knobs have changed since the installation, or an environment variable or a file may change the answer.
"""

import marshal
import os
from _json import encode_basestring_ascii as quoted

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREPARED = "standin.prepared"
ASKED = ("--version", "--help", "--list-models")
LOGGED = frozenset(
    ("HOME", "PATH", "LANG", "LC_ALL", "NO_COLOR", "NO_OPEN_BROWSER", "TERM", "TMPDIR", "XDG_CONFIG_HOME")
)


def configuration_directory(environ: "Mapping[str, str]") -> str:
    if given := environ.get("CURSOR_CONFIG_DIR"):
        return given
    if above := environ.get("XDG_CONFIG_HOME"):
        return os.path.join(above, "cursor")
    return os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cursor")


def is_logged(name: str) -> bool:
    """Whether the log has the value of this environment variable, not only its name."""
    return name in LOGGED or name.startswith("CURSOR_")


def is_answered(words: "Sequence[str]", directory: str, knobs_file: str) -> bool:
    """Answers and logs, if it can."""
    if len(words) != 1 or words[0] not in ASKED:
        return False
    if any(name.startswith(("STANDIN_", "CURSOR_A")) for name in os.environ):  # a knob; a key or a token
        return False
    configuration = configuration_directory(os.environ)
    if words[0] == "--list-models" and os.path.exists(os.path.join(configuration, "cli-config.json")):
        return False
    try:
        with open(os.path.join(directory, PREPARED), "rb") as file:
            prepared = marshal.load(file)
        with open(os.path.join(directory, knobs_file), "rb") as file:
            if file.read() != prepared["knobs"]:
                return False
    except OSError:
        return False
    if words[0] not in prepared:
        return False
    os.write(1, prepared[words[0]])
    if prepared["log"]:
        with open(prepared["log"], "ab", buffering=0) as file:
            file.write(_record(words, configuration).encode() + b"\n")
    return True


def _record(words: "Sequence[str]", configuration: str) -> str:
    names = ", ".join(map(quoted, sorted(os.environ)))
    values = ", ".join(f"{quoted(name)}: {quoted(value)}" for name, value in os.environ.items() if is_logged(name))
    folder = quoted(os.getcwd())
    return (
        f'{{"argv": [{quoted(words[0])}], "cwd": {folder}, "workspace": {folder}, "prompt": null, "source": null, '
        f'"environment": {{"names": [{names}], "values": {{{values}}}}}, '
        f'"pid": {os.getpid()}, "pgid": {os.getpgid(0)}, "config_dir": {quoted(configuration)}, '
        '"session": null, "history": null}'
    )
