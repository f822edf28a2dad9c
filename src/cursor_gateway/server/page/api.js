// Requests to the gateway: the key is added, a refusal becomes an ApiError with the gateway's own sentence.
import { ask, byId } from "./dom.js";

const KEY = "cursor-gateway-key";

export const hasKey = () => localStorage.getItem(KEY) !== null;
export const conversationUrl = (id) => `/v1/conversations/${encodeURIComponent(id)}`;
export const chatPath = (id, rest = "") => `/v1/chat/${encodeURIComponent(id)}${rest}`;

export class ApiError extends Error {
	constructor(message, status, code) {
		super(message);
		this.code = code;
		this.isFinal = status >= 400 && status < 500 && ![408, 429].includes(status); // trying again does not help
	}
}

let loginProblem = "";
const loggedIn = logIn();

addEventListener("hashchange", () => location.hash.startsWith("#/login/") && location.reload()); // a link that was pasted into the open page

/** A login link has a code in its address, which is exchanged for a key, once. */
async function logIn() {
	const [, code] = /^#\/login\/([\w-]+)$/.exec(location.hash) ?? [];
	if (!code) return;
	history.replaceState(null, "", "#/"); // it is not to be found in the browser's history
	const body = JSON.stringify({ code });
	const response = await fetch("/v1/login", { method: "POST", headers: { "Content-Type": "application/json" }, body }).catch(() => null);
	const reply = await response?.json().catch(() => null);
	if (response?.ok) localStorage.setItem(KEY, reply.key);
	else loginProblem = reply?.error?.message ?? "The gateway is not responding. Open the link again.";
}

/** The key of a device that has logged in is then no longer valid. */
export async function forgetKey() {
	const headers = { Authorization: `Bearer ${localStorage.getItem(KEY)}` };
	await fetch("/v1/login", { method: "DELETE", headers }).catch(() => {});
	localStorage.removeItem(KEY);
}

/** @returns {Promise<Response>} one that succeeded */
export async function request(path, { method = "GET", body, headers, signal, keepalive } = {}) {
	await loggedIn;
	for (;;) {
		const key = localStorage.getItem(KEY);
		const added = { ...(body && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) };
		const response = await fetch(path, { method, signal, keepalive, headers: { ...headers, ...added }, body: body && JSON.stringify(body) }).catch(unreachable);
		if (response.ok) return response;
		const refusal = (await response.json().catch(() => null))?.error;
		const error = new ApiError(refusal?.message ?? `The gateway answered with status ${response.status}.`, response.status, refusal?.code);
		if (error.code !== "invalid_api_key") throw error; // another 401 is the agent's: it is not logged in
		const isAnotherKnown = key !== localStorage.getItem(KEY); // somebody was asked meanwhile
		if (!isAnotherKnown && !(await askForKey(key))) throw error;
	}
}

export const json = async (path, options) => (await request(path, options)).json();
export const post = (path, body, headers) => json(path, { method: "POST", headers: { Prefer: "respond-async", ...headers }, body });

function unreachable(error) {
	if (error.name === "AbortError") throw error;
	throw new ApiError("The gateway is not responding. If it was stopped, start it again with `cursor-gateway serve`.", 0);
}

let asking = null;

/** One dialog, however many requests were refused. */
function askForKey(refused) {
	return (asking ??= keyGiven(refused).finally(() => (asking = null)));
}

async function keyGiven(refused) {
	const input = byId("key");
	byId("key-reason").textContent = loginProblem || (refused ? "This gateway does not accept that key." : "This gateway requires an API key.");
	loginProblem = "";
	const isGiven = (await ask(byId("key-dialog"))) === "ok";
	if (isGiven) localStorage.setItem(KEY, input.value.trim());
	input.value = "";
	return isGiven;
}
