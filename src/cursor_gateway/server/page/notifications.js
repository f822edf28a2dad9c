// Tells you outside the page that a conversation waits for you or has ended. Only if you switch it on; nothing is asked before that.
import { byId, on } from "./dom.js";
import { conversationPath } from "./router.js";
import { showNote } from "./status.js";

const KEY = "cursor-gateway-notify";
const WAITS = "The agent is waiting for you";
const ENDED = "The agent has finished";
const button = byId("notify");
const worker = navigator.serviceWorker; // there is none over plain HTTP from another machine
let known = null; // the states by id; null until the first look

worker?.register("/page/sw.js", { scope: "/" }).catch(() => {}); // the page works without it
worker?.addEventListener("message", ({ data }) => (location.hash = data.open));

export const wantsNotifications = () => "Notification" in window && localStorage.getItem(KEY) !== null && Notification.permission === "granted";

on("notify", "click", async () => {
	if (wantsNotifications()) localStorage.removeItem(KEY);
	else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(KEY, "on");
	else showNote("Your browser does not allow notifications from this page. Allow them in its site settings first.");
	show();
});

const stateOf = ({ isWaiting, isRunning }) => (isWaiting ? "waiting" : isRunning ? "running" : "ended");

/** @param conversations {id, title, isWaiting, isRunning} of those that are listed */
export function notifyOf(conversations) {
	const before = known;
	known = new Map(conversations.map((one) => [one.id, stateOf(one)]));
	const isSeen = !document.hidden && document.hasFocus(); // a window behind another one is not hidden
	if (!before || isSeen || !wantsNotifications()) return;
	for (const { id, title } of conversations) {
		const [was, is] = [before.get(id), known.get(id)];
		if (is === "waiting" && was !== "waiting") notify(WAITS, id, title);
		else if (is === "ended" && was && was !== "ended") notify(ENDED, id, title);
	}
}

/** By the service worker where there is one: phones allow nothing else. */
async function notify(text, id, title) {
	const [path, options] = [conversationPath(id), { body: title || "Untitled", tag: id, icon: "/page/icon-192.png" }];
	const registration = await worker?.getRegistration();
	if (registration?.active) return registration.showNotification(text, { ...options, data: path });
	new Notification(text, options).onclick = () => {
		focus();
		location.hash = path;
	};
}

function show() {
	const isOn = wantsNotifications();
	button.ariaPressed = String(isOn);
	button.title = isOn ? "Notifications are on" : "Notify me when the agent needs me or has finished";
}

button.hidden = !("Notification" in window);
show();
