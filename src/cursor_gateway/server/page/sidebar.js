// The list of conversations: pinned first, then by date, each with its state now; searched, page by page.
import { json } from "./api.js";
import { byId, make, on } from "./dom.js";
import { notifyOf, wantsNotifications } from "./notifications.js";
import { conversationPath } from "./router.js";
import { dayGroup, stateName, when } from "./words.js";

const TYPING_MS = 200;
const BUSY_MS = 3000; // between two looks while something runs
const IDLE_MS = 15_000;
const [sidebar, list, search, more, empty] = ["sidebar", "conversations", "search", "more", "no-conversations"].map(byId);

let current;
let shown = [];
let next;
let asked = 0; // counts, so that a late reply does not replace a newer one
let typing;
let looking;
const hidden = new Set(); // deleted, and can be undone

on("search", "input", () => {
	clearTimeout(typing);
	typing = setTimeout(refresh, TYPING_MS);
});
on("search", "keydown", ({ key }) => {
	if (key !== "Escape" || !search.value) return;
	search.value = "";
	refresh();
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

export function hideConversation(id) {
	hidden.add(id);
	show();
}

export function unhideConversation(id) {
	hidden.delete(id);
	refresh();
}

async function load(before) {
	const turn = ++asked;
	const words = search.value.trim();
	const query = new URLSearchParams({ limit: before ? 30 : Math.min(Math.max(shown.length, 30), 100), ...(before && { before }), ...(words && { q: words }) });
	clearTimeout(looking);
	try {
		const wantsPinned = !before && !words;
		const [page, pinned] = await Promise.all([json(`/v1/conversations?${query}`), wantsPinned ? json("/v1/conversations?pinned=true") : { conversations: [] }]);
		if (turn !== asked) return;
		const first = page.conversations[0]?.id;
		const others = page.conversations.filter((one) => words || !one.pinned);
		shown = before ? [...shown, ...others] : [...pinned.conversations, ...others];
		next = page.next;
		more.hidden = !next;
		empty.textContent = shown.length ? "" : words ? "Nothing found." : "No conversations yet.";
		show(before && first, Boolean(words));
	} catch (error) {
		if (turn === asked) empty.textContent = error.message;
	}
	if (turn === asked) looking = setTimeout(() => (document.hidden && !wantsNotifications()) || load(null), shown.some(({ isRunning }) => isRunning) ? BUSY_MS : IDLE_MS);
}

/** Keeps the focus where it was. */
function show(focused = document.activeElement?.dataset?.id, isSearch = Boolean(search.value.trim())) {
	const visible = shown.filter(({ id }) => !hidden.has(id));
	const groups = new Map();
	for (const one of visible) {
		const name = isSearch ? "Found" : one.pinned ? "Pinned" : dayGroup(one.updated);
		groups.set(name, [...(groups.get(name) ?? []), item(one)]);
	}
	const sorted = [...groups].sort(([one], [other]) => (other === "Pinned") - (one === "Pinned"));
	list.replaceChildren(...sorted.flatMap(([name, items]) => [make("h2", {}, name), make("ul", {}, ...items)]));
	mark();
	if (focused) [...list.querySelectorAll("a")].find(({ dataset }) => dataset.id === focused)?.focus({ preventScroll: true });
	const waits = visible.filter(({ isWaiting }) => isWaiting);
	countWaiting(waits.length);
	notifyOf(visible);
}

function item({ id, title, updated, isRunning, isWaiting, client, snippet }) {
	const state = isWaiting ? "waiting" : "running";
	const from = client ? ` · ${client}` : "";
	const note = isRunning || isWaiting ? make("span", { class: "run-state", "data-run": state }, stateName(state) + from) : make("time", {}, when(updated) + from);
	const link = make("a", { href: conversationPath(id), "data-id": id, title: title || "Untitled" }, make("span", {}, title || "Untitled"), note);
	if (snippet && snippet !== title) link.append(make("small", {}, snippet));
	return make("li", {}, link);
}

// --- the title of the window: how many wait for somebody, and what is shown ---

let waiting = 0;
let name = "";

export function setWindowTitle(title = name) {
	name = title;
	document.title = `${waiting ? `(${waiting}) ` : ""}${name} · cursor-gateway`;
}

function countWaiting(count) {
	waiting = count;
	setWindowTitle();
}
