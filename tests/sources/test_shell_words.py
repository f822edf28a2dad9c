"""Which command lines are plain: nothing in them has a meaning of its own in bash, zsh, dash or fish."""

import pytest

from cursor_gateway.sources.cursor.shell_words import HARMLESS_BUILTINS, is_builtin, plain_commands

PLAIN = {
    "git status": ["git status"],
    "  git   status  ": ["git status"],
    "git log -1 --format=%h && npm run test:unit|tail -n 5; echo done": [
        "git log -1 --format=%h",
        "npm run test:unit",
        "tail -n 5",
        "echo done",
    ],
    "a || b": ["a", "b"],
    "git commit -m 'Mend the login; (again) & more <now>'": ["git commit -m 'Mend the login; (again) & more <now>'"],
    'git commit -m "Größe {a,b} *"': ['git commit -m "Größe {a,b} *"'],
    "./run.sh --to=a@b.c": ["./run.sh --to=a@b.c"],
    "x a'b c'd": ["x a'b c'd"],
    "cd web && npm test": ["cd web", "npm test"],
}


@pytest.mark.parametrize(("line", "commands"), PLAIN.items())
def test_plain_lines(line: str, commands: list[str]) -> None:
    assert plain_commands(line) == commands


MORE = [
    # substitutions, in every quoting
    "echo $(id)",
    "echo `id`",
    "echo ${x}",
    "echo $x",
    'echo "$(id)"',
    "echo '$(id)'",
    "echo '`id`'",
    "echo =(id)",
    "echo =id",
    "echo <(id)",
    "echo >(id)",
    "echo *(e:'id':)",
    "echo (id)",
    "echo $'x[\\x24(id)]'",
    # characters that expand
    "echo ~",
    "echo *",
    "echo ?",
    "echo [a]",
    "echo {a,b}",
    "echo !!",
    'echo "!!"',
    "echo ^a^b",
    "echo #x",
    "# x",
    # more than words
    "echo a > b",
    "echo a < b",
    "echo a &",
    "echo a &! echo b",
    "echo a |& cat",
    "echo a ;; echo b",
    "echo a;",
    "echo a &&",
    "&& echo a",
    "; echo",
    "",
    "   ",
    "{ echo a; }",
    "(echo a)",
    "! echo a",
    # assignments
    "PATH=. git",
    "x+=1",
    "a[1]=2",
    # builtins that evaluate, and keywords
    "printf -v x y",
    "test -v x",
    "[ 1 -eq 1 ]",
    "read x",
    "export A=1",
    "declare x",
    "let x",
    "eval id",
    ". ./x",
    "source x",
    "exec id",
    "command id",
    "builtin echo",
    "trap id EXIT",
    "alias x=id",
    "noglob id",
    "time id",
    "- id",
    "if id",
    "echo a; eval id",
    # quotes and escapes
    "echo 'a",
    'echo "a',
    "echo a\\",
    "echo \\a",
    "echo 'a\\'",
    "'echo' a",
    "e'ch'o a",
    # characters that look like a blank or a line end, or are invisible
    "echo a\nid",
    "echo a\rid",
    "echo a\tid",
    "echo\u00a0id",
    "echo\u3000a",
    "echo a\u2028id",
    "echo 'a\nid'",
    "echo 'a\x00'",
    "echo 'a\x1b'",
    "echo a\x00",
    "echo é",
    "git lo…",
    # names
    "%1",
    "-x",
    "+x",
    "@x",
    "=ls",
]


@pytest.mark.parametrize("line", MORE)
def test_lines_that_are_more(line: str) -> None:
    assert plain_commands(line) is None


def test_harmless_builtins_are_like_programs() -> None:
    for name in HARMLESS_BUILTINS:
        assert plain_commands(f"{name} a") == [f"{name} a"]
        assert not is_builtin(name)
