"""Render the change of a file as a unified diff with line numbers."""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from cursor_gateway.model.documents import Diff
from cursor_gateway.render.html.code import code_part, highlighted
from cursor_gateway.render.html.pieces import count
from cursor_gateway.render.lines import changes, diff_lines, split_lines
from cursor_gateway.render.visible import visible

Sign: TypeAlias = Literal["+", "−", " ", "⋮"]
_TAGS: dict[Sign, tuple[str, str]] = {
    "+": ("<ins>", "</ins>"),
    "−": ("<del>", "</del>"),
    " ": ("<span>", "</span>"),
    "⋮": ('<span class="gap">', "</span>"),
}


class _Run(NamedTuple):
    """Lines that follow each other and share a sign."""

    sign: Sign
    old: int | None
    new: int | None
    lines: list[str]  # HTML


class LineChange(NamedTuple):
    added: int
    removed: int
    html: str

    @property
    def counts(self) -> str:
        added = f'<ins aria-label="{count(self.added, "line")} added">+{self.added}</ins>'
        removed = f'<del aria-label="{count(self.removed, "line")} removed">−{self.removed}</del>'
        return f'<span class="counts">{added if self.added else ""} {removed if self.removed else ""}</span>'


def change(diff: Diff, language: str, *, compares: bool = True) -> LineChange:
    """Without comparing, all old lines come before all new ones."""
    return _change(list(_runs(diff, language, compares)))


def creation(content: str, language: str) -> LineChange:
    """The whole file as added."""
    lines = split_lines(highlighted(content, language))
    return _change([_Run("+", None, 1, lines)] if lines else [], creates=True)


def _runs(diff: Diff, language: str, compares: bool) -> Iterator[_Run]:
    old_text, new_text = visible(diff.old_string), visible(diff.new_string)
    old, new = diff_lines(diff, old_text, new_text)
    old_html, new_html = diff_lines(diff, *(highlighted(text, language) for text in (old_text, new_text)))
    first = diff.start_line
    shown = 0  # old lines so far
    for group in changes(old, new, compares=compares):
        if hidden := group[0][1] - shown:
            yield _Run("⋮", None, None, [count(hidden, "unchanged line")])
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                yield _Run(" ", first + old_start, first + new_start, new_html[new_start:new_end])
                continue
            if old_end > old_start:
                yield _Run("−", first + old_start, None, old_html[old_start:old_end])
            if new_end > new_start:
                yield _Run("+", None, first + new_start, new_html[new_start:new_end])
        shown = group[-1][2]
    if shown and (hidden := len(old) - shown):
        yield _Run("⋮", None, None, [count(hidden, "unchanged line")])


def _change(runs: list[_Run], *, creates: bool = False) -> LineChange:
    added, removed = (sum(len(run.lines) for run in runs if run.sign == sign) for sign in ("+", "−"))
    old_numbers = [] if creates else [_column(_numbers(run.old, len(run.lines)) for run in runs)]
    new_numbers = _column(_numbers(run.new, len(run.lines)) for run in runs)
    signs = _column(f"{run.sign}\n" * len(run.lines) for run in runs)
    html = (
        '<div class="listing diff" tabindex="0">'
        f'<div class="gutter" aria-hidden="true">{"".join([*old_numbers, new_numbers, signs])}</div>'
        f"<pre>{code_part(''.join(map(_tagged, runs)))}</pre></div>"
    )
    return LineChange(added, removed, html if runs else "")


def _column(pieces: Iterable[str]) -> str:
    """The first line may be empty, and `pre` swallows a line feed that comes first."""
    return f"<pre>\n{''.join(pieces)}</pre>"


def _numbers(first: int | None, lines: int) -> str:
    return "\n" * lines if first is None else "".join(f"{number}\n" for number in range(first, first + lines))


def _tagged(run: _Run) -> str:
    before, after = _TAGS[run.sign]
    return before + "".join(f"{line}\n" for line in run.lines) + after
