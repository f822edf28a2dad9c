// The documents of cursor-gateway. Written by `cursor-gateway schema --typescript` from the types
// that the gateway itself uses. What a comment calls an extension is not in the specification.

/** One answer of the agent: the non-streaming reply, and the fold of the stream. */
export interface ChatResponse {
  /** The id of this answer, `chat_…`. */
  id: string;
  /** The conversation it belongs to, `conv_…`. */
  conversationId: string;
  /** The model that answered, by the name the caller or the agent gave. */
  model: string;
  /** The mode the agent ran in. */
  mode: "agent" | "plan" | "ask" | "debug";
  /** When the run started: ISO 8601, UTC. */
  created: string;
  /** The state of the run: `streaming` while it waits to be started, runs, or waits for its caller; then `completed` or `error`. */
  status: "completed" | "streaming" | "error";
  /** The parts of the answer, in order. */
  documents: Document[];
  /** Tokens of the whole run. */
  usage: UsageInfo;
  /** Figures about the run. */
  metadata: ResponseMetadata;
}

/** One part of an answer. Its kind is its `type`. */
export type Document =
  | TextDocument
  | CodeReferenceDocument
  | CodeBlockDocument
  | FileEditDocument
  | ToolCallDocument
  | TerminalCommandDocument
  | PlanDocument
  | ClarificationDocument
  | ErrorDocument
  | TodoUpdateDocument
  | ThinkingDocument;

/** Explaining text, Markdown. */
export interface TextDocument {
  type: "text";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** Markdown, without surrounding white space. */
  content: string;
  /** Additional information about the document. */
  metadata: TextMetadata;
}

/** The metadata of a `text` document. */
export interface TextMetadata {
  /** The format of the content. The agent writes Markdown. */
  format: "markdown" | "plain";
}

/** Code that exists in the project. */
export interface CodeReferenceDocument {
  type: "code_reference";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** The lines quoted, without the fence. */
  content: string;
  /** Additional information about the document. */
  metadata: CodeReferenceMetadata;
}

/** The metadata of a `code_reference` document. */
export interface CodeReferenceMetadata {
  /** The file's path, as given by the agent. */
  filePath: string;
  /** The first line quoted, from 1. */
  startLine: number;
  /** The last line quoted. */
  endLine: number;
  /** The language; `text` if unknown. */
  language: string;
  /** Extension: the indentation removed from each line, if the code was in a list item. */
  indent?: number;
}

/** New or proposed code that belongs to no file. */
export interface CodeBlockDocument {
  type: "code_block";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** The code, without the fence. */
  content: string;
  /** Additional information about the document. */
  metadata: CodeBlockMetadata;
}

/** The metadata of a `code_block` document. */
export interface CodeBlockMetadata {
  /** The language of the code fence. */
  language: string;
  /** `new_code` in the modes agent and debug, `suggestion` in plan, `example` in ask. */
  purpose: "new_code" | "example" | "suggestion";
  /** Extension: the indentation removed from each line, if the code was in a list item. */
  indent?: number;
}

/** A change of a file. */
export interface FileEditDocument {
  type: "file_edit";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** The new lines of an edit, or the whole new file; null for a deletion and a rename. */
  content: string | null;
  /** Additional information about the document. */
  metadata: FileEditMetadata;
}

/** The metadata of a `file_edit` document. */
export interface FileEditMetadata {
  /** The file's path, as given by the agent; after a rename, the new path. */
  filePath: string;
  /** The operation. */
  operation: "create" | "edit" | "delete" | "rename";
  /** The language; `text` if unknown. */
  language: string;
  /** What an edit replaced. Omitted for other operations, and if the agent reports none. */
  diff?: Diff;
  /** Extension: how the tool ended, if it did not simply complete. `unanswered`: the agent continued without an answer to its question. In a snapshot: `running`, or `waiting` for the caller. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Extension: the reason for the `state`. */
  reason?: string;
  /** Extension: what the agent needs permission for. Send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Extension: for what a sub-agent did, the id of the `task` document that started it. */
  parentId?: string;
  /** Extension: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
  /** Extension: the path before a rename. */
  oldPath?: string;
}

