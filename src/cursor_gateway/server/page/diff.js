// The changed lines of a file, side by side or one above the other. Only the rows that can be seen are elements, so a
// diff of any length opens at once.
import { make, parsed } from "./dom.js";

const ROW = 22; // pixels, as in changes.css
const CONTEXT = 3; // unchanged lines around a change
const EXTRA = 12; // rows beyond the edges
const TAB = 4;

/** @returns the lines of one file's patch: { sign, old, new, text }; there are no lines in a patch of a binary file */
export function patchLines(patch) {
	const lines = [];
	let [old, now] = [0, 0];
	const rows = patch.split("\n");
	rows.pop(); // after the last line feed
	for (const row of rows) {
		const start = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(row);
		if (start) [old, now] = [Number(start[1]), Number(start[2])];
		else if (!lines.length && !old && !now) continue; // the header
		else if (row[0] === "+") lines.push({ sign: "+", new: now++, text: row.slice(1) });
		else if (row[0] === "-") lines.push({ sign: "−", old: old++, text: row.slice(1) });
		else if (row[0] === " ") lines.push({ sign: " ", old: old++, new: now++, text: row.slice(1) });
		else if (row[0] === "\\" && lines.length) lines.at(-1).hasNoEnd = true;
	}
	return lines;
}

/** The same from the changes that the agent reported; the lines between them are unknown. */
export function reportedLines(diffs) {
	const split = (text) => (text ? text.split("\n") : []);
	let shift = 0;
	return diffs.flatMap(({ oldString, newString, startLine }) => {
		const [gone, come] = [split(oldString), split(newString)];
		const lines = [
			...gone.map((text, place) => ({ sign: "−", old: startLine + place, text })),
			...come.map((text, place) => ({ sign: "+", new: startLine + shift + place, text })),
		];
		shift += come.length - gone.length;
		return [...lines, { sign: "end" }];
	});
}

export class DiffView {
	#lines = [];
	#rows = [];
	#hunks = []; // the row where each begins
	#open = new Set(); // first lines of parts without changes that are shown
	#shown = "";
	#space = make("div", { class: "space" });
	#body = make("div", { class: "rows" });

	/** @param actions makes the buttons of a change from its number, and whether it is the first */
	constructor(label, lines, isSplit, actions) {
		this.element = make("div", { class: "diffview", tabindex: "0", role: "group", "aria-label": label }, this.#space, this.#body);
		this.#lines = lines;
		this.actions = actions;
		this.element.addEventListener("scroll", () => this.#draw(), { passive: true });
		new ResizeObserver(() => this.#draw()).observe(this.element);
		this.#body.addEventListener("click", ({ target }) => {
			const from = target.closest("[data-gap]")?.dataset.gap;
			if (from === undefined) return;
			this.#open.add(Number(from));
			this.#lay();
			this.element.focus({ preventScroll: true });
		});
		this.setSplit(isSplit);
	}

	get count() {
		return this.#hunks.length;
	}

	setSplit(isSplit) {
		this.isSplit = isSplit;
		this.element.classList.toggle("split", isSplit);
		this.#lay();
	}

	/** @param sides `old` and `new`: HTML of the lines of each, which the gateway has rendered; empty: no colours */
	colour({ old, new: now }) {
		let [at, place] = [0, 0];
		for (const line of this.#lines) {
			if (line.sign !== "+") line.html = old[at++];
			if (line.sign !== "−") line.html = now[place++];
		}
		this.#shown = "";
		this.#draw();
	}

	/** Scrolls to a change, by its number. */
	show(number) {
		const top = (this.#hunks[number] ?? 0) * ROW;
		this.element.scrollTop = Math.max(0, top - ROW);
		this.element.scrollIntoView({ block: "nearest" });
		this.#draw();
	}

	#lay() {
		this.#rows = [];
		this.#hunks = [];
		const lines = this.#lines;
		for (let at = 0; at < lines.length; ) {
			let end = at;
			const isEqual = lines[at].sign === " ";
			if (lines[at].sign === "end") {
				at++;
				continue;
			}
			while (end < lines.length && lines[end].sign !== "end" && (lines[end].sign === " ") === isEqual) end++;
			if (isEqual) this.#layEqual(at, end);
			else this.#layHunk(lines.slice(at, end));
			at = end;
		}
		const width = (text = "") => text.length + (text.split("\t").length - 1) * (TAB - 1);
		const columns = lines.reduce((most, { text }) => Math.max(most, width(text)), 0);
		this.element.style.setProperty("--columns", String(columns + 2));
		this.#space.style.height = `${this.#rows.length * ROW}px`;
		this.element.style.height = `${this.#rows.length * ROW + 16}px`; // and a scroll bar; the style has a limit
		this.#shown = "";
		this.#draw();
	}

	#layEqual(from, to) {
		const before = from === 0 ? 0 : CONTEXT;
		const after = to === this.#lines.length ? 0 : CONTEXT;
		const hidden = to - from - before - after;
		if (hidden <= 1 || this.#open.has(from)) {
			this.#push(from, to);
			return;
		}
		this.#push(from, from + before);
		this.#rows.push({ kind: "gap", from, count: hidden });
		this.#push(to - after, to);
	}

