// Restore files: a preview that shows exactly what will change, then the change, which can be undone. And commits.
import { conversationUrl, json } from "./api.js";
import { ask, byId, make } from "./dom.js";
import { hideProblem, offerUndo, showNote, showProblem } from "./status.js";

const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

/**
 * @param wanted the body of a request to revert
 * @returns {Promise<boolean>} whether files were written
 */
export async function revertFiles(id, wanted, question) {
	hideProblem();
	try {
		const preview = await revert(id, { ...wanted, preview: true });
		showPreview(preview, question);
		if ((await ask(byId("revert-dialog"))) !== "ok") return false;
		return report(id, await revert(id, { ...wanted, token: preview.token }));
	} catch (error) {
		showProblem(error);
		return false;
	}
}

/** At once: the person has just seen these lines. */
export async function revertHunk(id, wanted) {
	hideProblem();
	try {
		return report(id, await revert(id, wanted));
	} catch (error) {
		showProblem(error);
		return false;
	}
}

const revert = (id, body) => json(`${conversationUrl(id)}/revert`, { method: "POST", body });

function report(id, { files, undo }) {
	const done = files.filter(({ action }) => action !== "skipped");
	const skipped = files.length - done.length;
	const text = `Restored ${done.length === 1 ? done[0].path : plural(done.length, "file")}${skipped ? `, skipped ${skipped}` : ""}.`;
	offerUndo(text, () => {}, () => undoRestore(id, undo));
	return true;
}

export async function undoRestore(id, undo) {
	hideProblem();
	try {
		await revert(id, { undo });
		showNote("The files are as they were before you restored them.");
	} catch (error) {
		showProblem(error);
	}
	dispatchEvent(new Event("files-changed"));
}

function showPreview({ files, patch }, question) {
	byId("revert-text").textContent = question;
	const items = files.map(({ path, action, added = 0, removed = 0, isChangedSince, reason }) => {
		const what = { restored: "restore", deleted: "delete", skipped: `skip: ${reason}` }[action];
		const counts = action === "skipped" ? "" : make("span", { class: "counts" }, make("ins", {}, `+${added}`), " ", make("del", {}, `−${removed}`));
		const note = isChangedSince ? make("strong", { class: "bad" }, "Changed since by somebody else; that is lost.") : "";
		return make("li", {}, make("code", {}, path), " ", make("span", { class: "note" }, what), " ", counts, " ", note);
	});
	byId("revert-files").replaceChildren(...items);
	byId("revert-patch").textContent = patch || "No lines to show.";
	byId("revert-patch").parentElement.open = false;
	byId("revert-ok").disabled = files.every(({ action }) => action === "skipped");
}

// --- commits ---

/** Proposes a message, asks, and commits. */
export async function commitChanges(id) {
	hideProblem();
	const commit = (body) => json(`${conversationUrl(id)}/commit`, { method: "POST", body });
	try {
		const { message, files, token, branch } = await commit({});
		byId("commit-message").value = message;
		byId("commit-branch").textContent = branch;
		byId("commit-files").replaceChildren(...files.map((path) => make("li", {}, make("code", {}, path))));
		if ((await ask(byId("commit-dialog"))) !== "ok") return;
		const done = await commit({ message: byId("commit-message").value, token });
		showNote(`Committed ${plural(done.files.length, "file")} to \`${done.branch}\` as \`${done.commit.slice(0, 10)}\`.`);
	} catch (error) {
		showProblem(error);
	}
}
