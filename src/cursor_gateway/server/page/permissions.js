// What the agent may do without asking: the decisions made here, each with a way back, and the operator's rules.
import { json, request } from "./api.js";
import { byId, make } from "./dom.js";
import { showLinks } from "./links.js";
import { answerPath } from "./router.js";
import { setWindowTitle } from "./sidebar.js";
import { when } from "./words.js";

const DECISIONS = { once: "Allowed once", conversation: "Always in this conversation", workspace: "Always in this workspace", deny: "Denied" };

export async function showPermissions() {
	setWindowTitle("Permissions");
	try {
		const { permissions, settings, canAllow, allowsEverything } = await json("/v1/permissions");
		byId("decisions").replaceChildren(...permissions.map(item));
		byId("no-permissions").hidden = permissions.length > 0;
		const rules = settings.flatMap((rule, place) => [place ? ", " : "", make("code", {}, rule)]);
		const everyone = rules.length ? ["The operator allows everyone: ", ...rules, "."] : ["The operator has set no rules."];
		const more = allowsEverything ? [" The agent may run everything, because the setting ", make("code", {}, "force"), " is on."] : canAllow ? [] : [" You cannot allow anything here, because the setting ", make("code", {}, "permissions"), " is ", make("code", {}, "deny"), "."];
		byId("operator-rules").replaceChildren(...everyone, ...more);
		byId("permissions-trouble").hidden = true;
		await showLinks();
	} catch (error) {
		tell(error);
	}
}

function item({ id, decision, rules, subject, reason, workspace, conversationId, chatId, created }) {
	const isRule = decision === "conversation" || decision === "workspace";
	const button = make("button", { type: "button", class: "quiet", "aria-label": `Revoke: ${subject || rules.join(", ")}` }, "Revoke");
	button.addEventListener("click", async () => {
		button.disabled = true;
		await request(`/v1/permissions/${encodeURIComponent(id)}`, { method: "DELETE" }).catch(tell);
		showPermissions();
	});
	const allows = isRule ? [`${DECISIONS[decision]}: `, make("code", {}, rules.join(", "))] : [DECISIONS[decision]];
	const where = conversationId ? [make("a", { href: answerPath(conversationId, chatId) }, "conversation")] : [];
	const facts = [...where, workspace, when(created)].filter(Boolean).flatMap((fact) => [" · ", fact]).slice(1);
	const entry = make("div", {}, make("code", {}, subject || rules.join(", ")), make("p", {}, ...allows), make("p", { class: "hint" }, ...(reason ? [`“${reason}” · `] : []), ...facts));
	return make("li", {}, entry, button);
}

function tell(error) {
	byId("permissions-trouble").textContent = error.message;
	byId("permissions-trouble").hidden = false;
}
