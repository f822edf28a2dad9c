// What the agent did: the files it changed, each with its combined diff, and the commands it ran.
import { conversationUrl, json, request } from "./api.js";
import { ask, byId, make, on, parsed } from "./dom.js";
import { hideProblem, showNote, showProblem } from "./status.js";

const PAUSE_MS = 400; // between two looks at an answer that grows

const [turns, panel, button, list] = ["turns", "changes", "show-changes", "changes-list"].map(byId);
let id = null;
let timer = null;
let shown = "";

new MutationObserver(() => (timer ??= setTimeout(look, PAUSE_MS))).observe(turns, { childList: true, subtree: true });
on("show-changes", "click", () => toggle(panel.hidden));
on("hide-changes", "click", () => (toggle(false), button.focus()));
on("changes", "keydown", (event) => event.key === "Escape" && (event.stopPropagation(), toggle(false), button.focus()));

on("changes-list", "click", ({ target }) => {
	const { path } = target.closest("[data-revert]")?.closest("details").dataset ?? {};
	if (path) revert({ path });
});

/** @param wanted {path} of a file, or {chatId} for all files of a run */
export async function revert(wanted) {
	const what = wanted.path ? `Revert ${wanted.path} to its text before this conversation?` : "Revert all files that the agent changed in this turn?";
	byId("revert-text").textContent = what;
	if ((await ask(byId("revert-dialog"))) !== "ok") return;
	hideProblem();
	try {
		const { files } = await json(`${conversationUrl(id)}/revert`, { method: "POST", body: wanted });
		showNote(`Reverted: ${files.map((file) => `\`${file.path}\`${file.action === "deleted" ? " (deleted, because the agent had created it)" : ""}`).join(", ")}.`);
	} catch (error) {
		showProblem(error);
	}
	shown = "";
	if (!panel.hidden) load();
}

export function showChanges(conversation) {
	if (conversation === id) return;
	id = conversation;
	toggle(false);
	look();
}

function toggle(isOpen) {
	panel.hidden = !isOpen;
	button.ariaExpanded = String(isOpen);
	shown = "";
	if (isOpen) load();
}

const edits = () => [...turns.querySelectorAll(".file_edit:not([data-state])")];
const commands = () => [...turns.querySelectorAll(".terminal_command:not([data-state=running])")];

function look() {
	timer = null;
	const files = new Set(edits().map(({ dataset }) => dataset.path)).size;
	const runs = commands().length;
	const sum = (name) => edits().reduce((total, { dataset }) => total + Number(dataset[name]), 0);
	button.hidden = !files && !runs;
	const parts = [files ? `${files} file${files > 1 ? "s" : ""}` : "", !files && runs ? `${runs} command${runs > 1 ? "s" : ""}` : ""];
	const [added, removed] = [sum("added"), sum("removed")];
	const lines = [...(added ? [make("ins", {}, `+${added}`), " "] : []), ...(removed ? [make("del", {}, `−${removed}`)] : [])];
	byId("changes-count").replaceChildren(parts.filter(Boolean).join(", "), " ", make("span", { class: "counts" }, ...lines));
	if (!panel.hidden) load();
}

async function load() {
	const state = `${id} ${edits().length} ${commands().length}`;
	if (state === shown || !id) return;
	shown = state;
	try {
		const response = await request(`${conversationUrl(id)}/changes?dialect=html`);
		const content = parsed(await response.text());
		if (state !== shown) return;
		const open = new Set([...list.querySelectorAll("details[data-path][open]")].map(({ dataset }) => dataset.path));
		const files = content.querySelectorAll("details[data-path]");
		for (const file of files) file.open = files.length === 1 || open.has(file.dataset.path);
		list.replaceChildren(content, ...commandList());
	} catch (error) {
		showProblem(error);
	}
}

function commandList() {
	const all = commands();
	if (!all.length) return [];
	const items = all.map((article) => {
		const { exit } = article.dataset;
		const isGood = exit === "0";
		const state = article.querySelector(".state")?.textContent ?? (exit === "-1" ? "no exit status" : `exit ${exit}`);
		const link = make("a", { href: "#" }, make("code", {}, article.querySelector(".command code").textContent), make("span", { class: isGood ? "good" : "bad" }, state));
		link.addEventListener("click", (event) => {
			event.preventDefault();
			if (getComputedStyle(panel).position === "fixed") toggle(false); // it covers the conversation
			article.scrollIntoView({ block: "center" });
		});
		return make("li", {}, link);
	});
	return [make("h3", {}, `${all.length} command${all.length > 1 ? "s" : ""}`), make("ul", {}, ...items)];
}
