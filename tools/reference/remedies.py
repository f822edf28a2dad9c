"""For each error code, why it happens and what to do about it: the hand-written half of the troubleshooting page."""

from msgspec import Struct


class Remedy(Struct, frozen=True):
    cause: str
    fix: str
    also: tuple[str, ...] = ()  # messages that cannot be read off the source, with `…` for values


AGENT = {
    "agent_missing": Remedy(
        "The gateway cannot find Cursor's agent on `PATH` or in `~/.local/bin`, found another program with the same "
        "name, or cannot start it.",
        "Install the agent with `curl https://cursor.com/install -fsS | bash`, then log in with `cursor-agent login`. "
        "If it is installed elsewhere, set `agent_program` to its path.",
    ),
    "agent_unauthenticated": Remedy(
        "The agent is not logged in, or Cursor does not accept the key in `CURSOR_API_KEY`.",
        "Run `cursor-agent login` as the user who runs the gateway, or set `CURSOR_API_KEY` to a valid key and restart "
        "the gateway. Then run `cursor-gateway doctor`: until then the gateway may repeat the remembered error for up "
        "to `account_error_seconds`.",
    ),
    "insufficient_quota": Remedy(
        "The Cursor account has used up what its plan includes. The message quotes Cursor, which often says when the "
        "limit is reset.",
        "Wait for the reset, raise the spending limit in Cursor's dashboard, or use another model.",
    ),
    "model_not_found": Remedy(
        "The request, or the setting `model`, names a model that the agent does not offer to this account.",
        "Choose one from `cursor-gateway models` or `GET /v1/models`; `auto` always works.",
    ),
    "workspace_untrusted": Remedy(
        "`trust` is off, and nobody has trusted this folder yet.",
        "Run `cursor-agent` in the folder once and accept, or set `trust` to true.",
    ),
    "agent_unreachable": Remedy(
        "The agent cannot reach Cursor's service: no network, a proxy or firewall, or a failure on Cursor's side.",
        "Check the network and the proxy variables (`HTTPS_PROXY`, `NODE_EXTRA_CA_CERTS`), which the gateway passes on "
        "to the agent. Then retry.",
    ),
    "agent_overloaded": Remedy(
        "Cursor's service has no capacity, or limits the rate of requests.",
        "Wait for the time in `Retry-After`, then retry. If it happens often, lower `max_runs`.",
    ),
    "agent_crashed": Remedy(
        "The agent's process ended before it had finished, for example because it was killed or ran out of memory.",
        "Retry. If it happens again, read `details` and the gateway's log, and update the agent with "
        "`cursor-agent update`.",
        ("The agent's output ended before the agent had finished. Try again.",),
    ),
    "agent_failed": Remedy(
        "The agent reported a failure. The message quotes its reason.",
        "Follow the reason: rephrase the request, ask for less at a time, or retry.",
    ),
    "agent_timed_out": Remedy(
        "The agent took too long to start, to continue, or to finish.",
        "Retry. If the agent is slow to start, run `cursor-gateway doctor`. If long runs are normal for you, raise the "
        "setting that the message names.",
        (
            "The run took longer than … s; ask for less at a time, or raise `run_seconds`.",
            "The agent sent nothing for … s; try again, or raise `idle_seconds`.",
            "The agent sent nothing within … s of its start; try again, run `cursor-gateway doctor`, or raise "
            "`first_event_seconds`.",
        ),
    ),
    "agent_misconfigured": Remedy(
        "The agent, its version, or the account does not support something that the request or the settings ask for.",
        "Update the agent with `cursor-agent update`, or change the option that the message names. "
        "`cursor-gateway doctor` lists what the installed agent lacks.",
    ),
    "agent_out_of_memory": Remedy(
        "The agent or one of its commands needed more memory than `agent_memory_bytes` allows; the system ended it.",
        "Ask for less at a time, such as fewer tests in parallel, or raise `agent_memory_bytes`. The metric of the "
        "memory of runs in `/metrics` shows what they need.",
    ),
    "agent_output_too_large": Remedy(
        "The agent wrote more in one run than the gateway accepts.",
        "Ask for less at a time, or raise `max_output_bytes`.",
    ),
    "agent_looped": Remedy(
        "The agent made the same calls again and again, with the same results.",
        "Rephrase the request, ask for less at a time, or make the tool return something new.",
    ),
    "session_lost": Remedy(
        "The agent no longer has the session of this conversation, and the gateway cannot rebuild it.",
        "Start a new conversation.",
    ),
    "cancelled": Remedy(
        "Somebody stopped the run, deleted its conversation, or disconnected before it was complete.",
        "Send the request again. To let runs finish without a client, set `when_client_leaves` to `finish`.",
    ),
}

