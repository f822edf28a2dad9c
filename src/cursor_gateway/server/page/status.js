// The line above the prompt: what goes on, announced once; what went wrong; and what can be undone.
import { byId, on } from "./dom.js";

const UNDO_MS = 7000;

let ticking;
let again;

/**
 * @param since when it began: the seconds are for the eye only, read out they would drown the answer
 * @param isSeen false for what only a screen reader needs
 */
export function say(text, since, isSeen = true) {
	byId("status").parentElement.classList.toggle("unseen", !text || !isSeen);
	if (byId("status").textContent !== text) byId("status").textContent = text;
	clearInterval(ticking);
	byId("clock").textContent = "";
	if (since) ticking = setInterval(() => (byId("clock").textContent = `${Math.floor((Date.now() - since) / 1000)} s`), 1000);
}

/** @param retry what "Retry" does */
export function showProblem(error, retry) {
	show(error.message, retry, false);
}

/** Something to know that is no error. */
export function showNote(text) {
	show(text, null, true);
}

function show(text, retry, isNote) {
	again = retry;
	byId("problem-text").replaceChildren(...withCode(text));
	byId("problem").classList.toggle("note", isNote);
	byId("again").hidden = !retry;
	byId("problem").hidden = false;
}

export function hideProblem() {
	byId("problem").hidden = true;
}

/** Names in backticks as code. */
function withCode(text) {
	return text.split(/`([^`\n]+)`/).map((part, place) => {
		if (place % 2 === 0) return part;
		const code = document.createElement("code");
		code.textContent = part;
		return code;
	});
}

on("dismiss", "click", hideProblem);
on("again", "click", () => (hideProblem(), again()));

// --- what can be undone ---

const toast = byId("toast");
let finish = null;

/** Does it after a while, or when the page is left, unless it is undone before. */
export function offerUndo(text, act, undo) {
	finish?.(true);
	const timer = setTimeout(() => finish?.(true), UNDO_MS);
	finish = (isWanted) => {
		clearTimeout(timer);
		finish = null;
		toast.hidden = true;
		if (isWanted) act();
		else undo();
	};
	toast.querySelector("span").textContent = text;
	toast.hidden = false;
}

toast.querySelector("button").addEventListener("click", () => finish?.(false));
addEventListener("pagehide", () => finish?.(true));
