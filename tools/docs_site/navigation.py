"""The files in docs/ in; the website's navigation out. No page is left out: those of a folder are found by name."""

from pathlib import Path
from typing import TypeAlias

Navigation: TypeAlias = list[dict[str, str | list[str]]]

# Pages of the project that are not below docs/, and their names on the site.
OUTSIDE = {
    "README.md": "index.md",
    "examples/README.md": "examples.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "STYLE.md": "style.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
}

_SECTIONS: dict[str, list[str] | str] = {  # pages, or the folder that has them
    "Use": [
        *(
            "first-tasks.md",
            "page.md",
            "cli.md",
            "remote.md",
            "mcp.md",
            "acp.md",
            "permissions.md",
            "setup.md",
            "data.md",
            "cost.md",
            "webhooks.md",
        ),
        *("verify.md", "troubleshooting.md", "comparison.md"),
    ],
    "Clients": "clients",
    "More clients": "connecting",
    "APIs": [
        "server.md",
        "documents.md",
        "responses.md",
        "messages.md",
        "ui.md",
        "tools.md",
        "client.md",
        "library.md",
    ],
    "Operate": [
        *("sources.md", "network.md", "security.md", "telemetry.md", "reliability.md", "performance.md"),
        *("cluster.md", "deployment.md", "runbooks.md", "scale.md"),
    ],
    "Releases": ["versioning.md", "release.md", "licences.md"],
    "Develop": ["kernel.md"],
    "Reference": "reference",
    "Decisions": "decisions",
}
PARTS = "parts"  # a folder with pieces of other pages


def navigation(docs: Path) -> Navigation:
    """A new page without a section is in "More"."""
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    sections = {title: _pages(members, pages) for title, members in _SECTIONS.items()}
    listed = {page for members in sections.values() for page in members}
    sections["More"] = sorted(page for page in pages - listed if not page.startswith(f"{PARTS}/"))
    sections["Project"] = [page for page in OUTSIDE.values() if page != "index.md"]
    result: Navigation = [{"Overview": "index.md"}]
    result += [{title: members} for title, members in sections.items() if members]
    return result


def _pages(members: list[str] | str, pages: set[str]) -> list[str]:
    """The index of a folder comes first: it becomes the section's own page."""
    if isinstance(members, list):
        return [page for page in members if page in pages]
    inside = sorted(page for page in pages if page.startswith(f"{members}/"))
    return sorted(inside, key=lambda page: not page.endswith("/README.md"))


def site_text(text: str) -> str:
    """A page of the project's root or of docs/, with its links as they are on the site."""
    for source, target in OUTSIDE.items():
        text = text.replace(f"]({source}", f"]({target}").replace(f"](../{source}", f"]({target}")
    return text.replace("](docs/", "](").replace('src="docs/', 'src="').replace('srcset="docs/', 'srcset="')