REQUESTS = {
    "invalid_request": Remedy(
        "A field is missing, unknown or invalid, or asks for something that the gateway cannot do. `param` names the "
        "field, and the message says what to send.",
        "Correct the field. `/docs` of a running gateway describes every field; for unsupported fields of the OpenAI "
        "API see [Server](server.md#openai-api-post-v1chatcompletions-get-v1models).",
    ),
    "invalid_api_key": Remedy(
        "The gateway requires an API key, and the request has none or an unknown one.",
        "Create a key with `cursor-gateway key NAME`, add the printed line to the configuration file, restart the "
        "gateway, and send the key as `Authorization: Bearer …` or `x-api-key`. Commands take it from `api_key` "
        "(`CURSOR_GATEWAY_API_KEY`).",
    ),
    "forbidden": Remedy(
        "A web page from another site sent the request, or its `Host` is not a name of this gateway.",
        "Use the address that `serve` prints. Behind a proxy or another host name, add the name to `allowed_hosts`; "
        "for a web page of your own, add its origin to `allowed_origins`.",
    ),
    "workspace_forbidden": Remedy(
        "The request names a folder outside `workspace` and `workspace_roots`, or one that brings hooks, MCP servers "
        "or permissions for the agent ([files of strangers](network.md#files-of-strangers)).",
        "Start the gateway with `serve --workspace DIR`, or add the folder, or one above it, to `workspace_roots`. "
        "If the folder brings hooks, look at the file that the message names; if you trust it, add the line that the "
        "message contains to `config.toml`, and restart the gateway.",
    ),
    "approval_forbidden": Remedy(
        "`permissions` is `deny`, so only the operator decides what the agent may run.",
        "Ask the operator to add a rule: `serve --allow 'Shell(git)'`. See [Allowing commands](permissions.md).",
    ),
    "not_found": Remedy(
        "The path, run, conversation or answer does not exist, was deleted, or belongs to another API key.",
        "Check the address: clients of the OpenAI API need a base URL that ends in `/v1`, those of the Anthropic API "
        "one without it. Check that the key is the one that started the run.",
    ),
    "previous_response_not_found": Remedy(
        "`previous_response_id` names an answer that was deleted, was sent with `store: false`, or belongs to another "
        "API key or gateway.",
        "Send the whole conversation in `input` instead.",
    ),
    "method_not_allowed": Remedy(
        "The path exists, but not for this HTTP method.", "Use a method that the reply's `Allow` header lists."
    ),
    "conversation_busy": Remedy(
        "A conversation can have only one active run, and this one has one.",
        'Wait, or stop it with `POST /v1/chat/{id}/cancel`. With `when_busy = "wait"`, requests wait instead.',
    ),
    "idempotency_mismatch": Remedy(
        "The same `Idempotency-Key` was sent with a different body.",
        "Use a new key for each new request, and the same key only to repeat one.",
    ),
    "file_changed": Remedy(
        "A file cannot be reverted or committed: it was changed or deleted since, or its earlier content is not known.",
        "Ask for a `preview`, look at it, and send its `token`; or undo the change with your version control.",
    ),
    "log_reset": Remedy(
        "The client has read events that the run does not have any more: the database was restored, or a standby that "
        "lagged took over and the process that had the rest is gone. Or the number is of another run.",
        "Read the run again from the start, without `Last-Event-ID` and `after`; drop what was read of it before.",
    ),
    "too_many_runs": Remedy(
        "The gateway, or this API key, already has as many active runs as it may have.",
        "Retry after the time in `Retry-After`, or raise `max_runs` or `max_runs_per_key`.",
    ),
    "queue_full": Remedy(
        "This API key has `max_queued_per_key` requests in the queue, or 256 MiB of them.",
        "Wait until some have started, cancel some (`GET /v1/queue` lists them), or raise the setting.",
    ),
    "rate_limit_exceeded": Remedy(
        "This API key has sent more than `requests_per_minute`.",
        "Wait for the time in `Retry-After`, or raise the setting.",
    ),
    "key_quota_exhausted": Remedy(
        "This API key has started as many runs, or used as many tokens or as much money, as it may in a day or a month "
        "(UTC).",
        "Wait until the time in the message and in `Retry-After`, or raise the setting `budgets`. For a limit of a key "
        "in a database, revoke the key and create it again: `cursor-gateway key --help`.",
    ),
    "request_timeout": Remedy(
        "The headers or the body of the request arrived too slowly.",
        "Send it again. On slow connections, raise `head_seconds` or `body_seconds`.",
    ),
    "request_too_large": Remedy(
        "The body is larger than `max_body_bytes`, usually because of images or a long history.",
        "Send less, or raise `max_body_bytes`.",
    ),
    "request_head_too_large": Remedy(
        "The request has more than 100 header lines, or more than 64 kB of them.",
        "Send fewer or shorter headers. Cookies of other programs on the same host name are a common cause.",
    ),
    "unsupported_media_type": Remedy(
        "The body is not JSON, or is compressed.",
        "Send JSON with `Content-Type: application/json`, uncompressed. For a body, `curl` needs "
        "`-H 'Content-Type: application/json'`.",
    ),
    "websocket_not_supported": Remedy(
        "The client tried WebSocket first, as Codex does.",
        "Nothing, if the client falls back to HTTP by itself. Otherwise turn WebSocket off in the client; "
        "`cursor-gateway connect NAME` prints the configuration.",
    ),
    "unusable_input": Remedy(
        "The input of `show`, `convert` or `export` is not the output of cursor-agent, or the server that a client "
        "called is not a cursor-gateway.",
        'Create the input with `cursor-agent -p --output-format stream-json --stream-partial-output "…"`, and check '
        "the address.",
        ("… contains no cursor-agent output; create some with `…`, or try `cursor-gateway demo`.",),
    ),
}

