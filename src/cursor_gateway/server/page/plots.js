// A small plot: the svg of the shell in, a bar for each run in it, the newest at the right.
import { draw } from "./dom.js";

const [LEFT, RIGHT, TOP, BOTTOM, WIDEST] = [60, 480, 10, 110, 14]; // as the grid of the shell

/**
 * @param bars [{parts: [number, number], label}] the oldest first
 * @param {(value: number) => string} show a value, at the axis
 */
export function plot(svg, bars, show, description) {
	const most = Math.max(1, ...bars.map(({ parts }) => parts[0] + parts[1]));
	const step = (RIGHT - LEFT) / bars.length;
	const width = Math.min(step * 0.8, WIDEST);
	const y = (value) => BOTTOM - ((BOTTOM - TOP) * value) / most;
	const drawn = bars.map(({ parts: [low, high], label }, place) => {
		const x = LEFT + step * (place + 0.5) - width / 2;
		const rect = (from, to, kind) => draw("rect", { class: kind, x, width, y: y(to), height: y(from) - y(to) });
		return draw("g", {}, draw("title", {}, label), rect(0, low, "low"), rect(low, low + high, "high"));
	});
	svg.querySelector(".bars").replaceChildren(...drawn);
	svg.querySelector("desc").textContent = description;
	svg.querySelector(".most").textContent = show(most);
	svg.querySelector(".half").textContent = show(most / 2);
}
