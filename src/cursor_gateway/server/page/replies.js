// What an answer asks back: forms of questions and plans in, the body of a reply out.
import { cloned, make } from "./dom.js";

/** @returns {{answers: object[]} | null} null when a question is left open; it then has the focus */
export function answersOf(form) {
	const answers = [];
	for (const group of form.querySelectorAll("[data-question]")) {
		const selectedOptionIds = [...group.querySelectorAll(":checked")].map((option) => option.value);
		const text = group.querySelector("[type=text]").value.trim();
		if (!selectedOptionIds.length && !text) {
			group.querySelector("input").focus();
			return null;
		}
		answers.push({ questionId: group.dataset.question, selectedOptionIds, ...(text && { text }) });
	}
	return { answers };
}

export function decisionOf(form, button) {
	const text = form.elements.comment.value.trim();
	return { plan: button.value, ...(text && { text }) };
}

/** @returns {{permissions: object[]}} */
export function permissionOf(form, button) {
	const reason = form.elements.reason.value.trim();
	const isDenied = button.value === "deny";
	return { permissions: [{ documentId: form.dataset.permission, decision: button.value, ...(isDenied && reason && { reason }) }] };
}

const DECIDED = { once: "Allowed once.", conversation: "Allowed in this conversation.", workspace: "Allowed in this workspace.", deny: "Denied." };

/** In the place of the form, with a way back where it is a rule. */
export function showDecision(form, decision, revoke) {
	const note = make("p", { class: "ending decided" }, make("span", {}, DECIDED[decision]));
	if (revoke) {
		const button = make("button", { type: "button", class: "quiet" }, "Revoke");
		button.addEventListener("click", async () => {
			button.disabled = true;
			if (await revoke()) note.replaceChildren("Revoked.");
			else button.disabled = false;
		});
		note.append(button);
	}
	form.replaceWith(note);
}

/** Commands and questions can be decided until they are; a plan, and what an agent waited for, while it is the newest. */
export function offerReplies(answers) {
	for (const answer of answers) {
		const isLast = answer === answers.at(-1);
		const isOpen = isLast && (!answer.isRunning || answer.run.state === "waiting");
		if (!isLast) for (const form of answer.element.querySelectorAll("article:not([data-state=unanswered]) form[data-answer]")) setEnabled(form, false);
		for (const plan of answer.element.querySelectorAll(".plan")) offerDecision(plan, isOpen);
	}
}

function offerDecision(plan, isOpen) {
	const hasMore = plan.querySelector('[data-status="pending"], [data-status="in_progress"]') || !plan.querySelector("[data-status]");
	const form = plan.querySelector("form");
	const isDecided = plan.dataset.state === "rejected" || plan.querySelector("[data-accepted]");
	if (!isOpen || isDecided) form?.remove();
	else if (hasMore && !form) plan.append(cloned("plan-template"));
}

export function setEnabled(form, isEnabled) {
	for (const control of form.elements) control.disabled = !isEnabled;
	for (const button of form.querySelectorAll("button")) button.hidden = !isEnabled;
}
