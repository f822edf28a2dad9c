"""The demo recording in, the README's picture of the terminal out (docs/images/demo.svg)."""

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cursor_gateway import (
    CodeReferenceMetadata,
    DocumentEnded,
    FileEditMetadata,
    RunInfo,
    TerminalCommandMetadata,
    read_events,
)
from cursor_gateway.demo import recording
from cursor_gateway.render.cards import card
from cursor_gateway.render.checklist import Checklist

_PICTURE = Path(__file__).parent.parent / "docs" / "images" / "demo.svg"


def main() -> None:
    """One document of each kind that is worth a look."""
    console = Console(record=True, width=88, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text("$ cursor-gateway demo", "bold"))
    checklist = Checklist()
    wanted = [CodeReferenceMetadata, FileEditMetadata, TerminalCommandMetadata]
    for event in read_events([recording()], RunInfo(id="chat_demo", created="2026-02-23T10:30:00Z")):
        if not isinstance(event, DocumentEnded) or type(event.document.metadata) not in wanted:
            continue
        metadata = event.document.metadata
        if isinstance(metadata, FileEditMetadata) and metadata.operation != "edit":
            continue
        if isinstance(metadata, TerminalCommandMetadata) and metadata.exit_code:
            continue
        wanted.remove(type(metadata))
        console.print()
        console.print(card(event.document, checklist))
    svg = console.export_svg(title="cursor-gateway", unique_id="demo")
    # The font is the reader's own: a picture in a README loads nothing from elsewhere.
    _PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
