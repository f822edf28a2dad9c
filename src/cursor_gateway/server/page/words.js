// Numbers, times and states as people read them; empty when unknown.

const LONGEST = 80; // characters of a title

export const number = (value) => value?.toLocaleString("en") ?? "";
export const short = (value) => value.toLocaleString("en", { notation: "compact" });

/** US dollars; of little, the first digits that count. */
export const money = (usd) => (usd == null ? "" : `$${usd.toLocaleString("en", usd && usd < 1 ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`);

export function duration(ms) {
	if (ms == null) return "";
	if (ms < 1000) return `${Math.round(ms)} ms`;
	if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
	return `${Math.floor(ms / 60_000)} min ${Math.floor((ms / 1000) % 60)} s`;
}

/** Where there is little room. */
export const shortDuration = (ms) => (ms < 60_000 ? duration(ms) : `${(ms / 60_000).toFixed(1)} min`);

export function tokens(usage) {
	if (!usage?.totalTokens) return "";
	const cached = usage.cachedTokens ? ` (${number(usage.cachedTokens)} cached)` : "";
	return `${number(usage.promptTokens)} in${cached}, ${number(usage.completionTokens)} out${usage.estimated ? ", estimated" : ""}${usage.cost == null ? "" : `, ${money(usage.cost)}`}`;
}

/** What the last call of the model read and wrote. */
export function contextSize(context) {
	if (!context) return "";
	const { tokens, window, isEstimate } = context;
	return `Context: ${isEstimate ? "about " : ""}${number(tokens)}${window ? ` of ${number(window)}` : ""} tokens`;
}

/** The time of today, the day of what is older. */
export function when(created) {
	const date = new Date(created);
	if (date.toDateString() === new Date().toDateString()) return clock(created);
	return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

export const moment = (time) => (when(time) === clock(time) ? clock(time) : `${clock(time)}, ${when(time)}`);

export const clock = (created) => new Date(created).toTimeString().slice(0, 5);

/** As the gateway makes it: the first sentence, cut at a word. */
export function titleOf(message) {
	const line = message.trim().split("\n")[0].replace(/\s+/g, " ");
	const [sentence] = /^.{8,}?[.!?](?=\s)/.exec(line) ?? [line];
	if (sentence.length <= LONGEST) return sentence.replace(/\.$/, "");
	const words = sentence.slice(0, LONGEST).replace(/\s\S*$/, "");
	return `${words}…`;
}

/** The heading under which a conversation of that time is listed. */
export function dayGroup(time) {
	const start = new Date().setHours(0, 0, 0, 0);
	const days = Math.ceil((start - new Date(time)) / 86_400_000);
	if (days <= 0) return "Today";
	if (days === 1) return "Yesterday";
	if (days <= 7) return "Previous 7 days";
	if (days <= 30) return "Previous 30 days";
	return "Older";
}

/** An error that somebody wanted is none. */
export const stateOf = (run) => (run.state === "error" && run.errorCode === "cancelled" ? "stopped" : run.state);
export const stateName = (state) => ({ queued: "Waiting for a free slot", running: "Working", waiting: "Waiting for you", error: "Failed", completed: "Completed", stopped: "Stopped", reconnecting: "Reconnecting" })[state] ?? state;
