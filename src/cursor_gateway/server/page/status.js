// The line above the prompt: what goes on, told once to those who listen; and what went wrong.
import { byId, on } from "./dom.js";

let ticking;
let again;

/** @param since when it began: the seconds are for the eye only, read out they would drown the answer */
export function say(text, since) {
	if (byId("status").textContent !== text) byId("status").textContent = text;
	clearInterval(ticking);
	byId("clock").textContent = "";
	if (since) ticking = setInterval(() => (byId("clock").textContent = `${Math.floor((Date.now() - since) / 1000)} s`), 1000);
}

/** @param retry what "Try again" does */
export function showProblem(error, retry) {
	again = retry;
	byId("problem-text").textContent = error.message;
	byId("again").hidden = !retry;
	byId("problem").hidden = false;
}

export function hideProblem() {
	byId("problem").hidden = true;
}

on("dismiss", "click", hideProblem);
on("again", "click", () => (hideProblem(), again()));
