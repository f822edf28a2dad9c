// Ctrl K: one box that finds what can be done, and conversations.
import { json } from "./api.js";
import { byId, on } from "./dom.js";
import { Listbox, matching } from "./listbox.js";
import { conversationPath } from "./router.js";
import { when } from "./words.js";

const PAUSE_MS = 150;
const FOUND = 8; // conversations

const [dialog, box, nothing] = ["palette", "palette-box", "palette-nothing"].map(byId);
const list = new Listbox(byId("palette-list"), box, choose);
let options = [];
let finds = false; // conversations, too
let timer;
let resolve;

on("palette-box", "input", show);
on("palette-box", "keydown", (event) => {
	if (event.isComposing) return;
	if (event.key === "Enter") choose(list.active);
	else if (!list.press(event)) return;
	event.preventDefault();
});
on("palette", "close", () => (clearTimeout(timer), resolve?.(null), (resolve = null)));
on("palette", "click", ({ target }) => target === dialog && dialog.close());

/**
 * @param offered [{value, label, hint, act}]
 * @param label what the box is for
 * @returns {Promise<object | null>} the option that was chosen; one that acts has done so
 */
export function openPalette(offered, label, findsConversations = false) {
	options = offered;
	finds = findsConversations;
	box.value = "";
	box.placeholder = box.ariaLabel = label;
	dialog.showModal();
	show();
	return new Promise((resolved) => (resolve = resolved));
}

/** To those that are offered: what took a while to find. */
export function addOptions(found) {
	options = [...options, ...found];
	if (dialog.open) show();
}

function show() {
	const words = box.value.trim();
	const known = matching(options, words);
	offer(known, words);
	clearTimeout(timer);
	if (!finds || !words) return;
	timer = setTimeout(async () => {
		const { conversations } = await json(`/v1/conversations?${new URLSearchParams({ q: words, limit: FOUND })}`).catch(() => ({ conversations: [] }));
		if (box.value.trim() !== words || !dialog.open) return;
		offer([...known, ...conversations.map(({ id, title, updated }) => ({ value: id, label: title || "Untitled", hint: `Conversation · ${when(updated)}`, act: () => (location.hash = conversationPath(id)) }))], words);
	}, PAUSE_MS);
}

function offer(found, words) {
	list.show(found);
	nothing.textContent = found.length ? "" : `Nothing matches “${words}”.`;
}

function choose(option) {
	if (!option) return;
	const chosen = resolve;
	resolve = null;
	dialog.close();
	option.act?.();
	chosen?.(option);
}
