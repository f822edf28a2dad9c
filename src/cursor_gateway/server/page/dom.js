// Elements from values. Strings become text, never markup; only `parsed` reads HTML, and only our renderer's.

/** @returns {any} */
export const byId = (id) => document.getElementById(id);
export const on = (id, event, act) => byId(id).addEventListener(event, act);
export const cloned = (id) => byId(id).content.cloneNode(true).firstElementChild;
export const make = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const icon = (name) => draw("svg", { class: "i", "aria-hidden": "true" }, draw("use", { href: `#i-${name}` }));
export const draw = (tag, attributes, ...children) =>
	filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function filled(element, attributes, children) {
	for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
	element.append(...children);
	return element;
}

/** What the gateway has rendered. A template runs no scripts, and the page's policy forbids them anyway. */
export function parsed(html) {
	const template = document.createElement("template");
	template.innerHTML = html;
	return template.content;
}

/** @returns {Promise<string>} the value of the button that closed it; empty for Escape */
export function ask(dialog) {
	dialog.returnValue = "";
	dialog.showModal();
	return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true }));
}

export function save(blob, name) {
	const url = URL.createObjectURL(blob);
	make("a", { href: url, download: name }).click();
	setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Copies, and says so on the button that was pressed. */
export async function copy(text, button) {
	if (navigator.clipboard) await navigator.clipboard.writeText(text);
	else copyByEvent(text);
	const shown = (button.shownBefore ??= { content: [...button.childNodes], label: button.ariaLabel });
	const isIcon = button.matches(".icon");
	button.ariaLabel = isIcon ? "Copied" : null;
	button.replaceChildren(isIcon ? icon("check") : "Copied");
	setTimeout(() => {
		button.replaceChildren(...shown.content);
		button.ariaLabel = shown.label;
	}, 1500);
}

/** There is no clipboard where the page came over plain HTTP from another machine. */
function copyByEvent(text) {
	const put = (event) => (event.preventDefault(), event.clipboardData.setData("text/plain", text));
	document.addEventListener("copy", put, { once: true });
	document.execCommand("copy");
}