/** Extension: what the agent needs permission for. Decide with `POST /v1/chat/{id}/answer`. */
export interface PermissionRequest {
  /** The command line, the URL or the tool. */
  subject: string;
  /** The rules that `conversation` and `workspace` add, in the form of the agent's own configuration. */
  rules: string[];
  /** Extension: why the rules would allow more than they seem to: the program can run any other. Show it beside `conversation` and `workspace`. */
  warning?: string;
}

/** One replacement: the smallest range of whole lines that covers all changes of an edit. Where lines are only added or only removed, it includes the line before or after them, so that neither text is empty. */
export interface Diff {
  /** The lines before. */
  oldString: string;
  /** The lines after. */
  newString: string;
  /** The first replaced line in the old file, from 1. */
  startLine: number;
  /** The last replaced line in the old file. */
  endLine: number;
}

/** A tool that the agent used, with its result. */
export interface ToolCallDocument {
  type: "tool_call";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** Always null. */
  content: null;
  /** Additional information about the document. */
  metadata: ToolCallMetadata;
}

/** The metadata of a `tool_call` document. */
export interface ToolCallMetadata {
  /** The tool's name as in Cursor's editor, or the name of an MCP tool. */
  toolName: string;
  /** The call's id. */
  toolCallId: string;
  /** The arguments of the call. */
  arguments: Record<string, unknown>;
  /** The result of the call. */
  result: ToolCallResult;
  /** How long it took; 0 if unknown. */
  duration_ms: number;
  /** Extension: how the tool ended, if it did not simply complete. `unanswered`: the agent continued without an answer to its question. In a snapshot: `running`, or `waiting` for the caller. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Extension: the reason for the `state`. */
  reason?: string;
  /** Extension: what the agent needs permission for. Send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Extension: for what a sub-agent did, the id of the `task` document that started it. */
  parentId?: string;
  /** Extension: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
  /** Extension: the agent's own id of the call, if it could not be used as `toolCallId`. */
  agentCallId?: string;
  /** Extension: `caller` if the caller, not the agent, ran the tool. */
  ranBy?: "caller";
}

/** The result of a tool call. */
export interface ToolCallResult {
  /** Whether the call succeeded. */
  status: "success" | "error";
  /** The value, such as a file's content or search results; or the reason for the failure. */
  data: unknown;
}

/** A command, its output and how it ended. */
export interface TerminalCommandDocument {
  type: "terminal_command";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** Always null. */
  content: null;
  /** Additional information about the document. */
  metadata: TerminalCommandMetadata;
}

