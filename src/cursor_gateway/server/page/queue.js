// Messages that wait for the agent to be done with the one before.
import { byId, icon, make, on } from "./dom.js";
import { keepQueue, queued } from "./drafts.js";

let id = null;
let items = [];
let send;

/** @param act is given {asked, key}; the key names the message, so that two windows do not send it twice */
export function setUpQueue(act) {
	send = act;
	on("queue", "click", ({ target }) => {
		const button = target.closest("button");
		if (!button) return;
		const [item] = items.splice([...byId("queue").children].indexOf(button.closest("li")), 1);
		keep();
		if (button.dataset.now !== undefined) send(item);
	});
}

export function openQueue(conversation) {
	id = conversation;
	items = id === null ? [] : queued(id);
	show();
}

export function enqueue(asked) {
	items.push({ key: `page-${Date.now()}-${Math.random().toString(36).slice(2)}`, asked });
	keep();
}

/** Sends the first, if there is one. */
export function sendNext() {
	items = id === null ? [] : queued(id); // another window may have sent one
	const item = items.shift();
	keep();
	if (item) send(item);
}

/** What was refused waits again. */
export function putBack(item) {
	items.unshift(item);
	keep();
}

function keep() {
	keepQueue(id, items);
	show();
}

function show() {
	byId("queue").hidden = !items.length;
	byId("queue").replaceChildren(
		...items.map(({ asked }) =>
			make(
				"li",
				{},
				make("span", { title: asked.message }, asked.message),
				make("button", { type: "button", class: "icon", "data-now": "", "aria-label": "Send now", title: "Stop the agent and send this now" }, icon("up")),
				make("button", { type: "button", class: "icon", "aria-label": "Remove from the queue", title: "Remove" }, icon("close")),
			),
		),
	);
}
