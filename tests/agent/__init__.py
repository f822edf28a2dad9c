"""A stand-in for cursor-agent: the real program's arguments and files in; its output, exit status and traces out.

It needs no network, no account and only the standard library. The prompt chooses what happens: the last
`standin: NAME key=value …` in it counts, wherever it stands, because a prompt may be a rendered transcript.
A value with spaces stands in double quotes. Text for a scenario (*body* below) follows on a line `---` and
goes on to the end of the prompt, or to a line `--- end`. Without such a line, the stand-in says the prompt back.
With input= output= cache_read= cache_write=, any scenario's `result` counts that.

Answers
    text            chunks=5 length=N delay_ms=0: a text in so many deltas
    say             size=3: the body, in deltas of so many UTF-16 units (an emoji may be cut into its halves)
    thinking        two blocks of thinking and an answer
    empty           no text at all
    fences          code blocks and a reference to code
    json            the body's JSON value, exactly
    json-bad-then-good   prose first; on the session's next turn, whatever it asks, the first body's JSON
    usage           omit=1: `result` counts nothing
    echo-env        the environment, as JSON {"names", "values"}
    echo-args       the invocation, as JSON {"argv", "cwd", "workspace", "source"}
    history         the earlier turns that the session knows, as JSON {"turns", "prompts", "answers"}

Actions (what is not allowed is rejected as the real program does, and the run goes on)
    tools           read, grep, glob, ls, edit, write, delete, two shells, todos, MCP: all pretended
    parallel        two pretended shells that end in the other order
    shell           command= or the body: runs it in the workspace if permitted
    read            path=: reads a file of the workspace
    edit            path=, and old= new= or the body as the whole text: changes a file of the workspace
    web             url=: a page, asked for after the call's start; needs --force
    websearch       term=: asked for before the call's start; needs --force, else the call only ends
    mcp             server= tool=: needs --force or Mcp(server:tool)
    question        asks, is told that nobody answers, and repeats its question; with then=end it writes no text
    plan            name=: a plan, first in the query and then in the call
    query-flush     text, then a query before its call: the flush looks like a delta
    program         the body's JSON list of steps: text, thinking, calls of real MCP tools, one by one or at once, and
                    of the agent's own, pauses and crashes. It goes on where it was ended, when the chat is resumed
                    or the transcript sent anew with the results. See program.py

Permissions are those of `cli-config.json` and `.cursor/cli.json`, and what is denied stays denied with --force. What
is permitted is really done by `shell`, `read`, `edit` and a program's calls, anywhere on the disk (natives.py).
    own tools       Shell(command) must be allowed; Read(glob) denies read, ls, grep and glob; Write(glob) denies edit,
                    write and delete; WebFetch(domain) must be allowed. --allowed-tools and --exclude-tools take names
                    with or without `_tool_call`, by commas or repeated; a tool that they leave out is rejected, "Tool
                    is not available"
    MCP             servers with a `url` in `.cursor/mcp.json` or in the configuration directory's `mcp.json`, over
                    streamable HTTP (mcp_client.py). Without --approve-mcps a call ends with an error; without a rule
                    Mcp(server:tool) or --force, and with --mode plan or ask, it is rejected (servers.py). Those in the
                    `mcp.json` of a --plugin-dir need no approval, and are called plugin-PLUGIN-SERVER

`cursor-agent acp` plays the same (acp.py): questions, plans and permissions are asked of the client, failures come as
the last text, a run without a result ends the program, and `ignore-term` ignores `session/cancel`.

Failures (exit status, stderr and what came before as seen)
    fail-auth fail-key fail-trust fail-model fail-resume fail-force fail-sandbox     nothing on stdout
    fail-free-plan       after init and user
    fail-quota           after text; variant=action: the other wording
    fail-quota-early     after init and user
    fail-capacity fail-capacity-late     after connection and retry events, the latter after text; class=T
    fail-network fail-network-late       the same; kind=dns|cancel|ping|internal class=T
    fail-internal        three reconnections that succeed, then it gives up; class=T
    fail-result          a `result` with is_error (no build writes one); exit=1
    crash crash-early killed truncated   exit=1, exit=3, SIGKILL, and exit 0 without a result

Noise
    no-newline           the last line has no line feed
    garbage bad-utf8     lines that are no JSON, unknown types, broken UTF-8 among the events
    huge-line            size=5000000: a file of so many bytes in one event
    stderr-flood         bytes=1000000: on stderr, between the deltas

Time
    hang hang-after-init hang-mid hang-after-result     for ever
    slow                 count=5 delay_ms=200: one delta each delay
    silent               ms=1000: text, silence, text
    wait-for             file=PATH: text, and more text when the file exists
    ignore-term          neither SIGTERM nor SIGINT ends it
    grandchild           group=same|new|session: starts `sleep`, says `grandchild=PID`, hangs
    grandchild-pipe      the same, but ends well; the grandchild keeps stdout open. seconds=600
    orphans              bare=1 ends=0: starts processes that ignore SIGTERM, leave their session, are adopted, or clear
                         their environment (`bare`: all of it), says `orphans=PID,PID,…`, and hangs or ends well
"""
