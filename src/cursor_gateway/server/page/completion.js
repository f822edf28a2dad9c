// Completes what is typed in the prompt: @ names a file of the folder, / at the beginning is a command.
import { json } from "./api.js";
import { byId } from "./dom.js";
import { Listbox } from "./listbox.js";

const PAUSE_MS = 120;

let list;
let place = null; // {start, end} of what is completed
let offered = [];
let timer;

export const isCompleting = () => place !== null && list?.active !== undefined;

/** @param folder tells where files are looked for; @param commands tells the commands, [{label, hint, act}] */
export function setUpCompletion(box, { folder, commands }) {
	const element = byId("completions");
	list = new Listbox(element, box, choose);

	function close() {
		clearTimeout(timer);
		place = null;
		element.hidden = true;
		list.show([]);
	}

	function choose(option) {
		const { start, end } = place;
		close();
		box.setRangeText(option.act ? "" : `${option.value} `, start, end, "end");
		option.act?.();
		box.dispatchEvent(new Event("input", { bubbles: true }));
		box.focus();
	}

	function offer(found, at) {
		if (!found.length) return close();
		place = at;
		offered = found;
		element.hidden = false;
		list.show(found);
	}

	box.addEventListener("input", () => {
		clearTimeout(timer);
		const end = box.selectionStart;
		const before = box.value.slice(0, end);
		const command = /^\/\w*$/.exec(before);
		if (command) return offer(commands().filter(({ label }) => label.startsWith(before)), { start: 0, end });
		const [, named] = /(?:^|\s)@([^\s@]*)$/.exec(before) ?? [];
		if (named === undefined) return close();
		const at = { start: end - named.length - 1, end };
		// Until the answer comes: what is left of the list, for what is typed by now.
		if (place) offer(offered.filter(({ label }) => label.toLowerCase().includes(named.toLowerCase())), at);
		timer = setTimeout(async () => {
			const query = new URLSearchParams({ q: named, ...(folder() && { workspace: folder() }) });
			const { files } = await json(`/v1/workspace/files?${query}`).catch(() => ({ files: [] }));
			if (box.value.slice(0, box.selectionStart) !== before) return; // something else is typed by now
			offer(files.map((file) => ({ value: `@${file}`, label: file })), at);
		}, PAUSE_MS);
	});
	box.addEventListener("keydown", (event) => {
		if (!isCompleting() || event.isComposing) return;
		if (event.key === "Escape") close();
		else if (event.key === "Enter" || event.key === "Tab") choose(list.active);
		else if (!list.press(event)) return;
		event.preventDefault();
		event.stopImmediatePropagation();
	});
	box.addEventListener("blur", close);
}
