// The conversation that is shown: its turns, what is sent to it, what it asks back.
import { Answer } from "./answer.js";
import { chatPath, conversationUrl, json, post, request } from "./api.js";
import { ask, byId, cloned, copy, on } from "./dom.js";
import { answersOf, decisionOf, offerReplies, setEnabled } from "./replies.js";
import { conversationPath } from "./router.js";
import { followEnd, toElement, toEnd } from "./scroll.js";
import { hideProblem, say, showProblem } from "./status.js";
import { stateOf } from "./words.js";

const LONG = 1500; // characters of a prompt; what is longer scrolls

export class Conversation {
	#id = null;
	#answers = [];
	#workspace = null;

	/** @param callbacks isModel(name), onChange() when the list may look different, onState({isRunning, workspace}) */
	constructor(callbacks) {
		Object.assign(this, callbacks);
		followEnd(byId("conversation"));
		on("turns", "click", ({ target }) => this.#press(target.closest("button")));
		on("turns", "submit", (event) => (event.preventDefault(), this.#reply(event.target, event.submitter)));
		on("delete", "click", () => this.#remove().catch(showProblem));
	}

	get #running() {
		return this.#answers.find((answer) => answer.isRunning);
	}

	// --- opening ---

	startNew() {
		this.#clear(null, "New conversation");
		this.#settle();
		toElement(document.body);
	}

	async open(id, answerId) {
		if (id !== this.#id) {
			this.#clear(id, "…");
			const answers = this.#answers;
			try {
				await this.#showNewTurns();
				if (!answerId) toEnd();
				const finished = answers.filter((answer) => !answer.isRunning);
				for (const answer of finished.reverse()) await answer.load(); // newest first
				if (answers !== this.#answers) return;
			} catch (error) {
				if (answers !== this.#answers) return;
				this.#clear(null, "Cannot be shown");
				byId("welcome").hidden = true;
				showProblem(error, () => this.open(id, answerId));
			}
			this.#settle();
		}
		for (const { id, element } of this.#answers) {
			element.classList.toggle("linked", id === answerId);
			if (id !== answerId) continue;
			element.focus({ preventScroll: true });
			toElement(element.parentElement);
		}
	}

	#clear(id, title) {
		for (const answer of this.#answers) answer.leave();
		this.#id = id;
		this.#answers = [];
		this.#workspace = null;
		byId("turns").replaceChildren();
		byId("welcome").hidden = id !== null;
		hideProblem();
		say("");
		this.#title(title);
	}

	#title(title) {
		byId("title").textContent = title;
		document.title = `${title} · cursor-gateway`;
	}

	/** All turns, or those that a reply has begun. */
	async #showNewTurns() {
		const answers = this.#answers;
		const { title, workspace, messages, runs } = await json(conversationUrl(this.#id));
		if (answers !== this.#answers) return;
		this.#workspace = workspace;
		this.#title(title || "Untitled");
		for (const run of runs.slice(answers.length)) {
			const said = messages.filter((message) => message.role === "user" && message.chatId === run.id);
			const message = said.map(({ text }) => text).join("\n\n");
			this.#addTurn(run, this.#body({ message, workspace, mode: run.mode, model: this.isModel(run.model) && run.model }));
		}
	}

	// --- turns ---

	#body({ message, mode, model, workspace }) {
		const place = this.#answers.length ? { conversationId: this.#id } : workspace && { workspace };
		return { message, ...place, ...(model && { model }), ...(mode !== "agent" && { mode }) };
	}

	#addTurn(run, asked) {
		const answer = new Answer(this.#id, run, asked, () => this.#changed(answer));
		const turn = cloned("turn-template");
		const said = turn.querySelector(".asked");
		said.textContent = asked.message;
		if (asked.message.length > LONG) said.tabIndex = 0;
		turn.append(answer.element);
		byId("turns").append(turn);
		this.#answers.push(answer);
		if (!answer.isRunning) return;
		answer.watch().catch(showProblem);
		this.#settle();
	}

	#changed(answer) {
		if (!this.#answers.includes(answer)) return;
		this.#settle();
		if (!answer.isRunning) this.onChange();
	}

	/** All that depends on what runs. */
	#settle() {
		const running = this.#running;
		const last = this.#answers.at(-1);
		offerReplies(this.#answers);
		byId("delete").hidden = !last || Boolean(running);
		this.onState({ isRunning: Boolean(running), workspace: this.#workspace });
		if (running) say(doing(running), running.run.state === "running" && Date.parse(running.run.created));
		else if (last?.wasWatched) say({ completed: "Answer complete", stopped: "Stopped" }[stateOf(last.run)] ?? "The answer ended with an error");
	}

	// --- what people do ---

	/** @returns {Promise<boolean>} whether it was taken */
	async send(asked) {
		hideProblem();
		const answers = this.#answers;
		const body = this.#body(asked);
		try {
			const run = await post("/v1/chat", { ...body, include: ["thinking"], whenClientLeaves: "finish" });
			this.onChange();
			if (answers === this.#answers) this.#begin(run, body); // else another one is shown by now
			return true;
		} catch (error) {
			return showProblem(error);
		}
	}

	#begin({ id, conversationId, model, mode, created }, asked) {
		if (this.#id === null) {
			this.#id = conversationId;
			this.#title(asked.message.split("\n")[0].slice(0, 80));
			byId("welcome").hidden = true;
			location.hash = conversationPath(conversationId);
		}
		this.#addTurn({ id, state: "running", model, mode, created }, asked);
		toEnd();
	}

	stop() {
		if (!this.#running) return;
		say("Stopping…");
		this.#running.stop().catch(showProblem);
	}

	async #remove() {
		if ((await ask(byId("delete-dialog"))) !== "delete") return;
		await request(conversationUrl(this.#id), { method: "DELETE" });
		location.hash = "#/";
		this.onChange();
	}

	#press(button) {
		if (button?.matches("[data-copy]")) copy(button.closest("figure").querySelector('[data-part="code"]').textContent, button);
		if (!button?.dataset.action) return;
		const answer = this.#answers.find(({ element }) => element.contains(button));
		answer.act(button).catch(showProblem);
	}

	async #reply(form, button) {
		const reply = form.dataset.answer ? answersOf(form) : decisionOf(form, button);
		if (!reply) return showProblem(new Error("A question is still open: choose an option, or write an answer of your own."));
		const { id } = this.#answers.at(-1);
		setEnabled(form, false);
		hideProblem();
		try {
			const taken = await post(chatPath(id, "/answer"), reply);
			if (taken.id === id) return; // its open stream shows it
			await this.#showNewTurns();
			const last = this.#answers.at(-1);
			if (!last.isRunning) await last.load();
			toEnd();
			this.onChange();
		} catch (error) {
			setEnabled(form, true);
			showProblem(error);
		}
	}
}

function doing({ run, waitingFor }) {
	if (run.state === "reconnecting") return "The connection was lost. Reconnecting…";
	if (run.state === "running") return "Working…";
	const tools = waitingFor.map((call) => call.toolName).join(", ");
	return `Waiting for ${tools ? `the results of ${tools}` : "your answer"}`;
}
