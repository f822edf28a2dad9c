// The list of conversations: the newest first, searched, page by page.
import { json } from "./api.js";
import { byId, make, on } from "./dom.js";
import { conversationPath } from "./router.js";
import { stateName, when } from "./words.js";

const TYPING_MS = 200;
const [sidebar, list, search, more, empty] = ["sidebar", "conversations", "search", "more", "no-conversations"].map(byId);

let current;
let next;
let asked = 0; // counts, so that a late reply does not replace a newer one
let typing;

on("search", "input", () => {
	clearTimeout(typing);
	typing = setTimeout(refresh, TYPING_MS);
});
on("more", "click", () => load(next));
on("sidebar", "click", (event) => event.target.closest("a") && sidebar.matches(":popover-open") && sidebar.hidePopover());
document.addEventListener("visibilitychange", () => document.hidden || refresh());

export function focusSearch() {
	if (!search.checkVisibility()) sidebar.showPopover();
	search.focus();
	search.select();
}

export function mark(id = current) {
	current = id;
	for (const link of list.querySelectorAll("a")) link.ariaCurrent = link.dataset.id === id ? "page" : null;
}

export const refresh = () => load(null);

async function load(before) {
	const turn = ++asked;
	const words = search.value.trim();
	const query = new URLSearchParams({ limit: 30, ...(before && { before }), ...(words && { q: words }) });
	try {
		const page = await json(`/v1/conversations?${query}`);
		if (turn !== asked) return;
		const focused = document.activeElement?.dataset.id;
		const items = page.conversations.map(item);
		if (before) list.append(...items);
		else list.replaceChildren(...items);
		const place = before ? items[0] : focused && items.find((item) => item.firstChild.dataset.id === focused);
		place?.firstChild.focus();
		next = page.next;
		more.hidden = !next;
		empty.textContent = list.firstChild ? "" : words ? "Nothing was found." : "No conversations yet.";
		mark();
	} catch (error) {
		if (turn === asked) empty.textContent = error.message;
	}
}

function item({ id, title, updated, isRunning, snippet }) {
	const note = isRunning ? make("span", { class: "run-state", "data-run": "running" }, stateName("running")) : make("time", {}, when(updated));
	const link = make("a", { href: conversationPath(id), "data-id": id, title }, make("span", {}, title || "Untitled"), note);
	if (snippet) link.append(make("small", {}, snippet));
	return make("li", {}, link);
}
