"""The figures of the source and their limits in; a page with them out."""

from tools.reference.markdown import page, table
from tools.structure import FIGURES, limits, shown


def structure_page() -> str:
    limit = limits()
    return page(
        "Structure",
        "The size of the package and its dependencies. `make check` counts, and fails if a figure is above its limit;\n"
        "`python -m tools.structure` prints the current figures, and `--write` makes them the limits. *Before* is\n"
        "commit 2f56d610, counted in the same way; *target* is where the figures should go.",
        table(
            ["figure", "before", "limit", "target"],
            [
                (figure.meaning, shown(figure.before), shown(limit[name]), shown(figure.target))
                for name, figure in FIGURES.items()
            ],
        ),
    )
