"""Find the language of a file by its path."""

_BY_EXTENSION = {
    "c": "c", "h": "c", "cc": "cpp", "cpp": "cpp", "cxx": "cpp", "hpp": "cpp", "cs": "csharp",
    "clj": "clojure", "css": "css", "csv": "csv", "dart": "dart", "diff": "diff", "patch": "diff",
    "ex": "elixir", "exs": "elixir", "erl": "erlang", "go": "go", "graphql": "graphql", "hs": "haskell",
    "htm": "html", "html": "html", "ini": "ini", "cfg": "ini", "java": "java", "jl": "julia",
    "js": "javascript", "cjs": "javascript", "mjs": "javascript", "jsx": "jsx", "json": "json", "jsonc": "json",
    "jsonl": "json", "ndjson": "json", "kt": "kotlin", "kts": "kotlin", "less": "less", "lua": "lua",
    "md": "markdown", "mdx": "markdown", "ml": "ocaml", "mli": "ocaml", "mk": "makefile", "nix": "nix", "php": "php",
    "pl": "perl", "pm": "perl", "proto": "protobuf", "ps1": "powershell", "py": "python", "pyi": "python",
    "r": "r", "rb": "ruby", "rs": "rust", "rst": "rst", "sass": "sass", "scala": "scala", "scss": "scss",
    "sh": "bash", "bash": "bash", "zsh": "bash", "sql": "sql", "svelte": "svelte", "svg": "xml", "swift": "swift",
    "tex": "latex", "tf": "terraform", "toml": "toml", "ts": "typescript", "cts": "typescript",
    "mts": "typescript", "tsx": "tsx", "vue": "vue", "xml": "xml", "yaml": "yaml", "yml": "yaml", "zig": "zig",
}  # fmt: skip

_BY_NAME = {
    "cmakelists.txt": "cmake",
    "containerfile": "dockerfile",
    "dockerfile": "dockerfile",
    "gemfile": "ruby",
    "gnumakefile": "makefile",
    "makefile": "makefile",
    "rakefile": "ruby",
}


def language_of(path: str) -> str:
    """`text` if unknown."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    _, dot, extension = name.rpartition(".")
    return _BY_NAME.get(name) or (_BY_EXTENSION.get(extension) if dot else None) or "text"