	#push(from, to) {
		for (const line of this.#lines.slice(from, to)) this.#rows.push({ kind: "line", left: line, right: line });
	}

	#layHunk(lines) {
		this.#hunks.push(this.#rows.length);
		this.#rows.push({ kind: "hunk", number: this.#hunks.length - 1, line: lines.find((line) => line.new)?.new ?? lines[0].old });
		const gone = lines.filter(({ sign }) => sign === "−");
		const come = lines.filter(({ sign }) => sign === "+");
		if (!this.isSplit) return this.#rows.push(...[...gone, ...come].map((line) => ({ kind: "line", left: line })));
		for (let place = 0; place < Math.max(gone.length, come.length); place++) this.#rows.push({ kind: "line", left: gone[place], right: come[place] });
	}

	/** The rows in sight, if they are others than before. */
	#draw() {
		const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - EXTRA);
		const last = Math.min(this.#rows.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / ROW) + EXTRA);
		const shown = `${first} ${last}`;
		if (shown === this.#shown || !this.element.clientHeight) return;
		this.#shown = shown;
		this.#body.style.transform = `translateY(${first * ROW}px)`;
		const focused = this.#body.contains(document.activeElement) ? document.activeElement.dataset.key : null;
		this.#body.replaceChildren(...this.#rows.slice(first, last).map((row) => this.#element(row)));
		if (focused) this.#body.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
	}

	#element({ kind, left, right, from, count, number, line }) {
		if (kind === "gap") {
			const text = `Show ${count} unchanged lines`;
			return make("div", { class: "row gap" }, make("button", { type: "button", class: "quiet", "data-gap": from, "data-key": `gap ${from}` }, text));
		}
		if (kind === "hunk") return make("div", { class: "row hunk" }, make("span", {}, `Line ${line}`), ...this.actions(number));
		const code = (one) => {
			const tag = { "+": "ins", "−": "del" }[one?.sign] ?? "span";
			const end = one?.hasNoEnd ? [make("span", { class: "note" }, " no line feed at the end")] : [];
			return make(tag, { class: one ? "code" : "code empty" }, one?.html ? parsed(one.html) : one?.text || " ", ...end);
		};
		const at = (value) => make("span", { class: "number", "aria-hidden": "true" }, value ? String(value) : "");
		const sign = (one) => make("span", { class: "sign", "aria-hidden": "true" }, one?.sign ?? "");
		if (this.isSplit) return make("div", { class: "row" }, at(left?.old), sign(left), code(left), at(right?.new), sign(right), code(right));
		return make("div", { class: "row" }, at(left.old), at(left.new), sign(left), code(left));
	}
}
