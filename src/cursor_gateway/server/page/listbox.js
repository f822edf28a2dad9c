// Options to choose from by pointer or keys, while the focus stays in the box that is typed in.
import { make } from "./dom.js";

let count = 0;

export class Listbox {
	#options = [];
	#active = -1;

	/** @param element role=listbox; `box` has the focus; `choose` is given the option */
	constructor(element, box, choose) {
		Object.assign(this, { element, box, choose });
		element.id ||= `list-${++count}`;
		element.addEventListener("pointerdown", (event) => event.preventDefault()); // the box keeps the focus
		element.addEventListener("click", ({ target }) => {
			const option = target.closest("[role=option]");
			if (option) choose(this.#options[[...element.children].indexOf(option)]);
		});
	}

	/** @param options [{value, label, hint}] */
	show(options, selected) {
		this.#options = options;
		this.element.replaceChildren(
			...options.map(({ value, label, hint }, place) => {
				const option = make("li", { role: "option", id: `${this.element.id}-${place}`, "aria-selected": String(value === selected) }, label);
				if (hint) option.append(make("small", {}, hint));
				return option;
			}),
		);
		const chosen = options.findIndex(({ value }) => value === selected);
		this.#activate(options.length ? Math.max(chosen, 0) : -1);
	}

	get active() {
		return this.#options[this.#active];
	}

	/** @returns {boolean} whether the key was for the list */
	press({ key }) {
		const last = this.#options.length - 1;
		const places = { ArrowDown: this.#active < last ? this.#active + 1 : 0, ArrowUp: this.#active > 0 ? this.#active - 1 : last };
		if (!(key in places) || last < 0) return false;
		this.#activate(places[key]);
		return true;
	}

	#activate(place) {
		this.element.querySelector("[data-active]")?.removeAttribute("data-active");
		this.#active = place;
		const option = this.element.children[place];
		if (!option) return this.box.removeAttribute("aria-activedescendant");
		option.setAttribute("data-active", "");
		option.scrollIntoView({ block: "nearest" });
		this.box.setAttribute("aria-activedescendant", option.id);
	}
}

const textOf = ({ label, value, hint }) => `${label} ${value} ${hint ?? ""}`.toLowerCase();
const wordsOf = (typed) => typed.toLowerCase().split(/\s+/).filter(Boolean);

/** Those that have all words, in any order. */
export const matching = (options, typed) => options.filter((option) => wordsOf(typed).every((word) => textOf(option).includes(word)));

/** The same; if there are none, those that have the letters of each word in their order. */
export function closest(options, typed) {
	const found = matching(options, typed);
	return found.length ? found : options.filter((option) => wordsOf(typed).every((word) => hasLetters(textOf(option), word)));
}

function hasLetters(text, word) {
	let from = 0;
	return [...word].every((letter) => (from = text.indexOf(letter, from) + 1) > 0);
}
