// Read-only links: create, copy and revoke the one of a conversation, and list all of them.
import { conversationUrl, json, post, request } from "./api.js";
import { ask, byId, copy, make, on } from "./dom.js";
import { conversationPath } from "./router.js";
import { when } from "./words.js";

let shown; // the conversation in the dialog

const url = (id) => `${conversationUrl(id)}/link`;
const OFF = "Read-only links are turned off in this gateway. To allow them, add “public_links = true” to its config.toml and restart it.";

export async function shareLink({ id }) {
	const [{ canCreate }, { linked }] = await Promise.all([json("/v1/links"), json(conversationUrl(id))]);
	shown = id;
	tell(!canCreate ? OFF : linked ? `This conversation has had a link since ${when(linked)}. A link is shown only when it is created; a new one replaces it.` : "Anyone who has the link can read this conversation, without an API key.", { linked, canCreate });
	await ask(byId("link-dialog"));
}

/** @param made the link, right after it was created */
function tell(text, { made, linked, canCreate = true }) {
	byId("link-text").textContent = text;
	byId("link-url").value = made ?? "";
	byId("link-box").hidden = byId("copy-link").hidden = !made;
	byId("create-link").hidden = !canCreate || Boolean(made);
	byId("create-link").textContent = linked ? "Replace link" : "Create link";
	byId("revoke-link").hidden = !linked && !made;
}

/** What goes wrong is said in the dialog, which hides the rest of the page. */
const attempt = (act) => () => act().catch(({ message }) => (byId("link-text").textContent = message));

on("create-link", "click", attempt(async () => {
	const { pathname } = new URL((await post(url(shown))).url);
	tell("Anyone who has this link can read the conversation. Copy it now: it is not shown again.", { made: location.origin + pathname });
	byId("link-url").select();
}));
on("copy-link", "click", attempt(() => copy(byId("link-url").value, byId("copy-link"))));
on("revoke-link", "click", attempt(async () => {
	await request(url(shown), { method: "DELETE" });
	tell("The link was revoked and no longer works.", {});
}));
on("link-dialog", "click", ({ target }) => target.closest("a") && byId("link-dialog").close());

export async function showLinks() {
	const conversations = [];
	let page = {};
	do {
		page = await json(`/v1/links${page.next ? `?before=${encodeURIComponent(page.next)}` : ""}`);
		conversations.push(...page.conversations);
	} while (page.next);
	const { canCreate } = page;
	byId("links").replaceChildren(...conversations.map(item));
	byId("links-title").hidden = conversations.length === 0;
	byId("links-off").hidden = canCreate || conversations.length === 0;
}

function item({ id, title, linked }) {
	const button = make("button", { type: "button", class: "quiet", "aria-label": `Revoke the link to ${title}` }, "Revoke");
	button.addEventListener("click", async () => {
		button.disabled = true;
		await request(url(id), { method: "DELETE" }).catch(() => {});
		showLinks();
	});
	return make("li", {}, make("div", {}, make("a", { href: conversationPath(id) }, title), make("p", { class: "hint" }, `Since ${when(linked)}`)), button);
}
