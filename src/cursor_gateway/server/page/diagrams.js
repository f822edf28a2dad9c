// Mermaid diagrams of an answer, drawn when they come into view. Mermaid sets styles, and draws what a model has written, so it
// works in a frame of its own, which can reach neither the page nor the network. The gateway has it as an extra (`diagrams`).
import { make } from "./dom.js";

const FRAME = "page/diagram.html";
const LONGEST = 50_000; // characters
const TALLEST = 5_000; // pixels
const TIMEOUT_MS = 20_000;

let isInstalled;
const views = new IntersectionObserver(
	(entries) => {
		for (const { isIntersecting, target } of entries) {
			if (!isIntersecting) continue;
			views.unobserve(target);
			draw(target);
		}
	},
	{ rootMargin: "300px" },
);

/** What is incomplete stays source, so this is for answers that do not grow any more. */
export async function drawDiagrams(element) {
	const figures = [...element.querySelectorAll('[data-draws="mermaid"]')].map((label) => label.closest("figure"));
	const waiting = figures.filter((figure) => !figure.dataset.drawn && textOf(figure).length <= LONGEST);
	if (!waiting.length) return;
	isInstalled ??= fetch(FRAME).then(
		(response) => response.ok,
		() => (isInstalled = null),
	);
	const canDraw = await isInstalled;
	for (const figure of waiting) {
		if (!canDraw) {
			figure.querySelector(".language").textContent = "Mermaid diagram (source). To see it drawn: pipx install '.[diagrams]'";
			continue;
		}
		figure.dataset.drawn = "later";
		views.observe(figure);
	}
}

const textOf = (figure) => figure.querySelector("code").textContent;

function draw(figure) {
	const frame = make("iframe", { src: FRAME, sandbox: "allow-scripts", title: "Diagram", class: "diagram", height: "0" });
	const colours = matchMedia("(prefers-color-scheme: dark)");
	const end = (problem) => {
		clearTimeout(timeout);
		removeEventListener("message", receive);
		if (problem) showProblem(figure, frame, problem);
	};
	const receive = ({ source, data }) => {
		if (source !== frame.contentWindow) return;
		if (data.isReady) {
			const { theme } = document.documentElement.dataset;
			source.postMessage({ text: textOf(figure), isDark: theme ? theme === "dark" : colours.matches }, "*");
		} else if (Number.isFinite(data.height)) {
			end();
			show(figure, frame, Math.min(Math.max(data.height, 20), TALLEST));
		} else end(String(data.problem));
	};
	const timeout = setTimeout(() => end("It takes too long."), TIMEOUT_MS);
	addEventListener("message", receive);
	figure.querySelector("figcaption").after(frame);
}

function show(figure, frame, height) {
	frame.height = height;
	figure.dataset.drawn = "now";
	figure.querySelector(".language").textContent = "Mermaid diagram";
	const source = make("details", { class: "diagram-source" }, make("summary", {}, "Source"));
	while (frame.nextSibling) source.append(frame.nextSibling);
	figure.append(source);
}

function showProblem(figure, frame, problem) {
	figure.dataset.drawn = "never";
	frame.replaceWith(make("p", { class: "problem" }, `This diagram cannot be drawn. ${problem.slice(0, 300)}`));
}
