// Numbers, times and states as people read them; empty when unknown.

export const number = (value) => value?.toLocaleString("en") ?? "";
export const short = (value) => value.toLocaleString("en", { notation: "compact" });

export function duration(ms) {
	if (ms == null) return "";
	if (ms < 1000) return `${Math.round(ms)} ms`;
	if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
	return `${Math.floor(ms / 60_000)} min ${Math.floor((ms / 1000) % 60)} s`;
}

export function tokens(usage) {
	if (!usage?.totalTokens) return "";
	const cached = usage.cachedTokens ? ` (${number(usage.cachedTokens)} cached)` : "";
	return `${number(usage.promptTokens)} in${cached}, ${number(usage.completionTokens)} out${usage.estimated ? ", estimated" : ""}`;
}

/** The time of today, the day of what is older. */
export function when(created) {
	const date = new Date(created);
	if (date.toDateString() === new Date().toDateString()) return date.toTimeString().slice(0, 5);
	return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

/** An error that somebody wanted is none. */
export const stateOf = (run) => (run.state === "error" && run.errorCode === "cancelled" ? "stopped" : run.state);
export const stateName = (state) => ({ running: "working", error: "failed" })[state] ?? state;
