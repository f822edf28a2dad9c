// The documents of cursor-gateway. Written by `cursor-gateway schema --typescript` from the types
// that the gateway itself uses; what a comment calls "ours" is not in the specification.

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
  /** The state of the run: `streaming` while it runs or waits for its caller, then `completed` or `error`. */
  status: "completed" | "streaming" | "error";
  /** The parts of the answer, in order. */
  documents: Document[];
  /** Tokens of the whole run. */
  usage: UsageInfo;
  /** Figures about the run. */
  metadata: ResponseMetadata;
}

/** One part of an answer. Its `type` tells which. */
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
  /** The document's place in the answer, from 1. */
  sequence: number;
  /** Markdown, without white space around it. */
  content: string;
  /** Additional information about the document. */
  metadata: TextMetadata;
}

/** The metadata of a `text` document. */
export interface TextMetadata {
  /** How to read the content. The agent writes Markdown. */
  format: "markdown" | "plain";
}

/** Code that exists in the project. */
export interface CodeReferenceDocument {
  type: "code_reference";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's place in the answer, from 1. */
  sequence: number;
  /** The lines quoted, without the fence. */
  content: string;
  /** Additional information about the document. */
  metadata: CodeReferenceMetadata;
}

/** The metadata of a `code_reference` document. */
export interface CodeReferenceMetadata {
  /** The file, as the agent names it. */
  filePath: string;
  /** The first line quoted, from 1. */
  startLine: number;
  /** The last line quoted. */
  endLine: number;
  /** The language, `text` when it is not known. */
  language: string;
  /** Ours: the columns taken off each line, when the fence stood in a list item. */
  indent?: number;
}

/** New or proposed code that belongs to no file. */
export interface CodeBlockDocument {
  type: "code_block";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's place in the answer, from 1. */
  sequence: number;
  /** The code, without the fence. */
  content: string;
  /** Additional information about the document. */
  metadata: CodeBlockMetadata;
}

/** The metadata of a `code_block` document. */
export interface CodeBlockMetadata {
  /** The language that the fence names. */
  language: string;
  /** `new_code` in the modes agent and debug, `suggestion` in plan, `example` in ask. */
  purpose: "new_code" | "example" | "suggestion";
  /** Ours: the columns taken off each line, when the fence stood in a list item. */
  indent?: number;
}

/** A change of a file. */
export interface FileEditDocument {
  type: "file_edit";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's place in the answer, from 1. */
  sequence: number;
  /** The new lines of an edit, or the whole new file; null for a deletion and a rename. */
  content: string | null;
  /** Additional information about the document. */
  metadata: FileEditMetadata;
}

/** The metadata of a `file_edit` document. */
export interface FileEditMetadata {
  /** The file, as the agent names it; after a rename, its new name. */
  filePath: string;
  /** What was done to the file. */
  operation: "create" | "edit" | "delete" | "rename";
  /** The language, `text` when it is not known. */
  language: string;
  /** What an edit replaced. Left out for other operations, and when the agent shows none. */
  diff?: Diff;
  /** Ours: how the tool ended, where it did not simply complete; `unanswered`: the agent went on without an answer to its question; in a snapshot `running`, or `waiting` where somebody else is to act. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Ours: why it ended so. */
  reason?: string;
  /** Ours: what the agent needs permission for; send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Ours: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
  /** Ours: the name before a rename. */
  oldPath?: string;
}

/** Ours: what the agent needs permission for. It can be allowed or denied with `POST /v1/chat/{id}/answer`. */
export interface PermissionRequest {
  /** The command line, the address or the tool. */
  subject: string;
  /** What is allowed by `conversation` and `workspace`, in the agent's own form. */
  rules: string[];
}

/** One replacement: the smallest range of whole lines that covers all that an edit changed. */
export interface Diff {
  /** The lines before. */
  oldString: string;
  /** The lines after. */
  newString: string;
  /** The first line replaced, counted in the old file from 1. */
  startLine: number;
  /** The last line replaced, counted in the old file. */
  endLine: number;
}

/** A tool that the agent used, with its result. */
export interface ToolCallDocument {
  type: "tool_call";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's place in the answer, from 1. */
  sequence: number;
  /** Always null. */
  content: null;
  /** Additional information about the document. */
  metadata: ToolCallMetadata;
}

