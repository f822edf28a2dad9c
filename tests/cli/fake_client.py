"""A stand-in for any client program: it writes down how it was started, talks to its gateway, and does as it is told.

It runs without site-packages: `install` makes a script of this file.
"""

import glob
import json
import os
import re
import signal
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any


def install(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!{sys.executable} -IS\n{Path(__file__).read_text()}", encoding="utf-8")
    program.chmod(0o755)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Told by the environment: `CLIENT_SEEN`, where to write; `CLIENT_DOES`, what to do."""
    texts = [*sys.argv[1:], *os.environ.values()]
    folders = set(re.findall(r"/[^\s\"'=]*/cursor-gateway-\w+", " ".join(texts)))
    files = {Path(path).name: Path(path).read_text() for folder in folders for path in glob.glob(f"{folder}/*")}
    (url,) = set(re.findall(r"http://127\.0\.0\.1:\d+", " ".join([*texts, *files.values()])))
    open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    health = json.load(open_url(f"{url}/health"))
    seen: dict[str, Any] = {
        "argv": sys.argv[1:],
        "environment": dict(os.environ),
        "files": files,
        "modes": [oct(os.stat(folder).st_mode & 0o777) for folder in folders],
        "cwd": os.getcwd(),
        "pid": os.getpid(),
        "url": url,
        "health": health,
        "is_foreground": sys.stdin.isatty() and os.tcgetpgrp(0) == os.getpgrp(),
    }
    does = os.environ.get("CLIENT_DOES", "")
    if does == "wait":  # until a signal comes
        signal.signal(signal.SIGINT, lambda number, frame: say("interrupted"))
    Path(os.environ["CLIENT_SEEN"]).write_text(json.dumps(seen), encoding="utf-8")
    if does == "wait":
        say("waiting")
        while True:
            time.sleep(60)
    if does == "ask":
        body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": sys.stdin.read()}]}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('CGW_API_KEY', '')}"}
        request = urllib.request.Request(f"{url}/v1/chat/completions", body, headers)
        say(json.load(open_url(request))["choices"][0]["message"]["content"])
    return int(does) if does.isdigit() else 0


if __name__ == "__main__":
    sys.exit(main())
