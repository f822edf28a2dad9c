// What the agent did: the files that changed, each with its changes to keep or undo, and the commands it ran.
import { conversationUrl, json, request } from "./api.js";
import { byId, copy, make, on, save } from "./dom.js";
import { DiffView, patchLines, reportedLines } from "./diff.js";
import { chooseEditor, chosenEditor, editorName, editors, editorUrl } from "./editors.js";
import { commitChanges, revertFiles, revertHunk, undoRestore } from "./reverting.js";
import { showProblem } from "./status.js";

const PAUSE_MS = 400; // between two looks at an answer that grows
const SPLIT = "cursor-gateway-split";
const WHOLE = 10_000_000; // lines of context: the whole file

const [turns, panel, button, list] = ["turns", "changes", "show-changes", "changes-list"].map(byId);
const opened = new Map(); // the elements of open files, by path
const views = new Map(); // and their diffs, when these are there
let id = null;
let timer = null;
let shown = "";
let loading;
let counted = {}; // files and lines of the gateway's list, as of a state of the answers
let workspace = "";
let lastRestore = null; // its id, while it can be undone
let current = { path: null, number: -1 }; // the change that was shown last

new MutationObserver(() => (timer ??= setTimeout(look, PAUSE_MS))).observe(turns, { childList: true, subtree: true });
on("show-changes", "click", () => toggle(panel.hidden));
on("hide-changes", "click", () => (toggle(false), button.focus()));
on("changes", "keydown", (event) => {
	if (event.key === "Escape") event.stopPropagation(), toggle(false), button.focus();
	if (event.key === "F7") event.preventDefault(), step(event.shiftKey ? -1 : 1);
});
on("next-change", "click", () => step(1));
on("previous-change", "click", () => step(-1));
on("split-changes", "click", () => setSplit(localStorage.getItem(SPLIT) !== "on"));
on("copy-patch", "click", async ({ currentTarget }) => copy(await patch(), currentTarget).catch(showProblem));
on("save-patch", "click", async () => save(new Blob([await bytes(`${conversationUrl(id)}/changes?dialect=patch`)]), `${id}.patch`));
on("keep-all", "click", () => keep({}));
on("undo-restore", "click", () => undoRestore(id, lastRestore));
on("commit-changes", "click", () => commitChanges(id));
on("editor", "change", ({ target }) => (chooseEditor(target.value), reload()));
byId("editor").append(...editors.map(({ id, name }) => make("option", { value: id }, name)));
byId("editor").value = chosenEditor();
addEventListener("files-changed", () => reload());
setSplit(localStorage.getItem(SPLIT) === "on");

/** @param wanted {path} of a file, {chatId} for all files of a run, {before} for everything since a run */
export async function revert(wanted) {
	const question = wanted.path
		? `Undo the changes of ${wanted.path} that you have not kept?`
		: wanted.before
			? "Restore all files as they were before this turn? This also takes back what commands changed, and all later turns."
			: "Undo what changed in this turn?";
	if (await revertFiles(id, wanted, question)) reload();
}

export function showChanges(conversation) {
	if (conversation === id) return;
	id = conversation;
	current = { path: null, number: -1 };
	button.hidden = true;
	toggle(false);
	look();
}

function toggle(isOpen) {
	panel.hidden = !isOpen;
	button.ariaExpanded = String(isOpen);
	reload();
}

function reload() {
	shown = "";
	if (!panel.hidden || !button.hidden) loading = load();
}

const edits = () => [...turns.querySelectorAll(".file_edit:not([data-state])")];
const commands = () => [...turns.querySelectorAll(".terminal_command:not([data-state=running])")];

const isWorking = () => !byId("stop").hidden;
const stateNow = () => `${id} ${edits().length} ${commands().length} ${isWorking()}`;

function look() {
	timer = null;
	count();
	if (!panel.hidden || (!button.hidden && !isWorking())) load();
}

