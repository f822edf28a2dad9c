// Keeps in view what a link leads to, or the end of a growing page, until its reader moves.
import { byId } from "./dom.js";

const NEAR = 48; // pixels from the end that still count as there

const FAR = 300; // from where a button leads to the end

let isAtEnd = true;
let before = 0;
let target = null;

/** And shows the button that leads to the end, while it is away. */
export function followEnd(element) {
	byId("to-end").addEventListener("click", toEnd);
	addEventListener("scroll", look, { passive: true });
	for (const sign of ["wheel", "touchmove", "keydown"]) addEventListener(sign, () => (target = null), { passive: true });
	// After layout: nothing is laid out twice.
	new ResizeObserver(() => (isAtEnd ? toEnd() : target?.scrollIntoView())).observe(element);
}

function look() {
	const left = document.documentElement.scrollHeight - innerHeight - scrollY;
	if (target) return;
	if (scrollY < before && left > 2) isAtEnd = false; // who scrolls up, reads
	else if (left < NEAR) isAtEnd = true;
	before = scrollY;
	byId("to-end").hidden = isAtEnd || left < FAR;
}

export function toEnd() {
	isAtEnd = true;
	target = null;
	scrollTo(0, document.documentElement.scrollHeight);
	byId("to-end").hidden = true;
}

export function toElement(element) {
	isAtEnd = false;
	target = element;
	element.scrollIntoView();
}
