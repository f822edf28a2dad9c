"""A command line in; its plain commands out, if every shell reads it as that and as nothing more.

The agent gives the line to the user's shell: bash, zsh, dash or fish. Each of them has its own ways to start another
program, or to change the next one: substitutions, zsh's `=(…)` and glob qualifiers, arithmetic in the arguments of
builtins, assignments, functions, aliases. No list of these is ever complete. So the grammar says what is allowed:

    line     command { ("&&" | "||" | ";" | "|") command }
    command  name { word }          names of builtins and keywords are refused, except a few that evaluate nothing
    word     { bare | 'text' | "text" }

Bare characters have no meaning in any shell. Quoted text has none of the characters that are special within quotes,
and no `$` or backtick: a builtin could evaluate them later.
"""

import re

_BLANKS = re.compile(" *")
_OPERATOR = re.compile(r"&&|\|\||;|\|")
_NAME = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+@%-]*(?=[ ;|&]|\Z)")
_WORD = re.compile(r"""(?!=)(?:[A-Za-z0-9_./+@%:,=-]|'[^'"$`\\!]*'|"[^"'$`\\!]*")+(?=[ ;|&]|\Z)""")

# Builtins and keywords of bash 5.2, zsh 5.9, dash 0.5 and fish 3.6 (`tests/sources/test_shells.py` compares).
_NAMES = """
    ! - . : [ [[ ]] _ abbr alias and argparse autoload begin bg bind bindkey block break breakpoint builtin bye caller
    case chdir command commandline compadd comparguments compcall compctl compdescribe compfiles compgen compgroups
    complete compopt compquote compset comptags comptry compvalues contains continue coproc count declare dirs disable
    disown do done echotc echoti elif else emit emulate enable end esac eval exec exit export fc fg fi float for
    foreach function functions fish_indent fish_key_reader getln getopts hash help history if in integer jobs kill let
    limit local log logout mapfile math nocorrect noglob not or path popd print printf private pushd pushln r random
    read readarray readonly realpath rehash repeat return sched select set set_color setopt shift shopt source status
    string suspend switch test then time times trap ttyctl type typeset ulimit umask unalias unfunction unhash unlimit
    unset unsetopt until vared wait whence where which while zcompile zformat zle zmodload zparseopts zregexparse
    zstyle { }
"""
_BUILTINS = frozenset(_NAMES.split())
HARMLESS_BUILTINS = frozenset(["cd", "echo", "false", "pwd", "true"])


def plain_commands(line: str) -> list[str] | None:
    """Each with single spaces between its words, which are as they were written. None: it is more than that."""
    found, place = list[str](), 0
    while True:
        words, place = _words(line, place)
        if not words or words[0] in _BUILTINS:
            return None
        found.append(" ".join(words))
        if place == len(line):
            return found
        if (operator := _OPERATOR.match(line, place)) is None:
            return None
        place = operator.end()


def _words(line: str, place: int) -> tuple[list[str], int]:
    """And where they end."""
    words: list[str] = []
    while True:
        start = _blanks_end(line, place)
        found = (_WORD if words else _NAME).match(line, start)
        if found is None or not found[0].isprintable():
            return words, start
        words.append(found[0])
        place = found.end()


def _blanks_end(line: str, place: int) -> int:
    found = _BLANKS.match(line, place)
    assert found is not None  # it matches nothing, too
    return found.end()


def is_builtin(name: str) -> bool:
    """That may evaluate its arguments, or change what the next command does."""
    return name in _BUILTINS