/** As the gateway's list has it; until that is there, as the agent has reported it. */
function count() {
	const runs = commands().length;
	const sum = (name) => edits().reduce((total, { dataset }) => total + Number(dataset[name]), 0);
	const reported = { files: new Set(edits().map(({ dataset }) => dataset.path)).size, added: sum("added"), removed: sum("removed") };
	const { files, added, removed } = counted.state === stateNow() ? counted : reported;
	button.hidden = !reported.files && !runs;
	const [number, word] = files || !runs ? [files, "file"] : [runs, "command"];
	byId("changes-count").replaceChildren(`${number} ${word}${number === 1 ? "" : "s"} `, counts(added, removed));
}

function counts(added, removed) {
	const label = (count, what) => ({ "aria-label": `${count} line${count === 1 ? "" : "s"} ${what}` });
	const lines = [...(added ? [make("ins", label(added, "added"), `+${added}`), " "] : []), ...(removed ? [make("del", label(removed, "removed"), `−${removed}`)] : [])];
	return make("span", { class: "counts" }, ...lines);
}

// --- the list ---

async function load() {
	const state = stateNow();
	if (state === shown || !id) return;
	shown = state;
	try {
		const changes = await json(`${conversationUrl(id)}/changes`);
		if (state !== shown) return;
		workspace = changes.workspace;
		lastRestore = changes.undo;
		byId("undo-restore").hidden = !lastRestore;
		const sum = (name) => changes.files.reduce((total, file) => total + linesOf(file)[name], 0);
		counted = { state, files: changes.files.length, added: sum("added"), removed: sum("removed") };
		count();
		if (!panel.hidden) show(changes, isWorking());
	} catch (error) {
		if (!panel.hidden) showProblem(error);
	}
}

function show({ files, notes }, isWorking) {
	const open = new Map([...views].map(([path, view]) => [path, view.element.scrollTop]));
	opened.clear();
	views.clear();
	const canAct = !isWorking && files.some(({ version }) => version);
	for (const name of ["keep-all", "commit-changes"]) byId(name).disabled = !canAct;
	const details = files.map((file) => fileDetails(file, isWorking));
	const title = files.length ? [make("h3", {}, `${files.length} file${files.length > 1 ? "s" : ""} changed`)] : [];
	list.replaceChildren(...title, ...notes.map((note) => make("p", { class: "note" }, note)), ...details, ...commandList());
	files.forEach((file, place) => {
		if (files.length === 1 || open.has(file.path)) openFile(details[place], file, isWorking, open.get(file.path)).catch(showProblem);
	});
}

function linesOf({ added, removed, diffs }) {
	const sum = (name) => diffs.reduce((total, diff) => total + (diff[name] ? diff[name].split("\n").length : 0), 0);
	return { added: added ?? sum("newString"), removed: removed ?? sum("oldString") };
}

function fileDetails(file, isWorking) {
	const { path, operation, isKept, isEdit } = file;
	const { added, removed } = linesOf(file);
	const notes = [{ create: "new", delete: "deleted", rename: "renamed" }[operation], isKept && "kept", !isEdit && "by a command"];
	const summary = make("summary", {}, make("code", { title: path }, path), make("span", { class: "note" }, notes.filter(Boolean).join(", ")), counts(added, removed));
	const details = make("details", { "data-path": path }, summary);
	details.addEventListener("toggle", () => {
		if (details.open) openFile(details, file, isWorking).catch(showProblem);
		else opened.delete(path), views.delete(path);
	});
	return details;
}

