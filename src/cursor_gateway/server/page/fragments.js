// Fragments of a rendered answer in, articles on the page out. Each costs the same, however much is there already.
import { make, parsed } from "./dom.js";

const FRAME_MS = 10; // of work in a frame: the page must answer its reader between two of them
const STEPS = 3; // fewer are not worth folding
const GROUP = 50; // articles: groups that are off the screen are skipped as a whole when the page is laid out

export class Documents {
	#known = new Map(); // id → { article, parts }
	#queue = [];
	#isScheduled = false;
	#growing = null;
	#group = null;
	#grouped = 0;

	/** @param onContent is given all that is about to be shown */
	constructor(element, onContent) {
		Object.assign(this, { element, onContent });
	}

	/** Fragments, and functions that are called when all before them is shown. */
	push(items) {
		for (const item of items) this.#queue.push(item);
		if (this.#isScheduled) return;
		this.#isScheduled = true;
		if (document.hidden) setTimeout(this.#work, 200); // there are no frames where nobody looks
		else requestAnimationFrame(this.#work);
	}

	#work = () => {
		this.#isScheduled = false;
		const end = performance.now() + FRAME_MS;
		let done = 0;
		while (done < this.#queue.length && (done === 0 || performance.now() < end)) {
			const item = this.#queue[done++];
			if (typeof item === "function") item();
			else this.#show(item);
		}
		this.#queue.splice(0, done);
		if (this.#queue.length) this.push([]);
	};

	#show({ fragment, id, part, html }) {
		const content = parsed(html);
		if (!part) return this.#place(id, content);
		const { parts } = this.#known.get(id) ?? {};
		const place = parts?.get(part);
		if (!place) return;
		remember(parts, content);
		this.onContent(content);
		if (fragment === "appended") place.append(content);
		else place.replaceWith(content);
	}

	/** An article: at the end, or where it was before. */
	#place(id, content) {
		const old = this.#known.get(id)?.article;
		const article = content.firstElementChild;
		this.#known.set(id, { article, parts: remember(new Map(), content) });
		if (!old) {
			this.#grow(article);
			return this.append(article);
		}
		const isOpen = old.querySelector("details")?.open;
		if (isOpen) article.querySelector("details").open = true;
		this.onContent(content);
		const hadFocus = old.contains(document.activeElement);
		old.replaceWith(content);
		if (hadFocus) article.querySelector("summary, button, input, [tabindex]")?.focus({ preventScroll: true });
		if (old === this.#growing) this.#grow(["running", "waiting"].includes(article.dataset.state) ? article : null);
	}

	append(article) {
		this.onContent(article);
		if (this.#grouped++ % GROUP === 0) this.element.append((this.#group = make("div", { class: "group" })));
		this.#group.append(article);
	}

	/** Those who listen hear of an article when it is whole: what is busy is not read out. */
	#grow(article) {
		this.#growing?.removeAttribute("aria-busy");
		this.#growing = article;
		article?.setAttribute("aria-busy", "true");
	}

	/** Nothing more is coming for now. */
	finish() {
		this.#grow(null);
		foldSteps([...this.element.children].flatMap((group) => [...group.children]));
	}
}

/** Tool calls one after another that simply completed, and the thoughts between them, are one line that can be opened. */
function foldSteps(articles) {
	let steps = [];
	for (const article of [...articles, null]) {
		if (article?.matches(".tool_call:not([data-state]), .thinking")) {
			steps.push(article);
			continue;
		}
		const calls = steps.filter((step) => step.matches(".tool_call"));
		if (calls.length >= STEPS) {
			const names = new Set(calls.map((call) => call.querySelector(".tool").textContent));
			const fold = make("details", { class: "steps" }, make("summary", {}, `${calls.length} steps`, make("span", {}, [...names].join(", "))));
			fold.open = steps.some((step) => step.querySelector("details[open]") || step.contains(document.activeElement));
			steps[0].before(fold);
			fold.append(...steps);
		}
		steps = [];
	}
}

/** Looks at what has just come only, never at the whole article. */
function remember(parts, content) {
	for (const part of content.querySelectorAll("[data-part]")) parts.set(part.dataset.part, part);
	return parts;
}
