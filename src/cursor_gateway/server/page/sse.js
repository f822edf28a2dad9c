// Server-Sent Events by fetch (an EventSource cannot send a key), read on from where they broke off.
import { request } from "./api.js";

/** Text in, whole events out, however the text is cut. Lines end with LF or CRLF. */
export class SseParser {
	#rest = "";
	#searched = 0; // a long line is not searched again for every chunk
	#fields = { data: [] };
	#id = "";

	/** @returns {{event: string, data: string, id: string}[]} */
	push(text) {
		this.#rest += text;
		const events = [];
		const ending = /\r?\n/g;
		ending.lastIndex = this.#searched;
		let start = 0;
		for (let found; (found = ending.exec(this.#rest)); start = ending.lastIndex)
			events.push(...this.#line(this.#rest.slice(start, found.index)));
		this.#rest = this.#rest.slice(start);
		this.#searched = Math.max(0, this.#rest.length - 1);
		return events;
	}

	#line(line) {
		if (line === "") return this.#end();
		const [, field, value] = /^([^:]*):? ?([^]*)$/.exec(line);
		if (field === "data") this.#fields.data.push(value);
		else if (field === "event") this.#fields.event = value;
		else if (field === "id") this.#id = value;
		return []; // a field without a name is a comment: it keeps the connection alive
	}

	#end() {
		const { event = "message", data } = this.#fields;
		this.#fields = { data: [] };
		return data.length ? [{ event, data: data.join("\n"), id: this.#id }] : [];
	}
}

const PAUSES_MS = [500, 1000, 2000, 5000];
const SILENCE_MS = 60_000; // the gateway sends a comment every 15 seconds
const KEEP_ALIVE_MS = 20_000;

/** Every event once and in order, until `onEvent` says that it was the last. What the gateway refuses is thrown. */
export async function follow(path, { signal, onEvent, onBreak }) {
	let last = "";
	for (let breaks = 0; !signal.aborted; breaks++) {
		try {
			for await (const event of eventsAfter(last, path, signal)) {
				breaks = 0;
				if (!event || onEvent(event)) return;
				last = event.id;
			}
		} catch (error) {
			if (error.isFinal) throw error;
		}
		if (signal.aborted) return;
		if (!breaks) onBreak();
		await pause(PAUSES_MS[breaks] ?? PAUSES_MS.at(-1), signal);
	}
}

async function* eventsAfter(last, path, signal) {
	const silence = new AbortController();
	const both = AbortSignal.any([signal, silence.signal]);
	let timer;
	let heard = Date.now();
	const onWake = () => document.hidden || Date.now() - heard < KEEP_ALIVE_MS || silence.abort();
	document.addEventListener("visibilitychange", onWake); // after sleep, the connection may be dead
	try {
		const response = await request(path, { headers: last && { "Last-Event-ID": last }, signal: both });
		if (response.status === 204) yield null; // it has all been had
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
		const parser = new SseParser();
		for (;;) {
			timer = setTimeout(() => silence.abort(), SILENCE_MS);
			const { value, done } = await reader.read();
			heard = Date.now();
			if (done) return;
			yield* parser.push(value);
			clearTimeout(timer);
		}
	} finally {
		document.removeEventListener("visibilitychange", onWake);
		clearTimeout(timer);
		silence.abort(); // lets go of the connection when the reader has left
	}
}

/** A while, or less when the network is back or somebody looks. */
function pause(ms, signal) {
	return new Promise((resolve) => {
		const listeners = new AbortController();
		const wake = () => (listeners.abort(), resolve());
		setTimeout(wake, ms);
		signal.addEventListener("abort", wake, listeners);
		addEventListener("online", wake, listeners);
		document.addEventListener("visibilitychange", wake, listeners);
	});
}
