// The prompt box: what to ask, with which files, model and mode, and where.
import { json } from "./api.js";
import { attached, clearAttachments, openAttachments, setUpAttachments, withTexts } from "./attachments.js";
import { isCompleting, setUpCompletion } from "./completion.js";
import { byId, make, on } from "./dom.js";
import { draft, keepDraft, keepRecent, recent } from "./drafts.js";
import { closest } from "./listbox.js";
import { Picker } from "./picker.js";
import { hideProblem, showNote, showProblem } from "./status.js";

const [message, send] = ["message", "send"].map(byId);
const MODES = [
	{ value: "agent", label: "Agent", hint: "Edits files and runs commands" },
	{ value: "plan", label: "Plan", hint: "Makes a plan first; changes nothing" },
	{ value: "ask", label: "Ask", hint: "Answers questions; changes nothing" },
	{ value: "debug", label: "Debug", hint: "Investigates a problem step by step" },
];
const FOLDER = "Default folder of the gateway";
const MOST_RECALLED = 5000; // characters of a prompt

const mode = new Picker(byId("mode"), { label: "Mode", picture: "agent" });
const model = new Picker(byId("model"), { label: "Model", search: "Search models", find: (words) => closest(byRecency(model.options), words), onChange: (name) => keepRecent("model", name), nothing: "No model matches." });
const workspace = new Picker(byId("workspace"), { label: "Folder", picture: "folder", search: "Folder path", find: folders, onChange: chooseFolder, nothing: "No folder matches. Type a whole path." });

let onFolder;
let sentBefore; // what was asked in the conversation that is shown
let recalled = -1; // how far back in it
let chosenFolder = ""; // of the next new conversation
let models = [];
let defaultModel = "default";
let isSending = false;
let isFixed = false;
let state = { isRunning: false, isWaiting: false };

/**
 * @param start is given {message, images, model, mode, workspace} and tells whether it was taken
 * @param changedFolder is called when another folder is chosen
 * @param prompts tells what was asked in the conversation, the oldest first
 */
export function setUpPrompt(start, stop, changedFolder, prompts) {
	onFolder = changedFolder;
	sentBefore = prompts;
	mode.options = MODES;
	mode.set("agent");
	model.options = [{ value: "", label: "default" }];
	workspace.options = [{ value: "", label: FOLDER }];
	setUpAttachments();
	setUpCompletion(message, { folder: () => workspace.value, commands });
	const submit = async (change) => {
		const text = message.value.trim();
		if (isSending || (!text && !attached().length)) return;
		if (state.isWaiting) return showNote("Not sent: the agent is waiting for your answer above. Answer it, or stop the run first.");
		const id = state.id;
		const asked = { message: withTexts(text), images: attached().filter(({ url }) => url).map(({ url }) => url), model: model.value, mode: mode.value, workspace: workspace.value, ...change };
		isSending = send.disabled = true;
		if (await start(asked)) {
			clearAttachments(); // what was refused stays, to be sent again
			keepDraft(id, "");
			if (text.length < MOST_RECALLED) keepRecent("prompt", text, 30);
			recalled = -1;
			if (message.value.trim() === text) message.value = draft(state.id);
		}
		isSending = send.disabled = false;
		openAttachments(state.id);
		fit();
		focusPrompt();
	};
	on("prompt", "submit", (event) => (event.preventDefault(), submit()));
	on("message", "keydown", (event) => {
		if (event.key !== "Enter" || event.shiftKey || event.isComposing || isCompleting()) return;
		event.preventDefault();
		submit();
	});
	on("message", "keydown", (event) => {
		if (event.key.startsWith("Arrow") && !event.shiftKey && !event.altKey && !isCompleting() && recall(event.key)) event.preventDefault();
	});
	on("message", "input", () => (fit(), (recalled = -1), keepDraft(state.id, message.value)));
	for (const picker of ["mode", "model", "workspace"]) on(picker, "click", ({ target }) => target.closest("[role=option]") && focusPrompt());
	on("stop", "click", stop);
	on("suggestions", "click", ({ target }) => {
		const suggested = target.closest("button");
		if (!suggested) return;
		message.value = suggested.dataset.ask;
		mode.set(suggested.dataset.mode); // it stays chosen: a plan is not followed by edits by surprise
		submit();
	});
}

/** Not where a keyboard would cover the page. */
export const focusPrompt = () => matchMedia("(hover: hover)").matches && message.focus();

/** @param state {id, isRunning, isWaiting, workspace} of the conversation that is shown */
export function setPromptState({ id, isRunning, isWaiting, workspace: bound }) {
	if (id !== state.id && !isSending) {
		message.value = draft(id);
		openAttachments(id);
	}
	state = { id, isRunning, isWaiting };
	byId("stop").hidden = !isRunning;
	send.ariaLabel = isRunning ? "Queue" : "Send";
	send.title = isRunning ? "Send when the agent is done (Enter)" : "Send (Enter)";
	if (bound) setFolder(bound);
	else if (isFixed && id === null) workspace.set(chosenFolder);
	workspace.isFixed = isFixed = id !== null; // a conversation stays where it began
	fit();
}