async function openFile(details, file, isWorking, scrollTop = 0) {
	const { path, version, canRevert, isKept, diffs, note, operation } = file;
	if (opened.get(path) === details) return;
	opened.set(path, details);
	const isOwn = version && !isWorking;
	const actions = (number) =>
		isOwn && !isKept
			? [
					act("Keep", `keep ${number}`, `Keep change ${number + 1} of ${path}`, () => keep({ path, hunks: [number], version })),
					...(canRevert ? [act("Undo", `undo ${number}`, `Undo change ${number + 1} of ${path}`, () => undo({ path, hunks: [number], version }))] : []),
				]
			: [];
	const lines = version ? patchLines(await patch(path)) : reportedLines(diffs);
	if (opened.get(path) !== details) return; // another list came meanwhile
	const view = new DiffView(`Changes of ${path}`, lines, panel.classList.contains("split"), actions);
	views.set(path, view);
	const row = make("p", { class: "row file-actions" });
	if (isOwn && !isKept) row.append(act("Keep file", "keep", `Keep file ${path}`, () => keep({ path })));
	if (isOwn && canRevert) row.append(act("Undo file", "undo", `Undo file ${path}`, () => revert({ path })));
	if (version) row.append(act("Copy patch", "patch", `Copy patch of ${path}`, async ({ currentTarget }) => copy(await patch(path, 3), currentTarget).catch(showProblem)));
	if (version && operation !== "delete") row.append(make("a", { href: editorUrl(workspace, path, file.hunks[0]?.newStart ?? 1) }, `Open in ${editorName()}`));
	const nothing = lines.length ? [] : [make("p", { class: "note" }, isKept ? "You have kept all changes of this file." : "No lines to show.")];
	const about = note ? [make("p", { class: "note" }, note)] : [];
	const changed = isOwn && !isKept && !canRevert && !note ? [make("p", { class: "note" }, "The file was changed since the agent left it, so its changes cannot be undone one by one.")] : [];
	details.replaceChildren(details.querySelector("summary"), row, ...about, ...changed, ...(lines.length ? [view.element] : nothing));
	details.open = true;
	view.element.scrollTop = scrollTop;
	if (version && lines.length) json(changesUrl({ dialect: "colours", path, context: WHOLE, open: "true" })).then((sides) => view.colour(sides), () => {}); // it can be read without them
}

function act(text, key, label, does) {
	const made = make("button", { type: "button", class: "quiet", "aria-label": label, "data-key": key }, text);
	made.addEventListener("click", does);
	return made;
}

const changesUrl = (query) => `${conversationUrl(id)}/changes?${new URLSearchParams(query)}`;
const patch = async (path, context = WHOLE) => {
	return (await request(changesUrl({ dialect: "patch", ...(path && { path, context, open: "true" }) }))).text();
};
const bytes = async (url) => (await request(url)).blob();

async function keep(wanted) {
	try {
		await json(`${conversationUrl(id)}/keep`, { method: "POST", body: wanted });
	} catch (error) {
		showProblem(error);
	}
	reload();
}

async function undo(wanted) {
	await revertHunk(id, wanted);
	reload();
}

// --- from change to change ---

function setSplit(isSplit) {
	localStorage.setItem(SPLIT, isSplit ? "on" : "off");
	panel.classList.toggle("split", isSplit);
	byId("split-changes").ariaPressed = String(isSplit);
	for (const view of views.values()) view.setSplit(isSplit);
}

/** To the next change, or the one before, also in another file. */
async function step(by) {
	await loading;
	const files = [...list.querySelectorAll("details[data-path]")];
	if (!files.length) return;
	const place = Math.max(0, files.findIndex(({ dataset }) => dataset.path === current.path));
	const view = views.get(files[place].dataset.path);
	const number = current.path === null ? 0 : current.number + by;
	if (view?.count && number >= 0 && number < view.count) return showChange(files[place], view, number);
	const next = files[(place + (current.path === null ? 0 : by) + files.length) % files.length];
	next.open = true;
	for (let waits = 0; waits < 50 && !views.get(next.dataset.path)?.count && !next.querySelector(".note:not(summary *)"); waits++) await new Promise((go) => setTimeout(go, 40));
	const found = views.get(next.dataset.path);
	showChange(next, found, by > 0 ? 0 : Math.max(0, (found?.count ?? 1) - 1));
}

function showChange(details, view, number) {
	current = { path: details.dataset.path, number };
	details.scrollIntoView({ block: "nearest" });
	view?.show(number);
	byId("change-place").textContent = view?.count ? `${number + 1} of ${view.count}` : "";
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
