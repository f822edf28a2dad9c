// The bar above a conversation: its title, and what can be done with the whole of it.
import { conversationUrl, json, request } from "./api.js";
import { byId, copy, on, save } from "./dom.js";
import { forget } from "./drafts.js";
import { shareLink } from "./links.js";
import { hideConversation, refresh, setWindowTitle, unhideConversation } from "./sidebar.js";
import { offerUndo, showProblem } from "./status.js";
import { contextSize, duration, number, tokens } from "./words.js";

let shown = null; // {id, title, pinned}

/** @param conversation null when there is none, then `title` says what there is instead */
export function setHeader(conversation, title) {
	shown = conversation;
	const name = conversation ? conversation.title || "Untitled" : title;
	byId("title").textContent = name;
	byId("title").title = name;
	setWindowTitle(name);
	byId("conversation-menu").hidden = !conversation;
	byId("pin").querySelector("span").textContent = conversation?.pinned ? "Unpin" : "Pin";
	showRename(false);
}

/** Of all its runs. */
export function setTotal(runs) {
	const add = (name) => runs.reduce((sum, { usage }) => sum + (usage?.[name] ?? 0), 0);
	const usage = { ...Object.fromEntries(["totalTokens", "promptTokens", "completionTokens", "cachedTokens"].map((name) => [name, add(name)])), estimated: runs.some(({ usage }) => usage?.estimated), cost: runs.some(({ usage }) => usage?.cost != null) ? add("cost") : null };
	const ms = runs.reduce((sum, { durationMs }) => sum + (durationMs ?? 0), 0);
	const total = [usage.totalTokens && `${number(usage.totalTokens)} tokens`, ms && duration(ms)].filter(Boolean).join(" · ");
	byId("total").textContent = runs.length > 1 ? total : "";
	showContext(runs.at(-1)?.context);
	byId("total").title = `In the whole conversation: ${tokens(usage) || "tokens unknown"}`;
	byId("menu-total").textContent = total && `In all: ${total}`; // where the bar has no room for it
}

/** Where both its size and the model's window are known. */
function showContext(context) {
	const meter = byId("context");
	meter.hidden = !context?.window;
	if (meter.hidden) return;
	meter.max = context.window;
	meter.high = 0.8 * context.window;
	meter.value = context.tokens;
	meter.ariaLabel = meter.title = `${contextSize(context)} (${Math.round((100 * context.tokens) / context.window)} %)`;
}

function showRename(isOn) {
	byId("rename").hidden = !isOn;
	byId("title").hidden = isOn;
	if (!isOn) return;
	byId("new-title").value = shown.title;
	byId("new-title").focus();
	byId("new-title").select();
}

async function change(changes) {
	const { id } = shown;
	const changed = await json(conversationUrl(id), { method: "PATCH", body: changes });
	if (shown?.id === id) setHeader(changed);
	refresh();
}

on("rename-button", "click", () => showRename(true));
on("rename", "submit", (event) => {
	event.preventDefault();
	change({ title: byId("new-title").value.trim() }).catch(showProblem);
});
on("rename", "keydown", (event) => {
	if (event.key !== "Escape") return;
	event.stopPropagation();
	showRename(false);
});
/** What continues the conversation in a terminal. */
on("copy-command", "click", ({ currentTarget }) => {
	const isUsual = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname) && location.port === "8787";
	copy(`cursor-gateway chat${isUsual ? "" : ` --url ${location.origin}`} --conversation ${shown.id} "…"`, currentTarget).catch(showProblem);
});
on("pin", "click", () => change({ pinned: !shown.pinned }).catch(showProblem));

on("share-link", "click", () => shareLink(shown).catch(showProblem));

on("conversation-menu", "click", async ({ target }) => {
	const form = target.closest("[data-export]")?.dataset.export;
	if (!form) return;
	const { id } = shown;
	try {
		const response = await request(`${conversationUrl(id)}/export?format=${form}`);
		save(await response.blob(), /filename="([^"]+)"/.exec(response.headers.get("content-disposition"))[1]);
	} catch (error) {
		showProblem(error);
	}
});

on("delete", "click", () => {
	const { id } = shown;
	const back = location.hash;
	hideConversation(id);
	location.hash = "#/";
	const remove = async () => {
		forget(id);
		await request(conversationUrl(id), { method: "DELETE", keepalive: true });
	};
	offerUndo(
		"Conversation deleted.",
		() => remove().catch(showProblem).finally(() => unhideConversation(id)),
		() => {
			unhideConversation(id);
			location.hash = back;
		},
	);
});
