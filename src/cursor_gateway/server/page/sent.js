// A message that was sent: what was written, its files as chips that open, its images as thumbnails.
import { request } from "./api.js";
import { splitMessage } from "./attachments.js";
import { make } from "./dom.js";

/** @param images addresses: of data, or of the gateway */
export function showSent(element, message, images) {
	const { text, files } = splitMessage(message);
	const chips = files.map(({ name, text }) => make("details", { class: "chip" }, make("summary", {}, name), make("pre", { tabindex: "0" }, text)));
	const shown = [...images.map((address, place) => picture(address, `Attached image ${place + 1}`)), ...chips];
	element.replaceChildren(...(text ? [make("div", {}, text)] : []), ...(shown.length ? [make("div", { class: "files" }, ...shown)] : []));
}

function picture(address, name) {
	const shown = make("img", { alt: name });
	imageOf(address).then((src) => (shown.src = src), () => shown.replaceWith(make("span", { class: "hint" }, `${name} is no longer available.`)));
	return shown;
}

/** As data: an image of the gateway needs the key, which an address cannot have. */
export async function imageOf(address) {
	if (address.startsWith("data:")) return address;
	const blob = await (await request(address)).blob();
	return new Promise((resolve, reject) => {
		const reader = new FileReader();
		reader.onload = () => resolve(reader.result);
		reader.onerror = () => reject(reader.error);
		reader.readAsDataURL(blob);
	});
}
