// Keeps the end of a growing page in view, as long as its reader is there.

const NEAR = 48; // pixels from the end that still count as there

let isAtEnd = true;
let before = 0;

export function followEnd(element) {
	addEventListener("scroll", look, { passive: true });
	new ResizeObserver(() => isAtEnd && toEnd()).observe(element); // after layout, so that nothing is laid out twice
}

function look() {
	const left = document.documentElement.scrollHeight - innerHeight - scrollY;
	if (scrollY < before && left > 2) isAtEnd = false; // whoever scrolls up wants to read
	else if (scrollY > before && left < NEAR) isAtEnd = true;
	before = scrollY;
}

export function toEnd() {
	isAtEnd = true;
	scrollTo(0, document.documentElement.scrollHeight);
}

export function toElement(element) {
	isAtEnd = false;
	element.scrollIntoView();
	before = scrollY; // which nobody has scrolled
}
