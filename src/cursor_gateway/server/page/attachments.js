// Images and text files that go with the next message: dropped, pasted or picked.
import { byId, icon, make, on } from "./dom.js";
import { draftFiles, keepFiles } from "./drafts.js";
import { showNote } from "./status.js";

const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MOST_IMAGE_BYTES = 10_000_000;
const MOST_TEXT_BYTES = 200_000;
const ONLY_IMAGES = "See the attached image.";
const LAST_FILE = /(?:^|\n\n)([^\n`]{0,254}\.(\w+)|[^\s`.]{1,255}):\n(`{3,})(?:\2)\n((?:(?!\n\3(?:\n|$))[^])*?)\n\3$/;

const kept = new Map(); // by conversation, {name, url} of an image, {name, text} of a text
let id = null;

export const attached = (of = id) => kept.get(of) ?? draftFiles(of);

/** The message with the text files below it; `splitMessage` undoes it. */
export function withTexts(message) {
	const texts = attached().filter(({ text }) => text !== undefined).map(({ name, text }) => `${name}:\n${fenced(name, text)}`);
	return [message, ...texts].filter(Boolean).join("\n\n") || ONLY_IMAGES;
}

/** @returns {{text: string, files: {name: string, text: string}[]}} what was written, and the files below it */
export function splitMessage(message) {
	const files = [];
	let text = message === ONLY_IMAGES ? "" : message;
	for (let found; (found = LAST_FILE.exec(text)); text = text.slice(0, found.index)) files.unshift({ name: found[1], text: found[4] });
	return { text, files };
}

function fenced(name, text) {
	let mark = "```";
	while (text.includes(mark)) mark += "`";
	return `${mark}${/\.(\w+)$/.exec(name)?.[1] ?? ""}\n${text.replace(/\n$/, "")}\n${mark}`;
}

export function clearAttachments() {
	keep(id, []);
}

export function openAttachments(conversation) {
	id = conversation;
	show();
}

/** What is too large for the browser's storage is kept as long as the page is open. */
function keep(of, files) {
	kept.set(of, files);
	keepFiles(of, files);
	show();
}

export function setUpAttachments() {
	const form = byId("prompt");
	on("attach", "click", () => byId("files").click());
	on("files", "change", ({ target }) => (add(target.files), (target.value = "")));
	on("message", "paste", (event) => {
		if (!event.clipboardData.files.length) return;
		event.preventDefault();
		add(event.clipboardData.files);
	});
	addEventListener("dragover", (event) => {
		if (!event.dataTransfer.types.includes("Files")) return;
		event.preventDefault();
		form.classList.add("dropping");
	});
	addEventListener("dragleave", ({ relatedTarget }) => relatedTarget || form.classList.remove("dropping"));
	addEventListener("drop", (event) => {
		form.classList.remove("dropping");
		if (!event.dataTransfer.files.length) return;
		event.preventDefault();
		add(event.dataTransfer.files);
	});
	on("attachments", "click", ({ target }) => {
		const item = target.closest("button")?.closest("li");
		if (!item) return;
		keep(id, attached().filter((_, place) => place !== [...item.parentElement.children].indexOf(item)));
		byId("message").focus();
	});
}

async function add(added) {
	const to = id; // another conversation may be shown when they are read
	for (const file of [...added]) { // the browser empties its own list
		try {
			const one = await read(file);
			keep(to, [...attached(to), one]);
		} catch (error) {
			showNote(error.message);
		}
	}
	byId("message").focus();
}

async function read(file) {
	const name = file.name || "pasted image";
	if (IMAGES.includes(file.type)) {
		if (file.size > MOST_IMAGE_BYTES) throw new Error(`${name} is larger than 10 MB.`);
		return { name, url: await asUrl(file) };
	}
	if (file.type === "application/pdf") throw new Error(notPdf(name));
	if (file.size > MOST_TEXT_BYTES) throw new Error(`${name} is larger than 200 kB. Put it in the folder and name it with @.`);
	const data = await file.arrayBuffer();
	const starts = (mark) => new TextDecoder("latin1").decode(data.slice(0, mark.length)) === mark;
	if (starts("%PDF-")) throw new Error(notPdf(name));
	try {
		const text = new TextDecoder("utf-8", { fatal: true }).decode(data);
		if (!text.includes("\0")) return { name, text };
	} catch {}
	throw new Error(`${name} was not attached: it is neither a text nor a PNG, JPEG, GIF or WebP image.`);
}

const notPdf = (name) => `${name} was not attached: a PDF cannot be sent to the agent. Attach its text, or pictures of its pages.`;

function asUrl(file) {
	return new Promise((resolve, reject) => {
		const reader = new FileReader();
		reader.onload = () => resolve(reader.result);
		reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
		reader.readAsDataURL(file);
	});
}

function show() {
	const files = attached();
	byId("attachments").hidden = !files.length;
	byId("attachments").replaceChildren(
		...files.map(({ name, url }) => {
			const picture = url ? [make("img", { src: url, alt: "" })] : [];
			return make("li", {}, ...picture, make("span", {}, name), make("button", { type: "button", class: "icon", "aria-label": `Remove ${name}` }, icon("close")));
		}),
	);
}
