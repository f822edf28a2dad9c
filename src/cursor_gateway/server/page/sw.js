// The service worker of the page: opens it without a network, from its own files, and shows notifications.
// Nothing else is ever stored: no answer, no list, no key, no request of the API.

const FILES = "page-files";
const isFile = ({ origin, pathname }) => origin === location.origin && (pathname === "/" || pathname.startsWith("/page/"));

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
	const { request } = event;
	if (request.method === "GET" && isFile(new URL(request.url))) event.respondWith(newest(request));
});

/** From the gateway; what was stored last only if it cannot be reached. */
async function newest(request) {
	const files = await caches.open(FILES);
	try {
		const response = await fetch(request);
		const isOurs = response.status === 200 && response.headers.has("x-cursor-gateway-source"); // another program may use the port
		if (isOurs) await files.put(request, response.clone());
		return response;
	} catch (error) {
		const stored = await files.match(request);
		if (stored) return stored;
		throw error;
	}
}

self.addEventListener("notificationclick", (event) => {
	event.notification.close();
	event.waitUntil(open(event.notification.data));
});

async function open(path) {
	const [page] = await self.clients.matchAll({ type: "window" });
	if (!page) return self.clients.openWindow(`/${path}`);
	page.postMessage({ open: path });
	return page.focus();
}
