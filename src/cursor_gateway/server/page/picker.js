// A button that opens a list to choose from, with a search where there is much to choose from.
import { icon, make } from "./dom.js";
import { Listbox, closest } from "./listbox.js";

export class Picker {
	value = "";
	#known = [];
	#button = make("button", { type: "button", "aria-haspopup": "listbox", "aria-expanded": "false" });
	#popup = make("div", { class: "popup" });
	#name = make("span", {});
	#nothing = make("p", { class: "hint", role: "status" });

	/**
	 * @param find words in, options out (may be a promise); without it, the options are searched
	 * @param onChange is given the value that somebody chose
	 * @param nothing is shown when nothing matches
	 */
	constructor(root, { label, picture, search, find, onChange, nothing = "Nothing matches." }) {
		Object.assign(this, { label, root, find, onChange, nothing });
		this.#button.append(...(picture ? [icon(picture)] : []), this.#name, icon("chevron"));
		const list = make("ul", { role: "listbox", "aria-label": label });
		this.box = search ? make("input", { type: "text", role: "combobox", "aria-label": search, placeholder: search, "aria-expanded": "true", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false" }) : list;
		if (!search) list.tabIndex = 0;
		this.list = new Listbox(list, this.box, (option) => this.#choose(option));
		if (search) this.box.setAttribute("aria-controls", list.id);
		this.#popup.append(...new Set([this.box, list, this.#nothing]));
		this.#popup.hidden = true;
		root.append(this.#button, this.#popup);
		this.#button.addEventListener("click", () => (this.#popup.hidden ? this.#open() : this.#close()));
		this.#popup.addEventListener("keydown", (event) => this.#press(event));
		this.box.addEventListener("input", () => this.#show());
		root.addEventListener("focusout", ({ relatedTarget }) => relatedTarget && !root.contains(relatedTarget) && this.#close());
		document.addEventListener("pointerdown", ({ target }) => root.contains(target) || this.#close());
		this.#tell();
	}

	get options() {
		return this.#known;
	}

	set options(options) {
		this.#known = options;
		this.#tell();
	}

	set(value) {
		this.value = value;
		this.#tell();
	}

	set isFixed(isFixed) {
		this.#button.disabled = isFixed;
	}

	#tell() {
		const found = this.#known.find(({ value }) => value === this.value);
		const name = found?.short ?? found?.label ?? this.value;
		this.#name.textContent = name;
		this.#button.ariaLabel = `${this.label}: ${name}`;
		this.#button.title = `${this.label}: ${found?.label ?? name}`;
	}

	#open() {
		this.#popup.hidden = false;
		this.#button.ariaExpanded = "true";
		if (this.box.value) this.box.value = "";
		this.#show();
		this.box.focus();
	}

	#close(returnsFocus) {
		if (this.#popup.hidden) return;
		this.#popup.hidden = true;
		this.#button.ariaExpanded = "false";
		if (returnsFocus) this.#button.focus();
	}

	async #show() {
		const words = this.box.value ?? "";
		const found = this.find ? await this.find(words) : closest(this.#known, words);
		if ((this.box.value ?? "") !== words) return;
		this.list.show(found, words ? undefined : this.value);
		this.#nothing.textContent = found.length ? "" : this.nothing;
	}

	#choose(option) {
		this.#close(true);
		if (!option) return;
		if (!this.#known.some(({ value }) => value === option.value)) this.#known = [...this.#known, option];
		this.set(option.value);
		this.onChange?.(option.value);
	}

	#press(event) {
		if (event.isComposing) return;
		if (event.key === "Escape") this.#close(true);
		else if (event.key === "Enter") this.#choose(this.list.active);
		else if (event.key === "Tab") return this.#close();
		else if (!this.list.press(event)) return event.stopPropagation();
		event.preventDefault();
		event.stopPropagation();
	}
}
