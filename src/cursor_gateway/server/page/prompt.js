// The prompt box: what to ask, with which model, how and where.
import { json } from "./api.js";
import { byId, make, on } from "./dom.js";

const [message, model, mode, workspace, send] = ["message", "model", "mode", "workspace", "send"].map(byId);

/** @param start is given {message, model, mode, workspace} and tells whether it was taken */
export function setUpPrompt(start, stop) {
	const submit = async () => {
		const asked = { message: message.value.trim(), model: model.value, mode: mode.value, workspace: workspace.value.trim() };
		if (!asked.message || send.disabled || send.hidden) return;
		send.disabled = true;
		if (await start(asked)) message.value = ""; // what was refused stays, to be sent again
		send.disabled = false;
		fit();
		focusPrompt();
	};
	on("prompt", "submit", (event) => (event.preventDefault(), submit()));
	on("message", "keydown", (event) => {
		if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
		event.preventDefault();
		submit();
	});
	on("message", "input", fit);
	on("stop", "click", stop);
	on("suggestions", "click", ({ target }) => {
		const suggested = target.closest("button");
		if (!suggested) return;
		message.value = suggested.dataset.ask;
		const before = mode.value;
		mode.value = suggested.dataset.mode;
		submit().then(() => (mode.value = before));
	});
	byId("options").open = matchMedia("(min-width: 48rem)").matches;
}

/** Not where a keyboard would cover the page. */
export const focusPrompt = () => matchMedia("(hover: hover)").matches && message.focus();

export function setPromptState({ isRunning, workspace: bound }) {
	byId("stop").hidden = !isRunning;
	send.hidden = isRunning;
	if (bound || workspace.readOnly) workspace.value = bound ?? "";
	workspace.readOnly = Boolean(bound); // a conversation stays where it began
}

export function setDefaults(folder, name) {
	workspace.placeholder = folder ?? "";
	model.options[0].textContent = name ?? "default";
}

export async function loadModels() {
	const { data } = await json("/v1/models");
	model.append(...data.map(({ id, name }) => make("option", { value: id }, name || id)));
}

export const isModel = (name) => [...model.options].some((option) => option.value === name);

/** For browsers whose text areas do not grow by themselves. */
function fit() {
	if (CSS.supports("field-sizing", "content")) return;
	message.style.height = "auto";
	message.style.height = `${message.scrollHeight}px`;
}
