// Puts the page together: routes, keys, colours, menus, and which source is live.
import { forgetKey, hasKey, json } from "./api.js";
import { Conversation } from "./conversation.js";
import { ask, byId, on } from "./dom.js";
import { DEMO, examplesFor } from "./examples.js";
import { addOptions, openPalette } from "./palette.js";
import { showPermissions } from "./permissions.js";
import { chooseFolder, chooseMode, chooseModel, folder, folderOptions, focusPrompt, isModel, loadModels, modelOptions, modeOptions, setDefaults, setPromptState, setUpPrompt, showExamples } from "./prompt.js";
import { route } from "./router.js";
import { showRuns } from "./runs.js";
import { focusSearch, mark, refresh } from "./sidebar.js";
import { showProblem } from "./status.js";

const conversation = new Conversation({ isModel, models: modelOptions, onChange: refresh, onState: setPromptState });
let isDemo = false;
setUpPrompt((asked) => conversation.send(asked), () => conversation.stop(), offerExamples, () => conversation.prompts);

const PAGES = { runs: { link: "to-runs", show: showRuns }, permissions: { link: "to-permissions", show: showPermissions } };

function show() {
	const { view, id, answer, document: linked } = route();
	byId("conversation").hidden = view in PAGES;
	for (const [name, { link }] of Object.entries(PAGES)) {
		byId(name).hidden = view !== name;
		byId(link).ariaCurrent = view === name ? "page" : null;
	}
	mark(id ?? null);
	if (view in PAGES) PAGES[view].show();
	else if (view === "conversation") conversation.open(id, answer, linked);
	else startNew();
}

function startNew() {
	conversation.startNew();
	focusPrompt();
}

/** Which source is live, and what it uses by default. */
async function look() {
	try {
		const { source, version, workspace, model } = await json("/health");
		for (const badge of document.querySelectorAll(".source")) {
			badge.textContent = source.demo ? "demo" : "";
			badge.title = source.detail;
			badge.classList.toggle("demo", source.demo);
		}
		byId("about").textContent = `cursor-gateway ${version}. Source: ${source.detail || source.name}.`;
		byId("demo").hidden = !source.demo;
		isDemo = source.demo;
		setDefaults(workspace, model);
	} catch (error) {
		showProblem(error, look);
	}
	offerExamples();
}

async function offerExamples() {
	if (isDemo) return showExamples(DEMO);
	const query = new URLSearchParams({ q: "", ...(folder() && { workspace: folder() }) });
	const { files } = await json(`/v1/workspace/files?${query}`).catch(() => ({}));
	showExamples(examplesFor(files));
}

// --- colours ---

const root = document.documentElement;
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function switchTheme() {
	const isDark = root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches;
	localStorage.setItem("theme", (root.dataset.theme = isDark ? "light" : "dark"));
}

on("theme", "click", switchTheme);

// --- menus: one is open at a time, until something is chosen ---

const menus = (but) => [...document.querySelectorAll(".menu[open]")].filter((menu) => menu !== but);

document.addEventListener(
	"toggle",
	({ target: menu }) => {
		if (!menu.matches(".menu[open]")) return;
		menu.classList.remove("to-right", "downwards");
		const { left, top } = menu.lastElementChild.getBoundingClientRect();
		menu.classList.toggle("to-right", left < 0);
		menu.classList.toggle("downwards", top < 0);
	},
	true,
);

document.addEventListener("click", ({ target }) => {
	const inside = target.closest(".menu");
	for (const menu of menus(inside)) menu.open = false;
	if (target.closest(".menu button")) setTimeout(() => (inside.open = false), target.closest("[data-action]") ? 900 : 0);
});

// --- keys ---

const KEYS = { "/": focusSearch, n: () => byId("new").click(), "?": help };

addEventListener("keydown", (event) => {
	const { key, target } = event;
	if (event.isComposing || document.querySelector("dialog[open], :popover-open")) return;
	if ((event.ctrlKey || event.metaKey) && key === "k") return event.preventDefault(), findAnything();
	if (event.ctrlKey || event.metaKey || event.altKey) return;
	if (key === "Escape") return escape(target);
	const isTyping = target.matches("input, textarea, [role=listbox]") && !(key === "?" && target === byId("message") && !target.value);
	if (!(key in KEYS) || isTyping) return;
	event.preventDefault();
	KEYS[key]();
});

/** Closes a menu; else stops the agent; else leaves the prompt, so that the other keys work. */
function escape(target) {
	const [open] = menus();
	if (open) {
		open.open = false;
		open.querySelector("summary").focus();
	} else if (target !== byId("search") && conversation.stop()) return;
	else target.blur();
}

function findAnything() {
	const to = (value, label, hint, act) => ({ value, label, hint, act });
	const pages = [
		to("new", "New conversation", "n", () => byId("new").click()),
		to("search", "Search conversations", "/", focusSearch),
		to("runs", "Runs", "Page", () => (location.hash = "#/runs")),
		to("permissions", "Permissions", "Page", () => (location.hash = "#/permissions")),
		to("theme", "Switch between light and dark", "Theme", switchTheme),
		to("shortcuts", "Keyboard shortcuts", "?", help),
		to("api", "API reference", "Page", () => (location.href = "/docs")),
	];
	const modes = modeOptions().map(({ value, label }) => to(value, `Mode: ${label}`, "", () => (chooseMode(value), focusPrompt())));
	const models = modelOptions().map(({ value, label, hint }) => to(value, `Model: ${label}`, hint, () => (chooseModel(value), focusPrompt())));
	openPalette([...pages, ...modes, ...models], "Find a command, a model, a folder or a conversation", true);
	if (!conversation.isNew) return; // it stays where it began
	folderOptions().then((found) => addOptions(found.map(({ value, label, hint }) => to(value, `Folder: ${label}`, hint, () => (chooseFolder(value), focusPrompt())))));
}

async function help() {
	byId("forget").hidden = !hasKey();
	if ((await ask(byId("help-dialog"))) !== "forget") return;
	await forgetKey();
	location.reload();
}

on("help", "click", help);
on("skip", "click", (event) => {
	event.preventDefault(); // the address is the route's
	byId("message").focus();
});

// A link is followed at once: `hashchange` comes later, and would take away what somebody has typed by then.
document.addEventListener("click", (event) => {
	const link = event.target.closest('a[href^="#/"]');
	if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
	event.preventDefault();
	if (link.hash !== location.hash) history.pushState(null, "", link.hash);
	show();
});

addEventListener("hashchange", show);
show();
look();
refresh();
loadModels().catch(() => {}); // without a list, the gateway's own choice is offered