TOOLS = {
    "tool_results_missing": Remedy(
        "The client did not send the results of its tools within `answer_seconds`, or the gateway was stopped while it "
        "waited.",
        "Send the results with the whole conversation: a new agent continues from there. For slow tools, raise "
        "`answer_seconds`.",
    ),
    "tool_not_called": Remedy(
        "`tool_choice` requires a call, and the model answered with text twice.",
        'Rephrase the request so that it needs the tool, or send `tool_choice: "auto"`.',
    ),
    "answer_unfit": Remedy(
        "The answer does not match `response_format`, even after a second attempt.",
        "Describe the format in the prompt, simplify the schema, or use another model.",
    ),
    "agent_unconfined": Remedy(
        "The agent used one of its own tools although the request has its own `tools`. The run was stopped for safety.",
        "Update the agent with `cursor-agent update`. If it happens again, please report it.",
    ),
}

GATEWAY = {
    "settings_error": Remedy(
        "A flag, an environment variable or the configuration file has an unknown name or an invalid value, or the "
        "gateway cannot use the port or folder that it names.",
        "Correct it: the message names the setting and its origin. `cursor-gateway settings` lists all of them with "
        "their values.",
    ),
    "no_runner": Remedy(
        "In a cluster, no process that runs agents is connected to the database, or none has the workspace's volume.",
        "See `cursor-gateway runners`; start a runner on the machine that has the volume, or retry when it is back.",
    ),
    "queue_expired": Remedy(
        "The request waited in the queue for `queue_ttl_seconds`, and no slot was free for it.",
        "Send it again. If it happens often, allow more runs at once, start more runners, or raise the setting.",
    ),
    "runner_lost": Remedy(
        "In a cluster, the process that ran the agent was killed, or was cut off from the database for too long.",
        "Send the message again in the same conversation: the output so far is kept.",
    ),
    "gateway_restarted": Remedy(
        "The gateway was killed or restarted while the agent was working. The output so far was kept.",
        "Send the message again in the same conversation.",
    ),
    "shutting_down": Remedy("The gateway is being stopped.", "Retry after the time in `Retry-After`."),
    "too_many_connections": Remedy(
        "All connections that the system's limit of open files allows are in use.",
        "Close idle clients, or raise the limit (`ulimit -n`, or `LimitNOFILE=` in a systemd unit).",
    ),
    "host_exhausted": Remedy(
        "The system has no file descriptors, processes, memory or disk space left.",
        "Free some, raise the limits (`ulimit -n`, `ulimit -u`), or lower `max_runs`.",
    ),
    "store_unavailable": Remedy(
        "The history database (`history.db` in the data directory) cannot be read or written.",
        "Check the disk's free space and the permissions of the data directory; `cursor-gateway doctor` does both. "
        "With `history` set to false, the gateway keeps nothing and does not need it.",
        (
            "The history is locked by another program; wait for it to end, or end it.",
            "The disk with the history is full; free some space, or keep less history.",
            "The history is damaged; restart the gateway: it keeps the file and recovers what can be read.",
        ),
    ),
    "history_damaged": Remedy(
        "A part of the history database (`history.db` in the data directory) is damaged, as after a power failure. "
        "Other conversations can still be read.",
        "Restart the gateway. It keeps the damaged file and recovers what can be read; its log says where the file is. "
        "`cursor-gateway doctor` checks the file without changing it.",
    ),
    "internal_error": Remedy(
        "A bug in the gateway.",
        "Find the line with the reply's `x-request-id` in the gateway's log, and report it.",
    ),
}

GROUPS = {
    "Agent and account": AGENT,
    "Requests": REQUESTS,
    "Tools and formats": TOOLS,
    "Gateway and machine": GATEWAY,
}

TOOL_CODES = {
    "COMMAND_FAILED": ("The command ended with an error.", "Read its output in the document before it."),
    "FILE_BUSY": ("Another program is using the file.", "Close it, and ask the agent to try again."),
    "FILE_NOT_FOUND": ("The file does not exist.", "Check the path, and which folder the agent works in."),
    "NOT_A_FILE": ("The path is a folder or a device.", "Name a file."),
    "NOT_FOUND": ("Nothing has that name.", "Check the name."),
    "PERMISSION_DENIED": (
        "The system does not let the agent read or write the file.",
        "Change its permissions, or run the gateway as another user.",
    ),
    "SPAWN_FAILED": ("The command could not be started.", "Check that the program is installed and on `PATH`."),
    "TIMEOUT": ("The command took longer than the agent waits.", "Ask for a shorter command, or run it yourself."),
    "TOOL_ERROR": ("The tool failed for another reason.", "Read the message and `details`."),
}