function setFolder(path) {
	if (!workspace.options.some(({ value }) => value === path)) workspace.options = [...workspace.options, folderOption(path)];
	workspace.set(path);
}

export function setDefaults(folder, name) {
	const [, ...others] = workspace.options;
	workspace.options = [{ value: "", label: folder ?? FOLDER, short: folder ? lastPart(folder) : "Default folder", hint: "Default" }, ...others];
	byId("about-folder").textContent = folder ?? "the gateway's default";
	defaultModel = name ?? "default";
	showModels();
}

/** The default first, and not again below. */
function showModels() {
	const named = models.find(({ id }) => id === defaultModel)?.name || defaultModel;
	const others = models.filter(({ id }) => id !== defaultModel).map(({ id, name }) => ({ value: id, label: name || id, hint: name && name !== id ? id : "" }));
	model.options = [{ value: "", label: named, hint: "Default" }, ...others];
	byId("about-model").textContent = named;
}

export async function loadModels() {
	const { data } = await json("/v1/models");
	models = data.filter((entry) => !entry.alias_of);
	showModels();
}

export const modelOptions = () => byRecency(model.options);
export function chooseModel(name) {
	model.set(name);
	keepRecent("model", name);
}
export const chooseMode = (name) => mode.set(name);
export const modeOptions = () => MODES;
export const folderOptions = () => folders("");
export const isModel = (name) => models.some(({ id }) => id === name);
export const folder = () => workspace.value;

// --- folders and commands ---

async function folders(words) {
	const query = new URLSearchParams({ q: words });
	const { folders: found } = await json(`/v1/workspace/folders?${query}`).catch(() => ({ folders: [] }));
	const [usual] = workspace.options;
	const used = recent("folder").filter((path) => path !== usual.label);
	const typed = words.trim() && !found.includes(words.trim()) ? [{ value: words.trim(), label: words.trim(), hint: "Use this path" }] : [];
	if (words) return [...found.map((path) => folderOption(path)), ...typed];
	const others = found.filter((path) => path !== usual.label && !used.includes(path));
	return [usual, ...used.map((path) => folderOption(path, "Recent")), ...others.map((path) => folderOption(path))];
}

/** Checked now: who has written a long prompt must not hear only then that the folder cannot be used. */
export async function chooseFolder(path) {
	const before = chosenFolder;
	if (path) {
		try {
			await json(`/v1/workspace/files?${new URLSearchParams({ q: "", workspace: path })}`);
			hideProblem();
			keepRecent("folder", path);
		} catch (error) {
			workspace.options = workspace.options.filter(({ value }) => value !== path);
			workspace.set(before);
			return showProblem(error);
		}
	}
	chosenFolder = path;
	setFolder(path);
	onFolder?.(path);
}

/** The recent ones after the default. */
function byRecency([usual, ...others]) {
	const used = recent("model").flatMap((name) => others.filter(({ value }) => value === name));
	return [usual, ...used.map((one) => ({ ...one, hint: ["Recent", one.hint].filter(Boolean).join(" · ") })), ...others.filter((one) => !used.includes(one))];
}

/** Arrow up in an empty prompt brings back what was sent before. @returns {boolean} whether it did */
function recall(key) {
	const step = { ArrowUp: 1, ArrowDown: -1 }[key];
	if (!step || (message.value && recalled < 0)) return false;
	const here = sentBefore().reverse();
	const prompts = here.length ? here : recent("prompt");
	const next = recalled + step;
	if (next < -1 || next >= prompts.length) return recalled >= 0;
	recalled = next;
	message.value = prompts[next] ?? "";
	keepDraft(state.id, message.value);
	fit();
	return true;
}

const lastPart = (path) => path.split("/").filter(Boolean).at(-1) ?? path;
const folderOption = (path, hint = "") => ({ value: path, label: path, short: lastPart(path), hint });

function commands() {
	const modes = MODES.map(({ value, hint }) => ({ value: `/${value}`, label: `/${value}`, hint, act: () => mode.set(value) }));
	return [...modes, { value: "/new", label: "/new", hint: "Start a new conversation", act: () => byId("new").click() }];
}

// --- examples ---

/** @param examples [{ask, mode, note}] */
export function showExamples(examples) {
	byId("suggestions").replaceChildren(
		...examples.map(({ ask, mode, note }) => make("li", {}, make("button", { type: "button", "data-ask": ask, "data-mode": mode }, ask, make("small", {}, note)))),
	);
}

/** For browsers whose text areas do not grow by themselves. */
function fit() {
	if (CSS.supports("field-sizing", "content")) return;
	message.style.height = "auto";
	message.style.height = `${message.scrollHeight}px`;
}
