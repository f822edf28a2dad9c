// One answer: what is known of its run above, its documents below, live or from the history.
import { chatPath, conversationUrl, hasKey, json, request } from "./api.js";
import { drawDiagrams } from "./diagrams.js";
import { cloned, copy, make, parsed, save } from "./dom.js";
import { Documents } from "./fragments.js";
import { answerPath } from "./router.js";
import { imageOf } from "./sent.js";
import { follow } from "./sse.js";
import { contextSize, duration, number, stateName, stateOf, tokens, when } from "./words.js";

export class Answer {
	element = cloned("answer-template");
	waitingFor = [];
	#documents = new Documents(this.element.querySelector(".documents"), (content) => this.#showPictures(content));
	#leaving = new AbortController();
	#isUndecided = false;
	#pictures = new Map();

	/** @param run an entry of a conversation's `runs`; `asked` is the body that was sent for it */
	constructor(conversationId, run, asked, onChange) {
		Object.assign(this, { id: run.id, conversationId, run, asked, onChange });
		this.#showFacts();
	}

	get isRunning() {
		return !["completed", "error"].includes(this.run.state);
	}

	/** As it happens, from the start. What the gateway refuses is thrown. */
	async watch() {
		this.wasWatched = true;
		const { element } = this.#documents;
		element.role = "log";
		element.ariaLabel = "Answer";
		await follow(chatPath(this.id, "/events?dialect=html"), {
			signal: this.#leaving.signal,
			onEvent: (event) => this.#receive(event),
			onBreak: () => this.#update({ state: "reconnecting" }),
		});
	}

	/** @returns {boolean} whether it was the last */
	#receive({ event, data }) {
		const received = JSON.parse(data);
		const isDone = event === "done";
		this.#documents.push(isDone ? [() => this.#pauseOrEnd(received)] : [this.#goOn, ...received]);
		return isDone && received.status !== "streaming";
	}

	#goOn = () => {
		if (this.run.state !== "running") this.#update({ state: "running" });
	};

	#pauseOrEnd({ status, model, mode, usage, metadata, context }) {
		this.#documents.finish();
		drawDiagrams(this.element);
		this.waitingFor = metadata.waitingFor ?? [];
		const state = status === "streaming" ? "waiting" : status;
		if (this.element.querySelector("article.stopped")) this.run.errorCode = "cancelled"; // perhaps in another window
		this.#update({ state, model, mode, usage, context, durationMs: metadata.duration_ms || null });
	}

	/** The finished answer, at once. */
	async load() {
		for (const article of [...(await this.#whole()).children]) this.#documents.append(article);
		this.#documents.finish();
		drawDiagrams(this.element);
		this.#showFacts();
	}

	/** One of its documents, as it is now. */
	async renew(id) {
		const now = (await this.#whole()).getElementById(id);
		if (now) this.element.querySelector(`article[id="${CSS.escape(id)}"]`).replaceWith(now);
	}

	async #whole() {
		const response = await request(chatPath(this.id, "?dialect=html"), { signal: this.#leaving.signal });
		this.run.context = JSON.parse(response.headers.get("x-context"));
		return parsed((await response.text()) || "<p>The answer is empty.</p>");
	}

	async stop() {
		this.run.errorCode = "cancelled"; // if it ends as an error now, it was wanted
		await json(chatPath(this.id, "/cancel"), { method: "POST", body: {} });
	}

	leave() {
		this.#leaving.abort();
	}

	/** Images in the workspace, in the place of their names. */
	#showPictures(content) {
		for (const place of content.querySelectorAll("[data-image]")) {
			const { image } = place.dataset;
			const address = `${conversationUrl(this.conversationId)}/workspace-image?${new URLSearchParams({ path: image })}`;
			if (!this.#pictures.has(address)) this.#pictures.set(address, imageOf(address)); // a growing text is rendered again and again
			this.#pictures.get(address).then((src) => place.replaceChildren(make("img", { src, alt: place.firstChild.textContent.replace(/ \($/, ""), title: image })), () => this.#pictures.delete(address)); // its name stays; the file may come later
		}
	}

	// --- what is known of it, what can be done with it ---

	#update(facts) {
		Object.assign(this.run, facts);
		this.#showFacts();
		this.onChange(this);
	}

	#showFacts() {
		const { model, mode, created, usage, context, durationMs } = this.run;
		const hasEnded = !this.isRunning;
		this.element.querySelector("footer > .row").hidden = !hasEnded;
		const ended = stateOf(this.run);
		const state = ended === "completed" && this.#isUndecided ? "waiting" : ended;
		const spent = usage?.totalTokens ? `${number(usage.totalTokens)} tokens` : "";
		const refused = this.element.querySelectorAll(":is(.terminal_command, .file_edit, .tool_call)[data-state=rejected]").length;
		const notRun = refused ? `${refused} not run` : "";
		const facts = [hasEnded && notRun, model !== "unknown" && model, mode, created && when(created), duration(durationMs), spent];
		const line = this.element.querySelector(".facts");
		line.title = [tokens(usage), contextSize(context)].filter(Boolean).join("; ");
		line.replaceChildren(make("span", { class: "run-state", "data-run": state }, stateName(state)));
		line.append(...facts.filter(Boolean).map((fact) => make("span", {}, fact)));
	}

	/** Whether a command in it still needs a decision. */
	get isUndecided() {
		return this.#isUndecided;
	}

	set isUndecided(is) {
		if (is === this.#isUndecided) return;
		this.#isUndecided = is;
		this.#showFacts();
	}

	/**
	 * Undo where it may have changed files; go back to before it also where a later answer has.
	 * @returns {boolean} whether any of these has
	 */
	offerRevert(isIdle, isLaterChanged) {
		const mayHaveChanged = Boolean(this.element.querySelector(".file_edit:not([data-state]), .terminal_command:not([data-state])"));
		const offer = (act, is) => (this.element.querySelector(`[data-turn=${act}]`).hidden = !isIdle || !is);
		offer("revert", mayHaveChanged);
		offer("checkpoint", mayHaveChanged || isLaterChanged);
		return mayHaveChanged || isLaterChanged;
	}

	/** @param button one of the answer's actions */
	async act(button) {
		const { action } = button.dataset;
		if (action === "copy") return copy(await this.#text("text"), button);
		if (action === "markdown") return copy(await this.#text("markdown"), button);
		if (action === "link") return copy(`${location.origin}/${answerPath(this.conversationId, this.id)}`, button);
		if (action === "curl") return copy(this.#curl(), button);
		const response = await request(chatPath(this.id, action === "html" ? "?dialect=page" : ""));
		save(await response.blob(), `${this.id}.${action}`);
	}

	async #text(dialect) {
		return (await request(chatPath(this.id, `?dialect=${dialect}`))).text();
	}

	#curl() {
		const body = JSON.stringify({ ...this.asked, images: this.asked.images?.filter((address) => address.startsWith("data:")), stream: true }).replaceAll("'", "'\\''");
		const key = hasKey() ? ` -H "Authorization: Bearer $KEY"` : "";
		return `curl -N ${location.origin}/v1/chat${key} -H 'Content-Type: application/json' -d '${body}'`;
	}
}