/** The metadata of a `tool_call` document. */
export interface ToolCallMetadata {
  /** The tool's name, in the vocabulary of Cursor's editor; an MCP tool's own name. */
  toolName: string;
  /** The call's id. */
  toolCallId: string;
  /** The arguments of the call. */
  arguments: Record<string, unknown>;
  /** The result of the call. */
  result: ToolCallResult;
  /** How long it took; 0 when it is not known. */
  duration_ms: number;
  /** Ours: how the tool ended, where it did not simply complete; `unanswered`: the agent went on without an answer to its question; in a snapshot `running`, or `waiting` where somebody else is to act. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Ours: why it ended so. */
  reason?: string;
  /** Ours: what the agent needs permission for; send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Ours: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
  /** Ours: the agent's own id of the call, where it could not serve as `toolCallId`. */
  agentCallId?: string;
  /** Ours: `caller` if the caller, not the agent, ran the tool. */
  ranBy?: "caller";
}

/** A tool's answer. */
export interface ToolCallResult {
  /** Whether the call succeeded. */
  status: "success" | "error";
  /** The useful value: a file's content, the hits of a search; or why it failed. */
  data: unknown;
}

/** A command, its output and how it ended. */
export interface TerminalCommandDocument {
  type: "terminal_command";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's place in the answer, from 1. */
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
  /** Where it ran, when that is known. */
  workingDirectory?: string;
  /** The exit status; -1 when the command did not run to an end. */
  exitCode: number;
  /** What it printed, standard output and errors in the order they came where known. */
  output: string;
  /** How long it took; 0 when it is not known. */
  duration_ms: number;
  /** What the sandbox let it do: `network`, `git_write`, or `all`. */
  permissions: string[];
  /** Ours: how the tool ended, where it did not simply complete; `unanswered`: the agent went on without an answer to its question; in a snapshot `running`, or `waiting` where somebody else is to act. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Ours: why it ended so. */
  reason?: string;
  /** Ours: what the agent needs permission for; send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Ours: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
}

/** A plan with its to-dos. */
export interface PlanDocument {
  type: "plan";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's place in the answer, from 1. */
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
  /** How to read the content. */
  format: "markdown";
  /** Ours: how the tool ended, where it did not simply complete; `unanswered`: the agent went on without an answer to its question; in a snapshot `running`, or `waiting` where somebody else is to act. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Ours: why it ended so. */
  reason?: string;
  /** Ours: what the agent needs permission for; send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Ours: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
}

/** One step of a plan. */
export interface PlanTodo {
  /** The step's id; later `todo_update` documents use it. */
  id: string;
  /** A description of the step. */
  content: string;
  /** The state of the step. */
  status: "pending" | "in_progress" | "completed" | "cancelled";
  /** The ids of the steps that come before it. */
  dependencies: string[];
}

/** Questions to the user. */
export interface ClarificationDocument {
  type: "clarification";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's place in the answer, from 1. */
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
  /** Ours: how the tool ended, where it did not simply complete; `unanswered`: the agent went on without an answer to its question; in a snapshot `running`, or `waiting` where somebody else is to act. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Ours: why it ended so. */
  reason?: string;
  /** Ours: what the agent needs permission for; send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Ours: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
  /** Ours: the answers, if there are any. */
  answers?: ClarificationAnswer[];
}

/** One question. */
export interface ClarificationQuestion {
  /** The question's id. */
  id: string;
  /** The question itself. */
  text: string;
  /** The answers to choose from. */
  options: ClarificationOption[];
  /** Ours: true when several options may be chosen. */
  allowMultiple?: boolean;
}

/** One answer to choose. */
export interface ClarificationOption {
  /** The option's id. */
  id: string;
  /** The option as people read it. */
  label: string;
}

/** Ours: what somebody answered. */
export interface ClarificationAnswer {
  /** The question that is answered. */
  questionId: string;
  /** The options that were chosen. */
  selectedOptionIds: string[];
  /** Ours: what was written, where the answer is no option. */
  text?: string;
}

/** A tool or the run that failed. */
export interface ErrorDocument {
  type: "error";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's place in the answer, from 1. */
  sequence: number;
  /** What happened, in a sentence. */
  content: string;
  /** Additional information about the document. */
  metadata: ErrorMetadata;
}

/** The metadata of an `error` document. */
export interface ErrorMetadata {
  /** A stable name of what went wrong. */
  errorCode: string;
  /** Who failed: a tool's name, `agent` or `gateway`. */
  source: string;
  /** More about it; may be empty. */
  details: string;
}

/** To-dos whose state changed. */
export interface TodoUpdateDocument {
  type: "todo_update";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's place in the answer, from 1. */
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
  /** Ours: how the tool ended, where it did not simply complete; `unanswered`: the agent went on without an answer to its question; in a snapshot `running`, or `waiting` where somebody else is to act. */
  state?: "completed" | "failed" | "rejected" | "unanswered" | "timed_out" | "interrupted" | "running" | "waiting";
  /** Ours: why it ended so. */
  reason?: string;
  /** Ours: what the agent needs permission for; send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
  /** Ours: the agent's own payload, with `include: ["raw"]`. */
  raw?: unknown;
  /** Ours: false when these steps replace the whole list. */
  merge?: boolean;
}

/** One step that changed. */
export interface TodoChange {
  /** The step's id. */
  id: string;
  /** The new state of the step. */
  status: "pending" | "in_progress" | "completed" | "cancelled";
  /** Ours: a description of the step. */
  content?: string;
}

/** Ours: the model's thinking, when the request asks for it. */
export interface ThinkingDocument {
  type: "thinking";
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's place in the answer, from 1. */
  sequence: number;
  /** The thinking, as the agent shows it. */
  content: string;
  /** Additional information about the document. */
  metadata: ThinkingMetadata;
}

/** Ours: the metadata of a `thinking` document. */
export interface ThinkingMetadata {
  /** How to read the content. */
  format: "markdown" | "plain";
}

/** The tokens a run used. */
export interface UsageInfo {
  /** Tokens read, those from the cache included. */
  promptTokens: number;
  /** Tokens written. */
  completionTokens: number;
  /** The sum of both. */
  totalTokens: number;
  /** Ours: the part of `promptTokens` that came from the cache. */
  cachedTokens?: number;
  /** Ours: true when the agent reported no figures and these are counted from the text. */
  estimated?: boolean;
}

/** Figures about a run. */
export interface ResponseMetadata {
  /** How long the run took; 0 when it is not known. */
  duration_ms: number;
  /** How many `tool_call` documents there are. */
  toolCallCount: number;
  /** How many turns the model took. */
  turnCount: number;
  /** Ours: the number of unknown lines and events in the agent's output. */
  unrecognized?: number;
  /** Ours: true when the agent's closing text is not the text it had streamed. */
  resultDiffers?: boolean;
  /** Ours: false when the answer could not be stored; it is complete. */
  stored?: boolean;
  /** Ours: the calls that its caller is to carry out; without their results the run cannot go on. */
  waitingFor?: WaitingCall[];
  /** Ours: the recording that was replayed; no agent ran. */
  recording?: ReplayedRecording;
}

/** Ours: a call that the run waits for its caller to carry out. */
export interface WaitingCall {
  /** The call's id, to be sent with its result. */
  toolCallId: string;
  /** The tool's name, as it was offered. */
  toolName: string;
  /** The arguments of the call. */
  arguments: Record<string, unknown>;
  /** The call's own document. */
  documentId: string;
}

/** Ours: the recording that a replay answers with, and why it was chosen. */
export interface ReplayedRecording {
  /** The recording's name: its file, without the ending. */
  name: string;
  /** Why it was chosen: the prompt names it, is its prompt, shares words with it; or it is the demo's first, and has nothing to do with the prompt. */
  reason: "named" | "same_prompt" | "similar_prompt" | "default";
}

/** The types of documents. `thinking` is ours and comes only when asked for. */
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

/** One line of the NDJSON stream. In a Server-Sent Event, `type` is its name and `data` its data. */
export type StreamEvent =
  | DocumentStartEvent
  | ContentDeltaEvent
  | ToolCallStartEvent
  | ToolCallArgumentsEvent
  | ToolResultEvent
  | DocumentEndEvent
  | DoneEvent;

/** A document begins. */
export interface DocumentStartEvent {
  type: "document_start";
  /** The document it is about. */
  documentId: string;
  /** The payload. */
  data: DocumentStartPayload;
  /** Ours: the event's number in the run, as the id of a Server-Sent Event; `?after=` takes it. This gateway always sends it. */
  id?: number;
}

/** A document begins. */
export interface DocumentStartPayload {
  /** The document's id: `doc_001`, `doc_002`, … */
  id: string;
  /** The document's type. */
  type: DocumentType;
  /** The document's place in the answer, from 1. */
  sequence: number;
  /** Ours: what is known at the start, so that a live view can show it at once. */
  metadata?: KnownMetadata;
}

/** What is known about a document when it starts, so that a live view can show it at once. */
export interface KnownMetadata {
  /** The file, as the agent names it. */
  filePath?: string;
  /** The first line quoted. */
  startLine?: number;
  /** The last line quoted. */
  endLine?: number;
  /** The language, `text` when it is not known. */
  language?: string;
  /** `new_code` in the modes agent and debug, `suggestion` in plan, `example` in ask. */
  purpose?: "new_code" | "example" | "suggestion";
  /** The columns taken off each line. */
  indent?: number;
  /** The command line. */
  command?: string;
  /** Where it ran, when that is known. */
  workingDirectory?: string;
  /** The plan's name. */
  title?: string;
  /** The plan in a sentence. */
  overview?: string;
  /** The plan's steps. */
  todos?: PlanTodo[];
  /** The questions, each with its options. */
  questions?: ClarificationQuestion[];
  /** `waiting`: for its caller, who is to run the tool, or to answer. */
  state?: "waiting";
  /** `caller`: the caller, not the agent, runs the tool. */
  ranBy?: "caller";
  /** Ours: what the agent needs permission for; send `permissions` to `/v1/chat/{id}/answer` to decide. */
  permission?: PermissionRequest;
}

/** A document's content grows. */
export interface ContentDeltaEvent {
  type: "content_delta";
  /** The document it is about. */
  documentId: string;
  /** The payload. */
  data: ContentDeltaPayload;
  /** Ours: the event's number in the run, as the id of a Server-Sent Event; `?after=` takes it. This gateway always sends it. */
  id?: number;
}

/** A document's content grows. The deltas of a document, joined, are its content. */
export interface ContentDeltaPayload {
  /** The document it is about. */
  documentId: string;
  /** The next piece of the content, never empty. */
  delta: string;
}

/** The tool of a `tool_call` document is known. */
export interface ToolCallStartEvent {
  type: "tool_call_start";
  /** The document it is about. */
  documentId: string;
  /** The payload. */
  data: ToolCallStartPayload;
  /** Ours: the event's number in the run, as the id of a Server-Sent Event; `?after=` takes it. This gateway always sends it. */
  id?: number;
}

/** The tool of a `tool_call` document is known. */
export interface ToolCallStartPayload {
  /** The document it is about. */
  documentId: string;
  /** The tool's name, in the vocabulary of Cursor's editor; an MCP tool's own name. */
  toolName: string;
  /** The call's id. */
  toolCallId: string;
}

/** The arguments of a `tool_call` document. */
export interface ToolCallArgumentsEvent {
  type: "tool_call_arguments";
  /** The document it is about. */
  documentId: string;
  /** The payload. */
  data: ToolCallArgumentsPayload;
  /** Ours: the event's number in the run, as the id of a Server-Sent Event; `?after=` takes it. This gateway always sends it. */
  id?: number;
}

/** The arguments of a `tool_call` document, all at once. A call without arguments has no such event. */
export interface ToolCallArgumentsPayload {
  /** The document it is about. */
  documentId: string;
  /** The arguments of the call. */
  arguments: Record<string, unknown>;
}

/** What the tool of a `tool_call` document answered. */
export interface ToolResultEvent {
  type: "tool_result";
  /** The document it is about. */
  documentId: string;
  /** The payload. */
  data: ToolResultPayload;
  /** Ours: the event's number in the run, as the id of a Server-Sent Event; `?after=` takes it. This gateway always sends it. */
  id?: number;
}

/** What the tool of a `tool_call` document answered. */
export interface ToolResultPayload {
  /** The document it is about. */
  documentId: string;
  /** The result of the call. */
  result: ToolCallResult;
}

/** A document is complete. */
export interface DocumentEndEvent {
  type: "document_end";
  /** The document it is about. */
  documentId: string;
  /** The payload. */
  data: DocumentEndPayload;
  /** Ours: the event's number in the run, as the id of a Server-Sent Event; `?after=` takes it. This gateway always sends it. */
  id?: number;
}

/** A document is complete: with its start, this is all of it. */
export interface DocumentEndPayload {
  /** The document it is about. */
  documentId: string;
  /** The whole content; left out where the content is null. */
  finalContent?: string;
  /** Ours: the document's whole metadata. This gateway always sends it. */
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

/** The run is over, well or not, and nothing comes after it; or its `status` is `streaming`: it waits for its caller, and goes on when it has the results. */
export interface DoneEvent {
  type: "done";
  /** The payload. */
  data: DonePayload;
  /** Ours: the event's number in the run, as the id of a Server-Sent Event; `?after=` takes it. This gateway always sends it. */
  id?: number;
}

/** A ChatResponse without its documents: what `done` carries. */
export interface DonePayload {
  /** The id of the answer. */
  id: string;
  /** The conversation it belongs to, `conv_…`. */
  conversationId: string;
  /** The model that answered, by the name the caller or the agent gave. */
  model: string;
  /** The mode the agent ran in. */
  mode: "agent" | "plan" | "ask" | "debug";
  /** When the run started: ISO 8601, UTC. */
  created: string;
  /** The state of the run: `streaming` while it runs or waits for its caller, then `completed` or `error`. */
  status: "completed" | "streaming" | "error";
  /** Tokens of the whole run. */
  usage: UsageInfo;
  /** Figures about the run. */
  metadata: ResponseMetadata;
}