/** The metadata of a `terminal_command` document. */
export interface TerminalCommandMetadata {
  /** The command line. */
  command: string;
  /** Where it ran, if known. */
  workingDirectory?: string;
  /** The exit status; -1 if the command did not complete. */
  exitCode: number;
  /** Its output: standard output and standard error, in order if known. */
  output: string;
  /** How long it took; 0 if unknown. */
  duration_ms: number;
  /** What the sandbox allowed: `network`, `git_write`, or `all`. */
  permissions: string[];
  /** Extension: how the tool ended, if it did not simply complete. `unanswered`: the agent continued without an answer to its question. In a snapshot: `running`, or `waiting` for the caller. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Extension: the reason for the `state`. */
  reason?: string;
  /** Extension: what the agent needs permission for. Send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Extension: for what a sub-agent did, the id of the `task` document that started it. */
  parentId?: string;
  /** Extension: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
}

/** A plan with its to-dos. */
export interface PlanDocument {
  type: "plan";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** The plan, as Markdown. */
  content: string;
  /** Additional information about the document. */
  metadata: PlanMetadata;
}

/** The metadata of a `plan` document. */
export interface PlanMetadata {
  /** The plan's name. */
  title: string;
  /** The plan in a sentence or two. */
  overview: string;
  /** The steps. */
  todos: PlanTodo[];
  /** The format of the content. */
  format: "markdown";
  /** Extension: how the tool ended, if it did not simply complete. `unanswered`: the agent continued without an answer to its question. In a snapshot: `running`, or `waiting` for the caller. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Extension: the reason for the `state`. */
  reason?: string;
  /** Extension: what the agent needs permission for. Send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Extension: for what a sub-agent did, the id of the `task` document that started it. */
  parentId?: string;
  /** Extension: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
  /** Extension: `true` if somebody accepted the plan while the run waited. */
  accepted?: boolean;
}

/** One step of a plan. */
export interface PlanTodo {
  /** The step's id; later `todo_update` documents use it. */
  id: string;
  /** A description of the step. */
  content: string;
  /** The state of the step. */
  status: "pending" | "in_progress" | "completed" | "cancelled";
  /** The ids of the steps it depends on. */
  dependencies: string[];
}

/** Questions to the user. */
export interface ClarificationDocument {
  type: "clarification";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** An introduction to the questions, or null. */
  content: string | null;
  /** Additional information about the document. */
  metadata: ClarificationMetadata;
}

/** The metadata of a `clarification` document. */
export interface ClarificationMetadata {
  /** The questions. */
  questions: ClarificationQuestion[];
  /** Extension: how the tool ended, if it did not simply complete. `unanswered`: the agent continued without an answer to its question. In a snapshot: `running`, or `waiting` for the caller. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Extension: the reason for the `state`. */
  reason?: string;
  /** Extension: what the agent needs permission for. Send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Extension: for what a sub-agent did, the id of the `task` document that started it. */
  parentId?: string;
  /** Extension: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
  /** Extension: the answers, if any. */
  answers?: ClarificationAnswer[];
}

/** One question. */
export interface ClarificationQuestion {
  /** The question's id. */
  id: string;
  /** The text of the question. */
  text: string;
  /** The answers to choose from. */
  options: ClarificationOption[];
  /** Extension: true if several options may be chosen. */
  allowMultiple?: boolean;
}

/** One answer to choose. */
export interface ClarificationOption {
  /** The option's id. */
  id: string;
  /** The text of the option. */
  label: string;
}

/** Extension: the answer to a question. */
export interface ClarificationAnswer {
  /** The question's id. */
  questionId: string;
  /** The ids of the chosen options. */
  selectedOptionIds: string[];
  /** Extension: the text of a written answer. */
  text?: string;
}

/** A tool or the run that failed. */
export interface ErrorDocument {
  type: "error";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** What happened. */
  content: string;
  /** Additional information about the document. */
  metadata: ErrorMetadata;
}

/** The metadata of an `error` document. */
export interface ErrorMetadata {
  /** A stable error code. */
  errorCode: string;
  /** What failed: a tool's name, `agent` or `gateway`. */
  source: string;
  /** Details; may be empty. */
  details: string;
}

/** To-dos whose state changed. */
export interface TodoUpdateDocument {
  type: "todo_update";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** Always null. */
  content: null;
  /** Additional information about the document. */
  metadata: TodoUpdateMetadata;
}

/** The metadata of a `todo_update` document. */
export interface TodoUpdateMetadata {
  /** The steps that changed. */
  todos: TodoChange[];
  /** Extension: how the tool ended, if it did not simply complete. `unanswered`: the agent continued without an answer to its question. In a snapshot: `running`, or `waiting` for the caller. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Extension: the reason for the `state`. */
  reason?: string;
  /** Extension: what the agent needs permission for. Send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Extension: for what a sub-agent did, the id of the `task` document that started it. */
  parentId?: string;
  /** Extension: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
  /** Extension: false if these steps replace the whole list. */
  merge?: boolean;
}

/** One step that changed. */
export interface TodoChange {
  /** The step's id. */
  id: string;
  /** The new state of the step. */
  status: "pending" | "in_progress" | "completed" | "cancelled";
  /** Extension: a description of the step. */
  content?: string;
}

/** Extension: the model's thinking, if requested. */
export interface ThinkingDocument {
  type: "thinking";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** The thinking, as reported by the agent. */
  content: string;
  /** Additional information about the document. */
  metadata: ThinkingMetadata;
}

/** Extension: the metadata of a `thinking` document. */
export interface ThinkingMetadata {
  /** The format of the content. */
  format: "markdown" | "plain";
  /** Extension: how long the agent thought, if known. */
  duration_ms?: number;
}

/** The tokens a run used. */
export interface UsageInfo {
  /** Tokens read, including those from the cache. */
  promptTokens: number;
  /** Tokens written. */
  completionTokens: number;
  /** The sum of both. */
  totalTokens: number;
  /** Extension: the part of `promptTokens` that came from the cache. */
  cachedTokens?: number;
  /** Extension: the part of `completionTokens` that was thinking. */
  reasoningTokens?: number;
  /** Extension: true if the agent reported no usage and the tokens are estimated from the text. */
  estimated?: boolean;
  /** Extension: what they cost in US dollars, if the setting `prices` has the model. */
  cost?: number;
}

/** Figures about a run. */
export interface ResponseMetadata {
  /** How long the run took; 0 if unknown. */
  duration_ms: number;
  /** The number of `tool_call` documents. */
  toolCallCount: number;
  /** The number of model turns. */
  turnCount: number;
  /** Extension: the number of unknown lines and events in the agent's output. */
  unrecognized?: number;
  /** Extension: true if the agent's final result differs from the text it streamed. */
  resultDiffers?: boolean;
  /** Extension: the number of tool calls that were not run because nothing allowed them, whatever the answer claims. */
  refusedCount?: number;
  /** Extension: the first 20 of these tool calls. */
  refused?: RefusedCall[];
  /** Extension: false if the answer could not be stored. The answer itself is complete. */
  stored?: boolean;
  /** Extension: the tool calls that the caller has to run. The run continues when it gets their results. */
  waitingFor?: WaitingCall[];
  /** Extension: the recording that was replayed; no agent ran. */
  recording?: ReplayedRecording;
  /** Extension: the backend that answered, because the chosen one failed before its first event. */
  fallback?: string;
  /** Extension: true if the agent was ready before the run; nothing had to be started. */
  warm?: boolean;
  /** Extension: its place in the queue, while it waits to be started. */
  queue?: QueuePlace;
  /** Extension: the size of the conversation after the last model call, in tokens, with `include: ["context"]`. Derived from the agent's figures; omitted if it reports none. */
  contextTokens?: number;
}

/** Extension: a tool call that was not run because nothing allowed it. */
export interface RefusedCall {
  /** The id of its document; decide about it with `POST /v1/chat/{id}/answer`. */
  document: string;
  /** The command line, the address, the file or the tool; shortened if it is long. */
  subject: string;
  /** Extension: the rules that would allow it; omitted if no rule can. */
  rules?: string[];
  /** Extension: why it was not run. */
  reason?: string;
  /** Extension: where a person can allow it, if anybody can: the path on this gateway's page. */
  link?: string;
  /** Extension: the same with the gateway's address, if it is known (setting `page_url`). */
  url?: string;
}

/** Extension: a tool call that the caller has to run. */
export interface WaitingCall {
  /** The call's id, to send with its result. */
  toolCallId: string;
  /** The tool's name, as in the request. */
  toolName: string;
  /** The arguments of the call. */
  arguments: Record<string, unknown>;
  /** The call's own document. */
  documentId: string;
}

/** Extension: the replayed recording, and why it was chosen. */
export interface ReplayedRecording {
  /** The recording's name: its file name without the extension. */
  name: string;
  /** Why it was chosen: the prompt names it, equals its prompt, or shares words with it; or nothing matches, and it is the demo's default. */
  reason: "named" | "same_prompt" | "similar_prompt" | "default";
}

/** Extension: where a run is that waits to be started. */
export interface QueuePlace {
  /** How long it has waited; 0 until `runAt`. */
  ageSeconds: number;
  /** As in the request. */
  priority: number;
  /** If it has not started by then, it fails with `queue_expired`: ISO 8601, UTC. */
  expires: string;
  /** Extension: its place, from 1, if no other request arrives; omitted until `runAt`. */
  position?: number;
  /** Extension: when it is to start, if the request says so: ISO 8601, UTC. */
  runAt?: string;
}

/** The document types. `thinking` is an extension, sent only on request. */
export type DocumentType =
  | "text"
  | "code_reference"
  | "code_block"
  | "file_edit"
  | "tool_call"
  | "terminal_command"
  | "plan"
  | "clarification"
  | "error"
  | "todo_update"
  | "thinking";

/** The names of the streaming events. */
export type StreamEventType =
  | "document_start"
  | "content_delta"
  | "tool_call_start"
  | "tool_call_arguments"
  | "tool_result"
  | "document_end"
  | "done";

/** One line of an NDJSON stream. In a Server-Sent Event, `type` is the event name and `data` its data. */
export type StreamEvent =
  | DocumentStartEvent
  | ContentDeltaEvent
  | ToolCallStartEvent
  | ToolCallArgumentsEvent
  | ToolResultEvent
  | DocumentEndEvent
  | DoneEvent;

/** A document starts. */
export interface DocumentStartEvent {
  type: "document_start";
  /** The document's id. */
  documentId: string;
  /** The payload. */
  data: DocumentStartPayload;
  /** Extension: the event's number in the run, as in the id of a Server-Sent Event. Use it with `?after=`. Always sent by this gateway. */
  id?: number;
}

/** A document begins. */
export interface DocumentStartPayload {
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's type. */
  type: DocumentType;
  /** The document's position in the answer, from 1. */
  sequence: number;
  /** Extension: what is known at the start, for live display. */
  metadata?: KnownMetadata;
}

/** What is known about a document when it starts, so that a live view can show it at once. */
export interface KnownMetadata {
  /** The file's path, as given by the agent. */
  filePath?: string;
  /** The first line quoted. */
  startLine?: number;
  /** The last line quoted. */
  endLine?: number;
  /** The language; `text` if unknown. */
  language?: string;
  /** `new_code` in the modes agent and debug, `suggestion` in plan, `example` in ask. */
  purpose?: "new_code" | "example" | "suggestion";
  /** The indentation removed from each line. */
  indent?: number;
  /** The command line. */
  command?: string;
  /** Where it ran, if known. */
  workingDirectory?: string;
  /** The plan's name. */
  title?: string;
  /** The plan in a sentence. */
  overview?: string;
  /** The plan's steps. */
  todos?: PlanTodo[];
  /** The questions, each with its options. */
  questions?: ClarificationQuestion[];
  /** `waiting`: the caller has to run the tool or answer. */
  state?: "waiting";
  /** `caller`: the caller, not the agent, runs the tool. */
  ranBy?: "caller";
  /** The `task` document of the sub-agent that does this. */
  parentId?: string;
  /** Extension: what the agent needs permission for. Send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
}

/** A document's content grows. */
export interface ContentDeltaEvent {
  type: "content_delta";
  /** The document's id. */
  documentId: string;
  /** The payload. */
  data: ContentDeltaPayload;
  /** Extension: the event's number in the run, as in the id of a Server-Sent Event. Use it with `?after=`. Always sent by this gateway. */
  id?: number;
}

/** A document's content grows. The deltas of a document, joined, are its content. */
export interface ContentDeltaPayload {
  /** The document's id. */
  documentId: string;
  /** The next piece of the content, never empty. */
  delta: string;
}

/** The tool of a `tool_call` document is known. */
export interface ToolCallStartEvent {
  type: "tool_call_start";
  /** The document's id. */
  documentId: string;
  /** The payload. */
  data: ToolCallStartPayload;
  /** Extension: the event's number in the run, as in the id of a Server-Sent Event. Use it with `?after=`. Always sent by this gateway. */
  id?: number;
}

/** The tool of a `tool_call` document is known. */
export interface ToolCallStartPayload {
  /** The document's id. */
  documentId: string;
  /** The tool's name as in Cursor's editor, or the name of an MCP tool. */
  toolName: string;
  /** The call's id. */
  toolCallId: string;
}

/** The arguments of a `tool_call` document. */
export interface ToolCallArgumentsEvent {
  type: "tool_call_arguments";
  /** The document's id. */
  documentId: string;
  /** The payload. */
  data: ToolCallArgumentsPayload;
  /** Extension: the event's number in the run, as in the id of a Server-Sent Event. Use it with `?after=`. Always sent by this gateway. */
  id?: number;
}

/** The arguments of a `tool_call` document, all at once. A call without arguments has no such event. */
export interface ToolCallArgumentsPayload {
  /** The document's id. */
  documentId: string;
  /** The arguments of the call. */
  arguments: Record<string, unknown>;
}

/** The result of a `tool_call` document. */
export interface ToolResultEvent {
  type: "tool_result";
  /** The document's id. */
  documentId: string;
  /** The payload. */
  data: ToolResultPayload;
  /** Extension: the event's number in the run, as in the id of a Server-Sent Event. Use it with `?after=`. Always sent by this gateway. */
  id?: number;
}

/** What the tool of a `tool_call` document answered. */
export interface ToolResultPayload {
  /** The document's id. */
  documentId: string;
  /** The result of the call. */
  result: ToolCallResult;
}

/** A document is complete. */
export interface DocumentEndEvent {
  type: "document_end";
  /** The document's id. */
  documentId: string;
  /** The payload. */
  data: DocumentEndPayload;
  /** Extension: the event's number in the run, as in the id of a Server-Sent Event. Use it with `?after=`. Always sent by this gateway. */
  id?: number;
}

/** A document is complete: with its start, this is all of it. */
export interface DocumentEndPayload {
  /** The document's id. */
  documentId: string;
  /** The whole content; omitted if the content is null. */
  finalContent?: string;
  /** Extension: the document's whole metadata. Always sent by this gateway. */
  metadata?: DocumentMetadata;
}

/** The metadata of any document; which one follows from the document's type. */
export type DocumentMetadata =
  | TextMetadata
  | CodeReferenceMetadata
  | CodeBlockMetadata
  | FileEditMetadata
  | ToolCallMetadata
  | TerminalCommandMetadata
  | PlanMetadata
  | ClarificationMetadata
  | ErrorMetadata
  | TodoUpdateMetadata
  | ThinkingMetadata;

/** The run is over, successfully or not, and no event follows. Or its `status` is `streaming`: the run waits for its caller, and continues when it gets the results. */
export interface DoneEvent {
  type: "done";
  /** The payload. */
  data: DonePayload;
  /** Extension: the event's number in the run, as in the id of a Server-Sent Event. Use it with `?after=`. Always sent by this gateway. */
  id?: number;
}

/** A ChatResponse without its documents: what `done` carries. */
export interface DonePayload {
  /** The id of this answer, `chat_…`. */
  id: string;
  /** The conversation it belongs to, `conv_…`. */
  conversationId: string;
  /** The model that answered, by the name the caller or the agent gave. */
  model: string;
  /** The mode the agent ran in. */
  mode: "agent" | "plan" | "ask" | "debug";
  /** When the run started: ISO 8601, UTC. */
  created: string;
  /** The state of the run: `streaming` while it waits to be started, runs, or waits for its caller; then `completed` or `error`. */
  status: "completed" | "streaming" | "error";
  /** Tokens of the whole run. */
  usage: UsageInfo;
  /** Figures about the run. */
  metadata: ResponseMetadata;
}
