// What this browser keeps of each conversation: the draft and its files, the queue, its branches; and what was used recently.

const drafts = (id) => `draft:${id ?? "new"}`;
const files = (id) => `files:${id ?? "new"}`;
const origins = (id) => `origin:${id}`;
const queues = (id) => `queue:${id}`;

export const draft = (id) => localStorage.getItem(drafts(id)) ?? "";
export const keepDraft = (id, text) => keep(drafts(id), text);

export const draftFiles = (id) => JSON.parse(localStorage.getItem(files(id)) ?? "[]");
export const keepFiles = (id, list) => keep(files(id), list.length ? JSON.stringify(list) : "");

/** @returns {{key: string, asked: object}[]} */
export const queued = (id) => JSON.parse(localStorage.getItem(queues(id)) ?? "[]");
export const keepQueue = (id, items) => keep(queues(id), items.length ? JSON.stringify(items) : "");

/** The address of the conversation that this one is a branch of. */
export const origin = (id) => localStorage.getItem(origins(id)) ?? "";
export const keepOrigin = (id, address) => keep(origins(id), address);

/** The turns that were asked in the place of one another, [{conversation, answer}] in the order in which they were asked. */
export const variants = (answer) => JSON.parse(localStorage.getItem(`variants:${answer}`) ?? "[]");

export function keepVariant(of, added) {
	const known = variants(of.answer);
	const all = [...(known.length ? known : [of]), added];
	for (const { answer } of all) keep(`variants:${answer}`, JSON.stringify(all));
}

/** Of "model", "folder" or "prompt": the newest first. */
export const recent = (kind) => JSON.parse(localStorage.getItem(`recent:${kind}`) ?? "[]");

export function keepRecent(kind, value, most = 5) {
	if (value) keep(`recent:${kind}`, JSON.stringify([value, ...recent(kind).filter((one) => one !== value)].slice(0, most)));
}

export function forget(id) {
	for (const name of [drafts, files, origins, queues]) localStorage.removeItem(name(id));
	for (const name of Object.keys(localStorage).filter((one) => one.startsWith("variants:"))) {
		const left = JSON.parse(localStorage.getItem(name)).filter(({ conversation }) => conversation !== id);
		keep(name, left.length > 1 ? JSON.stringify(left) : "");
	}
}

function keep(name, text) {
	try {
		if (text) localStorage.setItem(name, text);
		else localStorage.removeItem(name);
	} catch {
		localStorage.removeItem(name); // there is no room: what is shown still can be sent
	}
}
