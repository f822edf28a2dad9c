"""The mutations: for each rule, a line of code, what it is replaced with, and the tests that must then fail.

`old` must occur exactly once in its file. A change of the code that makes a row stale is an error, not a pass:
write the row anew, so that the rule stays guarded.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    file: str  # below src/cursor_gateway
    old: str
    new: str
    rule: str  # what the change breaks
    tests: tuple[str, ...]


def _of(file: str, tests: str, *rows: tuple[str, str, str]) -> list[Mutation]:
    return [Mutation(file, old, new, rule, tuple(tests.split())) for rule, old, new in rows]


_HTML = "tests/render/test_html_safety.py"

MUTATIONS: tuple[Mutation, ...] = (
    *_of(
        "server/guard.py",
        "tests/server/test_guard.py",
        ("Host: only known names", "if host in self._names:", "if True:"),
        (
            "Host: on loopback, only loopback addresses",
            "(address.is_loopback or not is_loopback(self._settings.host))",
            "True",
        ),
        ("Host: exactly one", "if len(hosts) != 1:", "if not hosts:"),
        ("Host: nothing after the name", "_HOST.fullmatch(value", "_HOST.match(value"),
        (
            "Origin: foreign pages are refused",
            "origin not in self._settings.allowed_origins:\n            host",
            "False:\n            host",
        ),
        (
            "Origin: compared whole",
            'if origin not in (f"http://{host}", f"https://{host}"):',
            'if not origin.endswith(host or "x"):',
        ),
        (
            "Sec-Fetch-Site: other sites are refused",
            'headers.get(b"sec-fetch-site") == b"cross-site"',
            'headers.get(b"sec-fetch-site") == b"never"',
        ),
        ("Sec-Fetch-Mode: a link only reads", "is_link = method in _READING and headers", "is_link = headers"),
        ("Keys: needed for all but open paths", "    return path in _OPEN_PATHS or", "    return True or"),
        ("Keys: an open path opens nothing below it", "path in _OPEN_PATHS or", "path.startswith(_OPEN_PATHS) or"),
        ("Keys: /metrics is not open", '_OPEN_PATHS = ("/health",', '_OPEN_PATHS = ("/health", "/metrics",'),
        ("Keys: an unknown key is refused", "        if owner is None:\n", "        if owner == '':\n"),
        (
            "CORS: only for allowed origins",
            "if origin not in self._settings.allowed_origins:\n            return []",
            "if not origin:\n            return []",
        ),
        (
            "Content-Type: checked for every method with a body",
            'if scope["method"] not in ("POST", "PUT", "PATCH"):',
            'if scope["method"] != "POST":',
        ),
        (
            "Content-Type: a form's types are refused",
            '!= b"application/json":',
            'not in (b"application/json", b"text/plain"):',
        ),
        ("Content-Encoding: nothing is inflated", 'if coding != (b"identity", b"chunked"):', "if False:"),
        ("Request ids: only harmless ones come back", "given if _REQUEST_ID.fullmatch(given)", "given if given"),
        ("Headers: no reply can be framed", '"x-frame-options": "DENY"', '"x-frame-options": "ALLOW"'),
        ("Headers: no reply is sniffed", '"x-content-type-options": "nosniff"', '"x-content-type-options": "sniff"'),
        ("Headers: no address leaks", '"referrer-policy": "no-referrer"', '"referrer-policy": "unsafe-url"'),
        (
            "Faults: the caller learns no details",
            'GatewayFault(f"Internal error; the gateway\'s log has the details under the id {request_id}.")',
            "GatewayFault(repr(error))",
        ),
    ),
    *_of(
        "keys.py",
        "tests/test_keys.py",
        ("Keys: an empty key is nobody's", "        if not key:\n            return None\n", ""),
        (
            "Keys: compared in constant time",
            "if hmac.compare_digest(hashed, stored.encode()):",
            "if hashed == stored.encode():",
        ),
        ("Keys: all of them are compared", "            found = owner\n", "            return owner\n"),
        ("Keys: 256 random bits", "_BYTES = 32", "_BYTES = 8"),
        ("Keys: never the same", "secrets.token_urlsafe(_BYTES)", '"x" * 43'),
        ("Keys: a hash is a whole hash", "_HASH.fullmatch(text)", "_HASH.match(text)"),
        ("Keys: a name is a whole name", "_NAME.fullmatch(text)", "_NAME.match(text)"),
        ("Keys: a key is not a name", " and not text.startswith(_PREFIX)", ""),
        ("Keys: the hash hides the key", "hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()", "key"),
    ),
    *_of(
        "runs/workspaces.py",
        "tests/runs/test_workspaces.py",
        (
            "Workspaces: links are resolved",
            "folder = self._path(name).resolve()",
            "folder = self._path(name).absolute()",
        ),
        (
            "Workspaces: below a root, not beside it",
            "any(folder.is_relative_to(root) for root in self._roots)",
            "any(str(folder).startswith(str(root)) for root in self._roots)",
        ),
        ("Workspaces: without roots only the default", "or [self.default]", 'or [Path("/")]'),
        ("Workspaces: below a root", "return folder if any(", "return folder if True or any("),
        (
            "Workspaces: nobody learns what exists elsewhere",
            "return folder if any(",
            "return folder if not folder.exists() or any(",
        ),
        (
            "Workspaces: a root that is a link is resolved",
            "[root.resolve() for root in roots]",
            "[root for root in roots]",
        ),
        ("Workspaces: only folders", "if not _is_folder(folder):", "if False:"),
        ("Workspaces: hooks", '_BROUGHT = ("hooks.json", ', "_BROUGHT = ("),
        ("Workspaces: servers", '"mcp.json", "cli.json")', '"cli.json")'),
        ("Workspaces: permissions", '"mcp.json", "cli.json")', '"mcp.json")'),
        ("Workspaces: up to where the repository begins", "folders[: top + 1]", "folders[:1]"),
        ("Workspaces: no NUL", ' or "\\0" in name', ""),
    ),
    *_of(
        "sources/cursor/confinement.py",
        "tests/sources/test_confinement.py",
        ("Caller's tools: commands are denied", '"Shell(*)", ', ""),
        ("Caller's tools: reading in the workspace is denied", '"Read(**)", ', ""),
        ("Caller's tools: reading anywhere is denied", '"Read(/**)", ', ""),
        ("Caller's tools: writing in the workspace is denied", '"Write(**)", ', '"Write(x)", '),
        ("Caller's tools: writing anywhere is denied", '"Write(/**)", ', ""),
        ("Caller's tools: fetching is denied", '"Write(/**)", "WebFetch(*)")', '"Write(/**)")'),
        (
            "Caller's tools: no tool of the agent's own",
            'ALLOWED_TOOLS = ("mcp_tool_call",',
            'ALLOWED_TOOLS = ("shell_tool_call", "mcp_tool_call",',
        ),
        (
            "Caller's tools: the user's servers are left out",
            '_OTHERS = frozenset({"mcp.json", ',
            "_OTHERS = frozenset({",
        ),
        ("Caller's tools: the user's hooks are left out", '"mcp.json", "hooks.json"})', '"mcp.json"})'),
        ("Caller's tools: old agents are refused", "not program.is_since(_FIRST) or ", ""),
        ("Caller's tools: agents without --approve-mcps are refused", ' or not program.can("--approve-mcps")', ""),
        ("Caller's tools: no other approval mode", ', "approvalMode": "allowlist"}', "}"),
        (
            "Caller's tools: our rules win over the user's",
            '{"version": 1, **settings, "permissions": rules, "approvalMode": "allowlist"}',
            '{"version": 1, "permissions": rules, "approvalMode": "allowlist", **settings}',
        ),
        ("Caller's tools: only the caller's server", 'f"Mcp({offered.server}:*)"', '"Mcp(*)"'),
        ("Caller's tools: the folder is empty", "            remove_entry(folder, name)", "            pass"),
        ("Caller's tools: chats apart from others", "else 'confined'", "else 'cursor'"),
    ),
    *_of(
        "sources/cursor/command.py",
        "tests/sources/test_command.py tests/sources/test_confinement.py",
        ("Force: never with a caller's tools", "    elif options.force:", "    if options.force:"),
        ("Force: the operator decides", "    elif options.force:", "    else:"),
        ("Trust: the operator decides", "if (options.trust or allowed_tools) and", "if"),
        (
            "Agents: unknown versions are old",
            "built is not None and built[0] >= month",
            "built is None or built[0] >= month",
        ),
        ("Prompts: not in the list of processes", "program.is_since(_READS_STDIN) or ", ""),
        ("Prompts: never a command", " or text in _COMMANDS.split()", ""),
        ("Prompts: never an option", 'if turn.prompt.startswith("-"):', "if False:"),
        ("Prompts: not cut at a NUL", ' or b"\\0" in encoded', ""),
        ("Environment: an allow list", "if name in names or name.startswith(prefixes)}", "}"),
        ("Environment: no browser is opened", '    kept["NO_OPEN_BROWSER"] = "1"\n', ""),
    ),
    *_of(
        "sources/private_files.py",
        "tests/sources/test_private_files.py",
        ("Files: no folder is a link", "_FOLDER = _BASE | os.O_NOFOLLOW", "_FOLDER = _BASE"),
        ("Files: for their owner alone", "_NEW_FILE, 0o600, dir_fd=folder", "_NEW_FILE, 0o644, dir_fd=folder"),
        (
            "Files: folders for their owner alone",
            "os.mkdir(name, 0o700, dir_fd=folder)",
            "os.mkdir(name, 0o755, dir_fd=folder)",
        ),
        ("Files: written beside and renamed", 'temporary = f".{name[:100]}.{token_hex(8)}"', "temporary = name"),
        (
            "Files: relative to their folder",
            "os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)",
            "os.rename(temporary, name, src_dir_fd=folder)",
        ),
    ),
    *_of(
        "sources/leftovers.py",
        "tests/sources/test_leftovers.py",
        ("Deleting: no id is a pattern", "filter(_ID.fullmatch, ids)", "ids"),
        ("Deleting: sessions of ACP", '"acp-sessions/{id}", ', ""),
        ("Deleting: chats", '"chats/*/{id}", ', ""),
        ("Deleting: transcripts", ', "projects/*/agent-transcripts/{id}"', ""),
        ("Deleting: nothing that was said stays", "if name != NOTE:", "if False:"),
    ),
    *_of(
        "runs/removal.py",
        "tests/runs/test_removal.py",
        ("Deleting: what is left is noted", "is_done=is_done", "is_done=True"),
        ("Deleting: a failure is not the end", "except (GatewayError, OSError):", "except OSError:"),
    ),
    *_of(
        "cli/composition.py",
        "tests/security/test_sources.py",
        ("Sources: recordings", "    if settings.record_dir:\n        return", "    if False:\n        return"),
        ("Sources: trust", "    if not settings.trust:\n", "    if False:\n"),
        ("Sources: headers", 'if settings.agent_headers and source == "sdk":', "if False:"),
    ),
    *_of(
        "sources/acp/permissions.py",
        "tests/sources/test_acp_permissions.py",
        ("Rules: substitutions are not allowed", "if _HIDDEN.search(command):", "if False:"),
        ("Rules: every command of a line is allowed", "bool(commands) and all(any(", "bool(commands) and any(any("),
        ("Rules: paths are normalized", "normpath(join(workspace, path))", "join(workspace, path)"),
        (
            "Rules: a star stays in its part of a path",
            '_matches(pattern, name, "[^/]*")',
            '_matches(pattern, name, ".*")',
        ),
        (
            "Rules: a pattern matches the whole name",
            "re.fullmatch(expression, name, re.DOTALL)",
            "re.match(expression, name, re.DOTALL)",
        ),
        ("Rules: a pattern is not a regular expression", "else re.escape(part) for part", "else part for part"),
        (
            "Rules: unknown tools are not allowed",
            "        case _:\n            return False",
            "        case _:\n            return True",
        ),
        ("Rules: never for always", 'kind = "allow_once" if allow', 'kind = "allow_always" if allow'),
        ("Rules: a command that was cut is not allowed", ' or command.endswith("…")', ""),
        (
            "Rules: a command is a whole word",
            '_matches(f"{pattern} *", command, ".*")',
            '_matches(f"{pattern}*", command, ".*")',
        ),
        ("Rules: an empty path is not allowed", "    if not path:\n        return False\n", ""),
    ),
    *_of(
        "sources/cursor/permissions.py",
        "tests/sources/test_permissions.py tests/sources/test_acp_permissions.py",
        ("Rules: a host is not what follows it", r"(?:[^/?#@\\\s]*@)?", "(?:[^/]*@)?"),
        ("Rules: a line feed separates commands", r"[;|&\n]", "[;|&]"),
        ("Rules: what is no rule is refused", "if not _RULE.fullmatch(rule)", "if not _RULE.search(rule)"),
        ("Rules: each kind for its own", "if rule and rule[1] == kind", "if rule"),
        ("Permissions: every command of a line is shown", "list(dict.fromkeys(programs))", "programs[:1]"),
        ("Permissions: no name is a wider rule", "all(valid.fullmatch(name) for name in names)", "True"),
        ("Permissions: what nobody reads is not allowed", "if len(command) > _LONGEST:", "if False:"),
    ),
    *_of(
        "sources/acp/running.py",
        "tests/sources/test_acp_running.py",
        (
            "ACP: no rule counts in runs with a caller's tools",
            "if offered is not None:  # only the caller's",
            "if False:  # only the caller's",
        ),
        (
            "ACP: only the caller's own server in such runs",
            "return None if call.server and call.server == offered.server else _REJECTED",
            "return None",
        ),
        (
            "ACP: nobody is asked unless the operator says so",
            "if person is None or not self._policy.ask:",
            "if person is None:",
        ),
        (
            "ACP: what is not allowed is rejected",
            '[] if self._is_closed else params.items("options"), refused is None)',
            'params.items("options"), True)',
        ),
    ),
    *_of(
        "sources/sdk/requests.py",
        "tests/sources/test_sdk_requests.py",
        ("SDK: a caller's tools and no others", '_CALLERS = ("mcp",)', '_CALLERS = ("mcp", "shell")'),
        (
            "SDK: without force nothing that would need asking",
            "*(() if force else _FORCED)",
            "*(_FORCED if force else ())",
        ),
        ("SDK: no commands without force", '_FORCED = ("shell", ', "_FORCED = ("),
        ("SDK: `ask` only reads", 'if turn.mode == "ask" else None', "if False else None"),
    ),
    *_of(
        "sources/recorder.py",
        "tests/sources/test_recorder.py",
        ("Recordings: for their owner alone", "os.open(path, flags, 0o600)", "os.open(path, flags, 0o644)"),
        ("Recordings: a run's id is not a path", "{_UNSAFE.sub('_', run_id)[:100]}", "{run_id}"),
        ("Recordings: without prompts", "return PROMPT_REMOVED", "return value"),
    ),
    *_of(
        "sources/tool_server/endpoint.py",
        "tests/security/test_agents.py",
        ("Tools' address: cannot be guessed", "token = secrets.token_urlsafe(32)", 'token = "x" * 43'),
        ("Tools' address: gone with its run", "self._servers.pop(url", "self._servers.get(url"),
        ("Tools' address: on loopback alone", "socket.create_server((_HOST, 0))", 'socket.create_server(("", 0))'),
    ),
    *_of(
        "sources/tool_server/mcp_server.py",
        "tests/security/test_agents.py",
        (
            "Tools' address: closed to web pages",
            "TransportSecuritySettings(allowed_hosts=[host])",
            "TransportSecuritySettings(enable_dns_rebinding_protection=False)",
        ),
    ),
    *_of(
        "render/html/markdown.py",
        _HTML,
        (
            "Links: the scheme comes first",
            "inside = bool(_FOLLOWED.match(address))",
            "inside = bool(_FOLLOWED.search(address))",
        ),
        (
            "Images: the scheme comes first",
            "elif _FOLLOWED.match(address_of_image)",
            "elif _FOLLOWED.search(address_of_image)",
        ),
        (
            "Links: no scripts",
            r'_FOLLOWED = re.compile(r"https?://[^/\s]|mailto:"',
            r'_FOLLOWED = re.compile(r"https?://[^/\s]|mailto:|javascript:"',
        ),
        (
            "Links: no relative addresses",
            r'_FOLLOWED = re.compile(r"https?://[^/\s]|mailto:"',
            r'_FOLLOWED = re.compile(r"https?://|mailto:|/"',
        ),
        ("Links: a title is visible", 'attrs["title"] = visible(str(title))', 'attrs["title"] = str(title)'),
        ("Links: tell nobody where from", '"rel": "noopener noreferrer nofollow", ', ""),
        ("Markdown: no HTML of the agent's", '"html": False', '"html": True'),
        ("Markdown: text is escaped", "return prose(tokens[idx].content)", "return tokens[idx].content"),
        (
            "Markdown: code is escaped",
            "<code>{exact(tokens[idx].content)}</code>",
            "<code>{tokens[idx].content}</code>",
        ),
        ("Markdown: images are not loaded", 'case "image":', 'case "never":'),
        ("Markdown: nesting is bounded", "_DEEPEST = 16", "_DEEPEST = 10_000"),
        ("Markdown: no inline styles", 'token.attrs.pop("style", "")', 'token.attrs.get("style", "")'),
    ),
    *_of(
        "render/html/pieces.py",
        _HTML,
        ("HTML: prose is escaped", "return escape(visible(text))\n", "return visible(text)\n"),
        ("HTML: prose in one line is escaped", "return escape(visible_line(text))", "return visible_line(text)"),
        (
            "HTML: names are escaped",
            "return escape(visible(text).translate(_UNSEEN))",
            "return visible(text).translate(_UNSEEN)",
        ),
        ("HTML: what cannot be seen is shown", "visible(text).translate(_UNSEEN)", "visible(text)"),
        ("HTML: prose is visible", "return escape(visible(text))\n", "return escape(text)\n"),
    ),
    *_of(
        "render/html/code.py",
        _HTML,
        (
            "Code: a language's name is escaped",
            '<span class="language">{name or exact_line(language)}</span>',
            '<span class="language">{name or language}</span>',
        ),
        (
            "Code: coloured text is escaped",
            '<span class="{its_class}">{exact(line)}</span>',
            '<span class="{its_class}">{line}</span>',
        ),
        (
            "Code: plain text is escaped",
            "_TAKES_TOO_LONG.search(text):\n        return exact(text)",
            "_TAKES_TOO_LONG.search(text):\n        return text",
        ),
    ),
    *_of(
        "render/html/page.py",
        f"tests/render/test_html_page.py {_HTML}",
        (
            "Exports: the policy forbids all but the style",
            "default-src 'none'; style-src",
            "default-src 'self'; style-src",
        ),
        ("Exports: no form is sent", "; form-action 'none'", ""),
        ("Exports: the title is escaped", "title=prose_line(title)", "title=title"),
        (
            "Exports: the prompt is escaped",
            'id="prompt">Prompt</h2>{plain(prompt)}</section>',
            'id="prompt">Prompt</h2>{prompt}</section>',
        ),
    ),
    *_of(
        "render/visible.py",
        "tests/render/test_visible.py",
        (
            "Terminals: no escape sequences",
            'return _SEQUENCES.sub("", text.replace("\\r\\n", "\\n")).translate(_SHOWN)',
            'return text.replace("\\r\\n", "\\n")',
        ),
        ("Terminals: no C1 controls", "(range(0x80, 0xA0), *_DIRECTION)", "_DIRECTION"),
        ("Terminals: nothing reads backwards", "(range(0x80, 0xA0), *_DIRECTION)", "(range(0x80, 0xA0),)"),
    ),
    *_of(
        "store/sql.py",
        "tests/store/test_conformance.py",
        (
            "Owners: a run",
            'where = "WHERE runs.id = :id AND conversations.owner = :owner"',
            'where = "WHERE runs.id = :id AND (conversations.owner = :owner OR true)"',
        ),
        (
            "Owners: a conversation's runs",
            'where = "WHERE conversations.owner = :owner AND conversations.id = :id ORDER BY runs.key"',
            'where = "WHERE (conversations.owner = :owner OR true) AND conversations.id = :id ORDER BY runs.key"',
        ),
        (
            "Owners: recent runs",
            "WHERE conversations.owner = :owner ORDER BY runs.key DESC LIMIT :limit",
            "WHERE (conversations.owner = :owner OR true) ORDER BY runs.key DESC LIMIT :limit",
        ),
        (
            "Owners: idempotency keys",
            "WHERE idempotency.owner = :owner AND",
            "WHERE (idempotency.owner = :owner OR true) AND",
        ),
        (
            "Owners: events and kept requests",
            '    WHERE runs.id = :id AND conversations.owner = :owner\n"""',
            '    WHERE runs.id = :id AND (conversations.owner = :owner OR true)\n"""',
        ),
        (
            "Owners: a conversation",
            'where = "WHERE owner = :owner AND id = :id"',
            'where = "WHERE (owner = :owner OR true) AND id = :id"',
        ),
        (
            "Owners: messages",
            "WHERE conversations.owner = :owner AND conversations.id = :id ORDER BY messages.number",
            "WHERE (conversations.owner = :owner OR true) AND conversations.id = :id ORDER BY messages.number",
        ),
        (
            "Owners: fingerprints",
            'where = f"WHERE owner = :owner AND fingerprint',
            'where = f"WHERE (owner = :owner OR true) AND fingerprint',
        ),
        (
            "Owners: sessions",
            "fingerprint = :fingerprint WHERE owner = :owner AND id = :id",
            "fingerprint = :fingerprint WHERE (owner = :owner OR true) AND id = :id",
        ),
        (
            "Owners: lists",
            'where, values = "WHERE owner = :owner"',
            'where, values = "WHERE (owner = :owner OR true)"',
        ),
    ),
    *_of(
        "store/sqlite/store.py",
        "tests/store/test_conformance.py",
        (
            "Owners: deleting",
            'which = "SELECT key FROM conversations WHERE owner = ? AND id = ?"',
            'which = "SELECT key FROM conversations WHERE (owner = ? OR 1) AND id = ?"',
        ),
        (
            "Owners: what is deleted is nobody's",
            '"UPDATE conversations SET owner = NULL, title',
            '"UPDATE conversations SET title',
        ),
        (
            "Leases: a claim names the epoch it ends",
            "WHERE id = :id AND epoch = :epoch AND state = 'running'\"",
            "WHERE id = :id AND :epoch AND state = 'running'\"",
        ),
    ),
    *_of(
        "store/sqlite/writing.py",
        "tests/store/test_conformance.py",
        (
            "Owners: a run in another's conversation begins one of its own",
            "WHERE conversations.owner = ? AND conversations.id = ? LIMIT 1",
            "WHERE (conversations.owner = ? OR 1) AND conversations.id = ? LIMIT 1",
        ),
        (
            "Leases: an old writer appends nothing",
            "epoch = :epoch AND state = 'running' AND {",
            "state = 'running' AND {",
        ),
        ("Leases: one running run in a conversation", "return Busy(running)", "pass"),
    ),
    *_of(
        "store/writing.py",
        "tests/store/test_conformance.py",
        ("Leases: an old writer ends nothing", "if place.epoch != lease.epoch:", "if False:"),
    ),
    *_of(
        "store/sqlite/indexing.py",
        "tests/store/test_indexing.py tests/store/test_conformance.py",
        ("Owners: searches", "for token in (scope, *query.tokens)", "for token in query.tokens"),
    ),
    *_of(
        "store/sqlite/connections.py",
        "tests/store/test_maintenance.py",
        (
            "Deleting: nothing is left in free pages",
            '    "secure_delete = ON",  # deleted data',
            '    "secure_delete = OFF",  # what is deleted',
        ),
    ),
    *_of(
        "store/sqlite/maintenance.py",
        "tests/store/test_maintenance.py",
        ("Deleting: nothing is left in the index", "                self._remove_words()\n", ""),
        (
            "Deleting: nothing is left in the log",
            "                self._pause()\n            self._empty_log()",
            "                self._pause()",
        ),
        ("Deleting: messages go", '"unindexed", "messages", "idempotency"', '"unindexed", "idempotency"'),
    ),
    *_of(
        "store/sqlite/opening.py",
        "tests/store/test_opening.py",
        (
            "History: for its owner alone",
            "os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600",
            "os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644",
        ),
    ),
    *_of(
        "runs/registry.py",
        "tests/runs/test_registry.py",
        ("Owners: idempotency keys of runs that go on", "is_of_key = run.owner == owner and", "is_of_key ="),
        ("Owners: a run that goes on", "run is not None and run.owner == owner else None", "run is not None else None"),
    ),
    *_of(
        "runs/registry.py",
        "tests/security/test_owners.py",
        ("Owners: open calls", "if run.owner == owner and run.caller is not None", "if run.caller is not None"),
    ),
    *_of(
        "prompting/fingerprints.py",
        "tests/prompting/test_fingerprints.py",
        ("Owners: the same words elsewhere are another conversation", "encode([scope, [", "encode([["),
    ),
    *_of(
        "settings.py",
        "tests/test_settings.py",
        (
            "Settings: elsewhere than loopback needs keys",
            "if not settings.api_keys and not settings.store and not is_loopback(settings.host):",
            "if False:",
        ),
        (
            "Settings: what is not understood is not loopback",
            "    except ValueError:\n        return False\n",
            "    except ValueError:\n        return True\n",
        ),
        (
            "Settings: secrets are masked",
            '_SECRET = frozenset({"api_keys", "agent_headers", "api_key", "store"})',
            '_SECRET = frozenset({"api_keys", "api_key", "store"})',
        ),
        ("Settings: one key, one owner", "elif hashed in owners:", "elif False:"),
    ),
)
