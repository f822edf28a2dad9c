// The dashboard: the newest runs as a table, their tokens and durations as plots, and what the API key has used.
import { json } from "./api.js";
import { byId, make, on } from "./dom.js";
import { plot } from "./plots.js";
import { answerPath } from "./router.js";
import { showQueue } from "./runners.js";
import { setWindowTitle } from "./sidebar.js";
import { clock, duration, money, number, short, shortDuration, stateName, stateOf, tokens, when } from "./words.js";

const REFRESH_MS = 5000; // while something runs and somebody looks

let timer;

on("refresh", "click", showRuns);

export async function showRuns() {
	setWindowTitle("Runs");
	clearTimeout(timer);
	try {
		const asked = [json("/v1/runs?limit=100"), json("/v1/usage?days=1"), showQueue(showRuns)];
		const [{ runs }, usage, isWaiting] = await Promise.all(asked);
		const ended = runs.filter((run) => run.state !== "running").reverse();
		byId("runs-hint").hidden = runs.length > 0;
		byId("runs-trouble").hidden = true;
		byId("run-table").hidden = !runs.length;
		byId("plots").hidden = !ended.length;
		byId("rows").replaceChildren(...runs.map(row));
		if (ended.length) draw(ended);
		byId("used").textContent = `${used("Today", usage.today)}; ${used("this month", usage.month)} (UTC).`;
		if (ended.length < runs.length || isWaiting) timer = setTimeout(() => byId("runs").hidden || document.hidden || showRuns(), REFRESH_MS);
	} catch (error) {
		byId("runs-trouble").textContent = error.message;
		byId("runs-trouble").hidden = false;
	}
}

function draw(runs) {
	const span = `${runs.length} run${runs.length > 1 ? "s" : ""}, ${when(runs[0].created)} to ${when(runs.at(-1).created)}`;
	const used = runs.map(({ title, usage }) => ({
		parts: [usage?.promptTokens ?? 0, usage?.completionTokens ?? 0],
		label: `${title}: ${tokens(usage) || "tokens unknown"}`,
	}));
	const took = runs.map(({ title, firstEventMs, durationMs }) => {
		const first = Math.min(firstEventMs ?? 0, durationMs ?? 0);
		const label = `${title}: ${duration(durationMs)}, first event after ${duration(firstEventMs) || "unknown"}`;
		return { parts: [first, (durationMs ?? 0) - first], label };
	});
	plot(byId("token-plot"), used, short, `${span}.`);
	plot(byId("duration-plot"), took, shortDuration, `${span}.`);
	byId("span").textContent = span;
}

/** What the API key has used in a period, and may use. */
function used(name, period) {
	const of = (most, form) => (most == null ? "" : ` of ${form(most)}`);
	const cost = period.cost == null && period.maxCost == null ? "" : `, ${money(period.cost ?? 0)}${of(period.maxCost, money)}`;
	return `${name} ${short(period.totalTokens)}${of(period.maxTokens, short)} tokens${cost}`;
}

function row(run) {
	const cost = run.usage?.cost == null ? [] : [make("small", {}, money(run.usage.cost))];
	const cells = [
		make("span", { class: "run-state", "data-run": stateOf(run) }, stateOf(run) === "error" ? (run.errorCode ?? "Failed").replaceAll("_", " ") : stateName(stateOf(run))),
		run.model,
		run.mode,
		new Date(run.created).toDateString() === new Date().toDateString() ? clock(run.created) : `${when(run.created)} ${clock(run.created)}`,
		duration(run.firstEventMs),
		duration(run.durationMs),
		cost.length ? make("span", {}, number(run.usage.totalTokens), ...cost) : number(run.usage?.totalTokens),
		number(run.toolCalls),
	].map((cell) => make("td", {}, cell || "–"));
	const link = make("a", { href: answerPath(run.conversationId, run.id), title: run.prompt || run.title }, run.prompt || run.title || "Untitled");
	const where = run.prompt && run.prompt !== run.title ? [make("small", {}, `in ${run.title || "Untitled"}`)] : [];
	const runner = run.runner ? [make("small", { class: "runner" }, `on ${run.runner}`)] : [];
	return make("tr", {}, make("th", { scope: "row" }, link, ...where, ...runner), ...cells);
}
