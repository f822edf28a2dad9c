// The queue and the processes of a cluster, on the page of runs: cancel what waits, drain who works.
import { chatPath, json, request } from "./api.js";
import { byId, make } from "./dom.js";
import { conversationPath } from "./router.js";
import { duration, moment } from "./words.js";

/** @returns {Promise<boolean>} whether something waits, so that it should be looked at again */
export async function showQueue(refresh) {
	const { requests, runners, canDrain } = await json("/v1/queue");
	byId("queue-part").hidden = !requests.length;
	byId("queue-rows").replaceChildren(...requests.map((one) => queued(one, refresh)));
	byId("runners-part").hidden = !canDrain; // a single gateway is no cluster
	byId("runner-rows").replaceChildren(...runners.map((one) => runner(one, refresh)));
	return requests.length > 0 || canDrain;
}

function queued({ id, conversationId, state, position, ageSeconds, priority, runAt, schedule, expires, prompt, model, key }, refresh) {
	const where = { waiting: `No. ${position}`, scheduled: `At ${moment(runAt)}`, starting: "Starting" }[state];
	const button = make("button", { type: "button", class: "quiet", "aria-label": `Cancel: ${prompt ?? id}` }, "Cancel");
	button.addEventListener("click", () => act(button, chatPath(id, "/cancel"), refresh));
	const waits = make("span", { title: `Until ${moment(expires)}` }, ageSeconds ? duration(ageSeconds * 1000) : "–");
	const place = make("td", {}, make("span", { class: "run-state", "data-run": "queued" }, where));
	const details = [waits, String(priority), key || "–"].map((cell) => make("td", { class: "only-wide" }, cell));
	const isOwn = prompt !== undefined;
	const name = isOwn ? make("a", { href: conversationPath(conversationId), title: prompt }, prompt || "Untitled") : "Another key’s request";
	const what = make("th", { scope: "row" }, name, make("small", {}, schedule ? `${schedule} · ${model}` : model));
	return make("tr", {}, what, place, ...details, make("td", {}, ...(isOwn ? [button] : [])));
}

function runner({ id, role, host, volumes, labels, running, capacity, draining, version }, refresh) {
	const to = draining ? "undrain" : "drain";
	const button = make("button", { type: "button", class: "quiet", "aria-label": `${draining ? "Undrain" : "Drain"} ${id}` }, draining ? "Undrain" : "Drain");
	button.addEventListener("click", () => act(button, `/v1/runners/${encodeURIComponent(id)}/${to}`, refresh));
	const facts = [host, ...volumes.filter((name) => name !== host), ...labels].join(" · ");
	const state = make("span", { class: "run-state", "data-run": draining ? "stopped" : "completed" }, draining ? "Draining" : "Ready");
	const cells = [state, role === "front" ? "–" : `${running} of ${capacity}`].map((cell) => make("td", {}, cell));
	const details = [role, version].map((cell) => make("td", { class: "only-wide" }, cell));
	return make("tr", {}, make("th", { scope: "row", title: id }, id, make("small", {}, facts)), ...cells, ...details, make("td", {}, button));
}

async function act(button, path, refresh) {
	button.disabled = true;
	try {
		await request(path, { method: "POST", body: {} });
	} catch (error) {
		byId("runs-trouble").textContent = error.message;
		byId("runs-trouble").hidden = false;
		return;
	}
	refresh();
}
