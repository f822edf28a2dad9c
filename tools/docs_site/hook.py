"""What mkdocs calls: adds the pages outside docs/, the navigation, and the search that works from file://."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from tools.docs_site.navigation import OUTSIDE, navigation, site_text

_ROOT = Path(__file__).parents[2]
_ASSETS = ("iframe-worker.js", "site.css")
_COMMENT = re.compile(r"\A<!--.*?-->\s*", re.DOTALL)


def on_config(config: Any) -> Any:
    config.nav = navigation(Path(config.docs_dir))
    return config


def on_files(files: Files, *, config: Any) -> Files:
    for source, target in OUTSIDE.items():
        text = site_text((_ROOT / source).read_text(encoding="utf-8"))
        files.append(File.generated(config, target, content=text))
    for name in _ASSETS:
        text = (Path(__file__).parent / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"assets/{name}", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Generated pages begin with a comment, which would hide their title from the navigation."""
    text = _COMMENT.sub("", markdown, count=1)
    return text if "/" in page.file.src_uri else site_text(text)
