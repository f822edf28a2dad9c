"""Read the settings from the configuration file, the environment and flags, and remember where each came from."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from cursor_gateway.cli.output import complete_file
from cursor_gateway.errors import SettingsError
from cursor_gateway.settings import FILE_VARIABLE, Loaded, Settings, load
from cursor_gateway.wire.surrogates import has_surrogates

config = click.option(
    "--config",
    metavar="FILE",
    shell_complete=complete_file,
    help=f"The configuration file (TOML). Default: ${FILE_VARIABLE}, or ~/.config/cursor-gateway/config.toml.",
)


def configuration(
    file: str | None = None, flags: Mapping[str, object] | None = None, environ: Mapping[str, str] = os.environ
) -> Loaded:
    """`flags` by the names of their settings; None was not given. Raises `SettingsError`."""
    path, values = _read_file(file or environ.get(FILE_VARIABLE), environ)
    return load(values, environ, flags or {}, path=path)


def usual_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where the file is by default. None if the user has no home directory."""
    return _in_home("XDG_CONFIG_HOME", "~/.config", "config.toml", environ)


def data_dir(settings: Settings, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the gateway keeps its files. It may not exist yet."""
    if settings.data_dir:
        return _expanded(settings.data_dir).absolute()
    found = _in_home("XDG_DATA_HOME", "~/.local/share", "", environ)
    if found is None:
        raise SettingsError(
            "the gateway's data directory is not known, because there is no home directory; set `data_dir`.",
            param="data_dir",
        )
    return found


def check_paths(settings: Settings, data: str = "") -> None:
    """Raises `SettingsError` for a path that is not UTF-8: neither agents nor the history can handle it."""
    folders = [("workspace", settings.workspace or "."), ("data_dir", data)]
    folders += [("workspace_roots", root) for root in settings.workspace_roots]
    folders += [("volumes", volume) for volume in settings.volumes.values()]
    for param, path in folders:
        with suppress(OSError, ValueError):  # whoever needs the folder reports that there is none
            if has_surrogates(found := os.path.realpath(os.path.expanduser(path))):
                what = f"the path {os.fsencode(found)!r} (`{param}`) is not valid UTF-8"
                raise SettingsError(
                    f"{what}, so agents cannot open it; rename the folder, or use another.", param=param
                )


def _in_home(variable: str, otherwise: str, name: str, environ: Mapping[str, str]) -> Path | None:
    base = Path(environ.get(variable, ""))
    try:
        # the XDG specification: a relative path is invalid, and ignored
        return (base if base.is_absolute() else Path(otherwise).expanduser()) / "cursor-gateway" / name
    except RuntimeError:  # the user may be unknown to the system, as in containers
        return None


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise SettingsError(f"the home directory in {path!r} does not exist; write the full path.") from None


def _read_file(named: str | None, environ: Mapping[str, str]) -> tuple[str, Mapping[str, object]]:
    """Its path and its contents, which are empty if the default file does not exist."""
    path = _expanded(named) if named else usual_file(environ)
    if path is None:
        return "", {}
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if not named:
            return str(path), {}
        raise _unusable(path, f"cannot be read: {error.strerror}; name one that exists") from None
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}; check its permissions, or name another") from None
    import tomllib  # most have no file

    try:
        return str(path), tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unusable(path, f"is not UTF-8 (at line {line}); save it as UTF-8") from None
    except RecursionError:
        raise _unusable(path, "is nested too deeply; settings are `name = value` lines, lists and tables") from None
    except tomllib.TOMLDecodeError as error:
        raise _unusable(path, f"is not TOML: {error}; write `name = value` lines, text in quotes") from None


def _unusable(path: Path, reason: str) -> SettingsError:
    return SettingsError(f"the configuration file {str(path)!r} {reason}.")
