// The address in, what to show out: #/ (new), #/c/CONVERSATION, #/c/CONVERSATION/ANSWER, #/c/CONVERSATION/ANSWER/DOCUMENT, #/runs,
// #/permissions.

export const conversationPath = (id) => `#/c/${encodeURIComponent(id)}`;
export const answerPath = (id, answer) => `${conversationPath(id)}/${encodeURIComponent(answer)}`;

/** @returns {{view: string, id?: string, answer?: string, document?: string}} */
export function route() {
	const [, id, answer, document] = /^#\/c\/([\w-]+)(?:\/([\w-]+))?(?:\/([\w-]+))?$/.exec(location.hash) ?? [];
	if (id) return { view: "conversation", id, answer, document };
	return { view: { "#/runs": "runs", "#/permissions": "permissions" }[location.hash] ?? "new" };
}
