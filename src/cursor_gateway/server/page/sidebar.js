// The list of conversations: pinned first, then by folder or date, each with its state now; searched, filtered, page by page.
import { json } from "./api.js";
import { byId, make, on } from "./dom.js";
import { notifyOf, wantsNotifications } from "./notifications.js";
import { conversationPath } from "./router.js";
import { dayGroup, stateName, when } from "./words.js";

const TYPING_MS = 200;
const BUSY_MS = 3000; // between two looks while something runs
const IDLE_MS = 15_000;
const RETRY_MS = 120_000; // a program that repeats a call does so within this time
const MINE = "people"; // the page, and the gateway's own commands
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
const choices = byId("choices").elements; // whose, grouping
offerClients([localStorage.getItem("whose")]);
for (const name of ["whose", "grouping"]) choices[name].value = localStorage.getItem(name) ?? choices[name].value;
on("choices", "change", ({ target }) => {
	localStorage.setItem(target.name, target.value);
	shown = [];
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
	const query = new URLSearchParams({ limit: before ? 30 : Math.min(Math.max(shown.length, 30), 100), ...(before && { before }), ...(words && { q: words }), ...(choices.whose.value && { client: choices.whose.value }) });
	clearTimeout(looking);
	try {
		const wantsPinned = !before && !words;
		const [page, pinned] = await Promise.all([json(`/v1/conversations?${query}`), wantsPinned ? json("/v1/conversations?pinned=true") : { conversations: [] }]);
		if (turn !== asked) return;
		const first = page.conversations[0]?.id;
		const others = page.conversations.filter((one) => words || !one.pinned);
		shown = before ? [...shown, ...others] : [...pinned.conversations, ...others];
		next = page.next;
		offerClients(shown.map(({ client }) => client));
		more.hidden = !next;
		empty.textContent = shown.length ? "" : words ? "Nothing found." : choices.whose.value === MINE || !choices.whose.value ? "No conversations yet." : "None from this program.";
		byId("filter").classList.toggle("on", choices.whose.value !== MINE);
		show(before && first, Boolean(words));
	} catch (error) {
		if (turn === asked) empty.textContent = error.message;
	}
	if (turn === asked) looking = setTimeout(() => (document.hidden && !wantsNotifications()) || load(null), shown.some(({ isRunning }) => isRunning) ? BUSY_MS : IDLE_MS);
}

/** Programs that are known to have begun one can be chosen. */
function offerClients(names) {
	const known = [...choices.whose].map(({ value }) => value);
	for (const name of new Set(names)) if (name && !known.includes(name) && name !== "cursor-gateway") byId("whose").append(make("label", {}, make("input", { type: "radio", name: "whose", value: name }), `Only ${name}`));
}

/** A program that repeats a call begins a new conversation each time: they are one entry. */
function withoutRepeats(conversations) {
	const first = new Map();
	for (const one of conversations) {
		const { title, client, workspace, created } = one;
		const key = client && !one.pinned ? `${client}\n${workspace}\n${title}` : one.id;
		const known = first.get(key)?.at(-1);
		if (known && Math.abs(Date.parse(known.newest.created) - Date.parse(created)) < RETRY_MS) known.count++;
		else first.set(key, [...(first.get(key) ?? []), { newest: one, count: 1 }]);
	}
	const kept = new Map([...first.values()].flat().map(({ newest, count }) => [newest.id, count]));
	return conversations.filter(({ id }) => kept.has(id)).map((one) => ({ ...one, count: kept.get(one.id) }));
}

/** The last part of a path, with what is before it where two end alike. */
function folderNames(paths) {
	const parts = (path) => path.split("/").filter(Boolean);
	const last = (path) => parts(path).at(-1) ?? path;
	return new Map(paths.map((path) => [path, paths.some((other) => other !== path && last(other) === last(path)) ? parts(path).slice(-2).join("/") : last(path)]));
}

/** Keeps the focus where it was. */
function show(focused = document.activeElement?.dataset?.id, isSearch = Boolean(search.value.trim())) {
	const visible = shown.filter(({ id }) => !hidden.has(id));
	const folders = folderNames([...new Set(visible.map(({ workspace }) => workspace))]);
	const byFolder = choices.grouping.value === "folder" && folders.size > 1; // of one folder, the days tell more
	const groups = new Map();
	for (const one of withoutRepeats(visible)) {
		const [name, title] = isSearch ? ["Found"] : one.pinned ? ["Pinned"] : byFolder ? [folders.get(one.workspace), one.workspace] : [dayGroup(one.updated)];
		const group = groups.get(name) ?? { title, items: [] };
		groups.set(name, group);
		group.items.push(item(one));
	}
	const sorted = [...groups].sort(([one], [other]) => (other === "Pinned") - (one === "Pinned"));
	list.replaceChildren(...sorted.flatMap(([name, { title, items }]) => [make("h2", title ? { title } : {}, name), make("ul", {}, ...items)]));
	mark();
	if (focused) [...list.querySelectorAll("a")].find(({ dataset }) => dataset.id === focused)?.focus({ preventScroll: true });
	const waits = visible.filter(({ isWaiting }) => isWaiting);
	countWaiting(waits.length);
	notifyOf(visible);
}

function item({ id, title, updated, isRunning, isWaiting, client, snippet, count }) {
	const state = isWaiting ? "waiting" : "running";
	const from = (client && client !== "cursor-gateway" ? ` · ${client}` : "") + (count > 1 ? ` · ${count} times` : "");
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
