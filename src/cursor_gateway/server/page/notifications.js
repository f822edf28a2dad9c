// Tells you outside the page that a conversation waits for you. Only if you switch it on; nothing is asked before that.
import { byId, on } from "./dom.js";
import { conversationPath } from "./router.js";
import { showNote } from "./status.js";

const KEY = "cursor-gateway-notify";
const button = byId("notify");
let known = null; // ids of those that wait; null until the first look

export const wantsNotifications = () => "Notification" in window && localStorage.getItem(KEY) !== null && Notification.permission === "granted";

on("notify", "click", async () => {
	if (wantsNotifications()) localStorage.removeItem(KEY);
	else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(KEY, "on");
	else showNote("Your browser does not allow notifications from this page. Allow them in its site settings first.");
	show();
});

/** @param waiting conversations that wait for somebody, {id, title} */
export function notifyOf(waiting) {
	const before = known;
	known = new Set(waiting.map(({ id }) => id));
	if (!before || !document.hidden || !wantsNotifications()) return;
	for (const { id, title } of waiting) {
		if (before.has(id)) continue;
		const note = new Notification("The agent is waiting for you", { body: title || "Untitled", tag: id });
		note.onclick = () => {
			focus();
			location.hash = conversationPath(id);
		};
	}
}

function show() {
	const isOn = wantsNotifications();
	button.ariaPressed = String(isOn);
	button.title = isOn ? "Notifications are on" : "Notify me when the agent needs me";
}

button.hidden = !("Notification" in window);
show();
