// The conversation that is shown: its turns, what is sent to it, what it asks back.
import { Answer } from "./answer.js";
import { chatPath, conversationUrl, json, post, request } from "./api.js";
import { splitMessage } from "./attachments.js";
import { revert, showChanges } from "./changes.js";
import { byId, cloned, copy, icon, make, on } from "./dom.js";
import { keepDraft, keepOrigin, keepVariant, origin, variants } from "./drafts.js";
import { setHeader, setTotal } from "./header.js";
import { openPalette } from "./palette.js";
import { enqueue, openQueue, putBack, sendNext, setUpQueue } from "./queue.js";
import { answersOf, decisionOf, offerReplies, permissionOf, setEnabled, showDecision } from "./replies.js";
import { answerPath, conversationPath } from "./router.js";
import { followEnd, toElement, toEnd } from "./scroll.js";
import { imageOf, showSent } from "./sent.js";
import { hideProblem, say, showProblem } from "./status.js";
import { showTodos } from "./todos.js";
import { stateOf, titleOf } from "./words.js";

const LONG = 1500; // characters of a prompt; what is longer scrolls

export class Conversation {
	#id = null;
	#answers = [];
	#workspace = null;
	#next = null; // a queued message that is sent when the run has been stopped
	#linked = null;
	#replies = []; // to what earlier answers asked; sent when the agent is done

