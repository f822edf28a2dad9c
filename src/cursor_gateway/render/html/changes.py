"""Render the changed files of a conversation as folded diffs."""

from collections.abc import Sequence

from cursor_gateway.model.changes import FileChange
from cursor_gateway.model.documents import Diff
from cursor_gateway.render.html.diffs import Change, change, creation
from cursor_gateway.render.html.pieces import count, exact_line, literal, span

_NOTHING = '<p class="ending">No lines to show.</p>'
_REVERT = '<p><button type="button" class="quiet" data-revert>Revert this file</button></p>'
_NOTES = {"create": "new", "delete": "deleted", "rename": "renamed", "edit": ""}


def changed_file(file: FileChange, *, as_plain: bool = False) -> str:
    language = "" if as_plain else file.language
    parts = [_change(file, diff, language, as_plain) for diff in file.diffs]
    total = Change(sum(part.added for part in parts), sum(part.removed for part in parts), "")
    body = "".join(f'<figure class="code">{part.html}</figure>' for part in parts if part.html)
    note = span(_NOTES.get(file.operation, ""), "note")
    return (
        f'<details data-path="{exact_line(file.path)}"><summary>{literal(file.path)}{note}{total.counts}</summary>'
        f"{_REVERT if file.can_revert else ''}{body or _NOTHING}</details>"
    )


def _change(file: FileChange, diff: Diff, language: str, as_plain: bool) -> Change:
    if file.operation == "create" and not diff.old_string:
        return creation(diff.new_string, language)
    return change(diff, language, compares=not as_plain)


def framed(files: Sequence[str]) -> str:
    return f"<h3>{count(len(files), 'file')} changed</h3>{''.join(files)}" if files else ""
