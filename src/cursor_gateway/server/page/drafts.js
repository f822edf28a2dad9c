// What this browser keeps of each conversation: the draft, the queue, and where a branch comes from.

const drafts = (id) => `draft:${id ?? "new"}`;
const origins = (id) => `origin:${id}`;
const queues = (id) => `queue:${id}`;

export const draft = (id) => localStorage.getItem(drafts(id)) ?? "";
export const keepDraft = (id, text) => keep(drafts(id), text);

/** @returns {{key: string, asked: object}[]} */
export const queued = (id) => JSON.parse(localStorage.getItem(queues(id)) ?? "[]");
export const keepQueue = (id, items) => keep(queues(id), items.length ? JSON.stringify(items) : "");

/** The address of the conversation that this one is a branch of. */
export const origin = (id) => localStorage.getItem(origins(id)) ?? "";
export const keepOrigin = (id, address) => keep(origins(id), address);

export function forget(id) {
	localStorage.removeItem(origins(id));
	localStorage.removeItem(drafts(id));
	localStorage.removeItem(queues(id));
}

function keep(name, text) {
	try {
		if (text) localStorage.setItem(name, text);
		else localStorage.removeItem(name);
	} catch {
		// The browser's storage is full: what is shown still can be sent.
	}
}