	/** @param callbacks isModel(name), models(), onChange() when the list may look different, onState({id, isRunning, isWaiting, workspace}) */
	constructor(callbacks) {
		Object.assign(this, callbacks);
		followEnd(byId("conversation"));
		setUpQueue((item) => this.#sendQueued(item));
		on("turns", "click", ({ target }) => this.#press(target.closest("button")));
		on("turns", "submit", (event) => (event.preventDefault(), this.#submit(event.target, event.submitter)));
	}

	get #running() {
		return this.#answers.find((answer) => answer.isRunning);
	}

	get isNew() {
		return this.#id === null;
	}

	/** What was asked, the oldest first. */
	get prompts() {
		return this.#answers.map(({ asked }) => splitMessage(asked.message).text).filter(Boolean);
	}

	// --- opening ---

	startNew() {
		this.#clear(null);
		this.#settle();
		toElement(document.body);
	}

	/** @param documentId of the answer: what a link leads to, for example a command to decide about */
	async open(id, answerId, documentId) {
		if (id !== this.#id) {
			this.#clear(id);
			const answers = this.#answers;
			try {
				await this.#showNewTurns();
				if (!answerId) toEnd();
				const finished = answers.filter((answer) => !answer.isRunning);
				for (const answer of finished.reverse()) await answer.load(); // newest first
				if (answers !== this.#answers) return;
			} catch (error) {
				if (answers !== this.#answers) return;
				this.#clear(null);
				byId("welcome").hidden = true;
				if (error.code === "not_found") this.#showUnknown();
				else setHeader(null, "Not loaded"), showProblem(error, () => this.open(id, answerId, documentId));
			}
			this.#settle();
			this.#showDecisions().catch(showProblem);
		}
		for (const { id, element } of this.#answers) {
			element.classList.toggle("linked", id === answerId);
			if (id !== answerId) continue;
			element.focus({ preventScroll: true });
			toElement(element.parentElement);
		}
		this.#linked = documentId && { answerId, documentId };
		this.#toLinked();
	}

	/** Of a link that leads nowhere. */
	#showUnknown() {
		setHeader(null, "Not found");
		const words = "This conversation does not exist. It may have been deleted, or it belongs to another API key.";
		byId("turns").replaceChildren(make("p", { class: "lead" }, "Conversation not found"), make("p", { class: "hint" }, words), make("p", {}, make("a", { href: "#/" }, "Start a new conversation")));
	}

	/** As soon as it is there: an answer that is still growing may not have it yet. */
	#toLinked() {
		const { answerId, documentId } = this.#linked ?? {};
		const answer = documentId && this.#answers.find(({ id }) => id === answerId);
		const article = answer && answer.element.querySelector(`article[id="${CSS.escape(documentId)}"]`);
		if (!article) return;
		this.#linked = null;
		toElement(article);
		article.querySelector("form button")?.focus({ preventScroll: true });
	}

	#clear(id) {
		for (const answer of this.#answers) answer.leave();
		this.#id = id;
		this.#answers = [];
		this.#workspace = null;
		this.#next = null;
		this.#replies = [];
		byId("turns").replaceChildren();
		byId("welcome").hidden = id !== null;
		hideProblem();
		say("");
		openQueue(id);
		setHeader(null, id === null ? "New conversation" : "…");
	}

	/** All turns, or those that a reply has begun. */
	async #showNewTurns() {
		const answers = this.#answers;
		const conversation = await json(conversationUrl(this.#id)).catch((error) => this.#queued(error));
		if (answers !== this.#answers) return;
		const { workspace, messages, runs } = conversation;
		this.#workspace = workspace;
		setHeader(conversation);
		for (const run of runs.slice(answers.length)) {
			const said = messages.filter(({ role, chatId }) => role === "user" && chatId === run.id);
			const message = said.map(({ text }) => text).join("\n\n");
			const note = said.every(({ note }) => note) && said.map(({ note }) => note).join("\n");
			const images = said.flatMap(({ images }) => images ?? []).map((name) => `${conversationUrl(this.#id)}/images/${name}`);
			this.#addTurn(run, this.#body({ message, images, workspace, mode: run.mode, model: this.isModel(run.model) && run.model }), note);
		}
	}

	/** A conversation that does not exist yet: its first message waits in the queue. */
	async #queued(error) {
		if (error.code !== "not_found") throw error;
		const waiting = (await json("/v1/queue")).requests.filter(({ conversationId }) => conversationId === this.#id);
		if (!waiting.length) throw error;
		const messages = waiting.map(({ id, prompt }) => ({ role: "user", chatId: id, text: prompt }));
		const runs = waiting.map(({ id, model, mode, created }) => ({ id, state: "queued", model, mode, created }));
		return { id: this.#id, title: waiting[0].prompt, pinned: false, workspace: null, messages, runs };
	}

	// --- turns ---

	#body({ message, images, mode, model, workspace }) {
		const place = this.#answers.length ? { conversationId: this.#id } : workspace && { workspace };
		return { message, ...place, ...(images?.length && { images }), ...(model && { model }), ...(mode !== "agent" && { mode }) };
	}

	/** @param note stands in the place of a message that only tells the agent what somebody decided */
	#addTurn(run, asked, note) {
		const answer = new Answer(this.#id, run, asked, () => this.#changed(answer));
		const turn = cloned("turn-template");
		const said = turn.querySelector(".asked");
		if (note) {
			said.textContent = note;
			said.className = "ending note";
			turn.querySelector(".asked-actions").remove();
		} else showSent(said, asked.message, asked.images ?? []);
		if (asked.message.length > LONG && !note) said.tabIndex = 0;
		if (!note) turn.querySelector(".asked-actions").append(...variantLinks(run.id));
		turn.append(answer.element);
		const from = this.#answers.length ? "" : origin(this.#id);
		if (from) turn.prepend(make("p", { class: "hint" }, "Branched from ", make("a", { href: from }, "another conversation"), ", which is unchanged. The agent knows what was said before."));
		byId("turns").append(turn);
		this.#answers.push(answer);
		if (!answer.isRunning) return;
		answer.watch().catch(showProblem);
		this.#settle();
	}

	#changed(answer) {
		if (!this.#answers.includes(answer)) return;
		this.#settle();
		this.#toLinked();
		if (!answer.isRunning || answer.run.state === "waiting") this.onChange();
		if (answer.isRunning) return;
		if (this.#answers.length === 1) this.#showTitle().catch(() => {}); // the list has it in any case
		if (this.#next) this.#sendQueued(this.#next);
		else if (this.#replies.length) this.#sendReplies();
		else if (answer.run.state === "completed" && answer === this.#answers.at(-1)) sendNext();
	}

	/** The agent may have a better one than its first message. */
	async #showTitle() {
		const conversation = await json(conversationUrl(this.#id));
		if (conversation.id === this.#id && conversation.title !== byId("title").textContent) setHeader(conversation);
	}

	/** All that depends on what runs. */
	#settle() {
		const running = this.#running;
		const last = this.#answers.at(-1);
		offerReplies(this.#answers);
		let isChanged = false;
		for (const answer of this.#answers.toReversed()) {
			isChanged = answer.offerRevert(!running, isChanged);
			answer.isUndecided = answer === last && Boolean(answer.element.querySelector("form[data-permission]"));
		}
		setTotal(this.#answers.map(({ run }) => run));
		showTodos(running);
		showChanges(this.#id);
		this.onState({ id: this.#id, isRunning: Boolean(running), isWaiting: running?.run.state === "waiting", workspace: this.#workspace });
		if (running) say(doing(running), running.run.state === "running" && Date.parse(running.run.created));
		else if (last?.isUndecided) say("A command above needs your permission");
		else if (last?.wasWatched) say({ completed: "Answer complete", stopped: "Stopped" }[stateOf(last.run)] ?? "The answer ended with an error", 0, false); // the eye sees it below the answer
		else say("");
	}

	// --- what people do ---

	/** @returns {Promise<boolean>} whether it was taken */
	async send(asked, key) {
		hideProblem();
		if (this.#running) {
			enqueue(asked);
			return true;
		}
		const answers = this.#answers;
		const body = this.#body(asked);
		try {
			const run = await this.#start(body, key);
			if (answers === this.#answers) this.#begin(run, body); // else another one is shown by now
			return true;
		} catch (error) {
			showProblem(error);
			return false;
		}
	}

	/** With an agent that can wait for answers, where there is one. */
	async #start(body, key) {
		const options = { include: ["thinking"], source: "interactive", whenClientLeaves: "finish" };
		const images = await Promise.all((body.images ?? []).map(imageOf)); // those of an earlier turn are the gateway's
		const run = await post("/v1/chat", { ...body, ...(images.length && { images }), ...options }, key && { "Idempotency-Key": key });
		this.onChange();
		return run;
	}

	#begin({ id, conversationId, model, mode, created, metadata }, asked) {
		if (this.#id === null) {
			this.#id = conversationId;
			this.#workspace = asked.workspace ?? null;
			setHeader({ id: conversationId, title: titleOf(asked.message), pinned: false });
			byId("welcome").hidden = true;
			openQueue(conversationId);
			keepDraft(null, "");
			location.hash = conversationPath(conversationId);
		}
		this.#addTurn({ id, state: metadata?.queue ? "queued" : "running", model, mode, created }, asked);
		toEnd();
	}

	/** A message whose turn has come; or at once: then what runs is stopped first. */
	async #sendQueued(item) {
		this.#next = null;
		if (this.#running) {
			this.#next = item;
			return this.stop();
		}
		if (!(await this.send(item.asked, item.key))) putBack(item);
	}

	/** @returns {boolean} whether there was something to stop */
	stop() {
		const running = this.#running;
		if (!running) return false;
		say("Stopping…");
		running.stop().catch(showProblem);
		return true;
	}

	#press(button) {
		if (button?.matches("[data-copy]")) copy(button.closest("figure").querySelector('[data-part="code"]').textContent, button);
		const turn = button?.closest(".turn");
		if (!turn) return;
		const place = [...byId("turns").children].indexOf(turn);
		const answer = this.#answers[place];
		if (button.dataset.action) return answer.act(button).catch(showProblem);
		const acts = { copy: () => copy(answer.asked.message, button), edit: () => edit(turn, answer), cancel: () => endEdit(turn), retry: () => this.#retry(place), other: () => this.#retryWithOther(place), revert: () => revert({ chatId: answer.id }), checkpoint: () => revert({ before: answer.id }) };
		acts[button.dataset.turn]?.();
	}

	/** What failed or was stopped last is asked again in its place; else in a branch. */
	#retry(place) {
		const { asked, run } = this.#answers[place];
		const isLast = place === this.#answers.length - 1;
		if (isLast && run.state === "error") return this.send({ ...asked, mode: run.mode });
		return this.#branch(place, asked.message);
	}

	async #retryWithOther(place) {
		const { asked, run } = this.#answers[place];
		const option = await openPalette(this.models().filter(({ value }) => value !== run.model), "Retry with which model?");
		if (option) await this.#branch(place, asked.message, option.value);
	}

	/** The same conversation up to this turn, with another message: a conversation of its own. */
	async #branch(place, message, model) {
		hideProblem();
		const { id, asked, run } = this.#answers[place];
		const variant = { conversation: this.#id, answer: id };
		const { conversationId, ...rest } = asked;
		const start = place ? { follows: this.#answers[place - 1].id } : this.#workspace && { workspace: this.#workspace };
		try {
			const begun = await this.#start({ ...rest, ...(run.mode !== "agent" && { mode: run.mode }), ...(model && { model }), message, ...start });
			keepOrigin(begun.conversationId, location.hash);
			keepVariant(variant, { conversation: begun.conversationId, answer: begun.id });
			location.hash = conversationPath(begun.conversationId);
		} catch (error) {
			showProblem(error);
		}
	}

	/** What was decided before about what is shown. */
	async #showDecisions() {
		const answers = this.#answers;
		if (!byId("turns").querySelector("form[data-permission], .decided")) return;
		const { permissions, canAllow } = await json("/v1/permissions");
		if (answers !== this.#answers) return;
		if (!canAllow) for (const form of byId("turns").querySelectorAll("form[data-permission]")) form.remove();
		for (const { id, chatId, documentId, decision } of permissions) {
			const article = answers.find((answer) => answer.id === chatId)?.element.querySelector(`article[id="${CSS.escape(documentId)}"]`);
			const place = article?.querySelector("form[data-permission], .decided");
			const isRule = decision === "conversation" || decision === "workspace";
			if (place && !place.querySelector(".quiet:not([type=submit])")) showDecision(place, decision, isRule && (() => revoke(id)));
		}
		this.#settle();
	}

	#submit(form, button) {
		if (!form.matches(".edit")) return this.#reply(form, button);
		const message = form.querySelector("textarea").value.trim();
		const turn = form.closest(".turn");
		if (!message) return;
		endEdit(turn);
		return this.#branch([...byId("turns").children].indexOf(turn), message);
	}

	#reply(form, button) {
		const answer = this.#answers.find(({ element }) => element.contains(form));
		const body = form.dataset.permission ? permissionOf(form, button) : form.dataset.answer ? answersOf(form) : decisionOf(form, button);
		if (!body) return showProblem(new Error("Not sent: a question is still open. Choose an option, or write your own answer."));
		setEnabled(form, false);
		hideProblem();
		const reply = { answer, form, body, decision: button.value };
		const isAwaited = answer.run.state === "waiting" || form.closest("article").dataset.state === "waiting";
		if (!this.#running || isAwaited) return this.#sendReply(answer, body, [reply]);
		this.#replies.push(reply);
		form.append(make("p", { class: "hint later" }, "This will be sent when the agent is done."));
	}

	/** Those to the first of these answers; the others follow when the turn that this starts has ended. */
	#sendReplies() {
		const { answer, body, form } = this.#replies[0];
		const isOf = (reply) => reply.answer === answer && (body.permissions ? reply.body.permissions : reply.form === form);
		const together = this.#replies.filter(isOf);
		this.#replies = this.#replies.filter((reply) => !isOf(reply));
		return this.#sendReply(answer, body.permissions ? { permissions: together.flatMap((reply) => reply.body.permissions) } : body, together);
	}

	async #sendReply(answer, body, replies) {
		for (const { form } of replies) form.querySelector(".later")?.remove();
		try {
			const taken = await post(chatPath(answer.id, "/answer"), body);
			if (body.permissions) {
				for (const { form, decision } of replies) showDecision(form, decision);
				this.#settle();
				this.#showDecisions().catch(showProblem);
			}
			if (taken.id === answer.id) return this.onChange(); // its open stream shows it
			if (body.answers) answer.renew(replies[0].form.dataset.answer).catch(showProblem);
			await this.#showNewTurns();
			const last = this.#answers.at(-1);
			if (!last.isRunning) await last.load();
			this.#settle();
			toEnd();
			this.onChange();
		} catch (error) {
			for (const { form } of replies) setEnabled(form, true);
			showProblem(error);
		}
	}
}

async function revoke(id) {
	try {
		await request(`/v1/permissions/${encodeURIComponent(id)}`, { method: "DELETE" });
		return true;
	} catch (error) {
		showProblem(error);
		return false;
	}
}

// --- editing a prompt ---

function edit(turn, answer) {
	if (turn.querySelector(".edit")) return;
	const form = cloned("edit-template");
	const box = form.querySelector("textarea");
	box.value = answer.asked.message;
	turn.querySelector(".asked").hidden = true;
	turn.querySelector(".asked-actions").before(form);
	turn.querySelector(".asked-actions").hidden = true;
	box.focus();
}

function endEdit(turn) {
	turn.querySelector(".edit")?.remove();
	turn.querySelector(".asked").hidden = turn.querySelector(".asked-actions").hidden = false;
}

/** ‹ 2/3 ›: the turns that were asked in the place of this one, and this one. */
function variantLinks(id) {
	const all = variants(id);
	const place = all.findIndex(({ answer }) => answer === id);
	if (all.length < 2) return [];
	const link = (to, name, icons) => {
		const { conversation, answer } = all[to] ?? {};
		const shown = make("a", { class: "icon", "aria-label": name, title: name, ...(answer ? { href: answerPath(conversation, answer) } : { "aria-disabled": "true", role: "link" }) });
		shown.append(icon(icons));
		return shown;
	};
	const count = make("span", { class: "hint" }, `${place + 1}/${all.length}`);
	return [make("span", { class: "variants", role: "group", "aria-label": "Versions of this prompt" }, link(place - 1, "Previous version", "left"), count, link(place + 1, "Next version", "right"))];
}

function doing({ run, waitingFor }) {
	if (run.state === "reconnecting") return "Connection lost. Reconnecting…";
	if (run.state === "running") return "Working…";
	if (run.state === "queued") return "Waiting for a free slot…";
	const names = waitingFor.map((call) => call.toolName);
	if (names.includes("request_permission")) return "Waiting for your decision";
	const tools = names.filter((name) => !["ask_question", "create_plan"].includes(name)).join(", ");
	return `Waiting for ${tools ? `the results of ${tools}` : "your answer"}`;
}
