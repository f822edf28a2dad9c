// The to-dos of the run that works, pinned above the prompt while they change.
import { byId } from "./dom.js";

const PAUSE_MS = 400; // between two looks at an answer that grows

const box = byId("todos");
let watched = null;
let observer = null;
let timer = null;

/** @param answer the one that runs, if any */
export function showTodos(answer) {
	if (watched === answer) return;
	observer?.disconnect();
	watched = answer;
	box.hidden = true;
	if (!answer) return;
	observer = new MutationObserver(() => (timer ??= setTimeout(show, PAUSE_MS)));
	observer.observe(answer.element.querySelector(".documents"), { childList: true, subtree: true });
	show();
}

function show() {
	timer = null;
	if (!watched) return;
	const lists = watched.element.querySelectorAll(".plan .todos");
	const newest = lists[lists.length - 1] ?? [...watched.element.querySelectorAll(".todo_update .todos")].at(-1);
	const items = newest?.querySelectorAll("li") ?? [];
	box.hidden = !items.length;
	if (!items.length) return;
	const now = newest.querySelector('[data-status="in_progress"] > span:last-of-type')?.textContent;
	const title = newest.querySelector(".progress")?.textContent ?? "To-dos";
	byId("todos-title").textContent = now ? `${title} · ${now}` : title;
	byId("todos-list").replaceChildren(newest.cloneNode(true));
}
