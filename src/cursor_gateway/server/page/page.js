// Puts the page together: routes, keys, colours, and which source is live.
import { forgetKey, hasKey, json } from "./api.js";
import { Conversation } from "./conversation.js";
import { ask, byId, on } from "./dom.js";
import { focusPrompt, isModel, loadModels, setDefaults, setPromptState, setUpPrompt } from "./prompt.js";
import { route } from "./router.js";
import { showRuns } from "./runs.js";
import { focusSearch, mark, refresh } from "./sidebar.js";
import { showProblem } from "./status.js";

const conversation = new Conversation({ isModel, onChange: refresh, onState: setPromptState });
setUpPrompt((asked) => conversation.send(asked), () => conversation.stop());

function show() {
	const { view, id, answer } = route();
	byId("conversation").hidden = view === "runs";
	byId("runs").hidden = view !== "runs";
	byId("to-runs").ariaCurrent = view === "runs" ? "page" : null;
	mark(id ?? null);
	if (view === "runs") showRuns();
	else if (view === "conversation") conversation.open(id, answer);
	else startNew();
}

function startNew() {
	conversation.startNew();
	focusPrompt();
}

/** Which source is live, and what it does when it is not told. */
async function look() {
	try {
		const { source, version, workspace, model } = await json("/health");
		for (const badge of document.querySelectorAll(".source")) {
			badge.textContent = source.demo ? "demo" : source.name;
			badge.title = source.detail;
			badge.classList.toggle("demo", source.demo);
		}
		byId("about").textContent = `cursor-gateway ${version}. Source: ${source.detail || source.name}.`;
		byId("demo").hidden = !source.demo;
		byId("where").hidden = source.demo;
		setDefaults(workspace, model);
	} catch (error) {
		showProblem(error, look);
	}
}

// --- colours ---

const root = document.documentElement;
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

on("theme", "click", () => {
	const isDark = root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches;
	localStorage.setItem("theme", (root.dataset.theme = isDark ? "light" : "dark"));
});

// --- keys ---

const KEYS = { "/": focusSearch, n: () => byId("new").click(), "?": help };

addEventListener("keydown", (event) => {
	const { key, target } = event;
	if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open], :popover-open")) return;
	if (key === "Escape" && target !== byId("search")) conversation.stop();
	if (!(key in KEYS) || target.matches("input, textarea, select")) return;
	event.preventDefault();
	KEYS[key]();
});

async function help() {
	byId("forget").hidden = !hasKey();
	if ((await ask(byId("help-dialog"))) !== "forget") return;
	forgetKey();
	location.reload();
}

on("help", "click", help);
on("new", "click", () => route().view === "new" && startNew());
on("skip", "click", (event) => {
	event.preventDefault(); // the address is the route's
	byId("message").focus();
});

addEventListener("hashchange", show);
show();
look();
refresh();
loadModels().catch(() => {}); // without a list, the gateway's own choice is offered
