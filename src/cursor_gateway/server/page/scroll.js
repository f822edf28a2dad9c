// Keeps in view what a link leads to, or the end of a growing page, until its reader moves.

const NEAR = 48; // pixels from the end that still count as there

let isAtEnd = true;
let before = 0;
let target = null;

export function followEnd(element) {
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
}

export function toEnd() {
	isAtEnd = true;
	target = null;
	scrollTo(0, document.documentElement.scrollHeight);
}

export function toElement(element) {
	isAtEnd = false;
	target = element;
	element.scrollIntoView();
}
