// What one might ask first: of the built-in recordings, or of this folder.

export const DEMO = [
	{ ask: "Fix the failing tests", mode: "agent", note: "Commands and an edit" },
	{ ask: "Implement JWT authentication", mode: "agent", note: "A question, a plan, edits and commands" },
	{ ask: "Explain how the retries work", mode: "ask", note: "Text with code and references" },
	{ ask: "Plan a search for the bookshelf", mode: "plan", note: "A plan to accept or reject" },
	{ ask: "Explain this repo", mode: "ask", note: "How cursor-gateway is built" },
	{ ask: "Store the books in a database", mode: "agent", note: "A question to answer" },
];

/** @param files the first files of the folder; undefined when they are not known */
export function examplesFor(files) {
	if (files?.length === 0)
		return [
			{ ask: "Create a small website with a contact form", mode: "agent", note: "Creates files in this folder" },
			{ ask: "Write a Python script that sorts photos by date", mode: "agent", note: "Creates files in this folder" },
			{ ask: "What can you do here?", mode: "ask", note: "Changes nothing" },
		];
	const hasTests = files?.some((file) => /(^|[/_.-])tests?([/_.-]|$)/i.test(file));
	const hasReadme = !files || files.some((file) => /^readme/i.test(file));
	return [
		{ ask: "Explain what this project does and how it is organized", mode: "ask", note: "Reads only" },
		hasTests
			? { ask: "Run the tests and fix what fails", mode: "agent", note: "Runs commands, edits files" }
			: { ask: "Add tests for the most important code", mode: "agent", note: "Edits files" },
		hasReadme
			? { ask: "Plan the three most useful improvements", mode: "plan", note: "A plan to accept or reject" }
			: { ask: "Write a README for this project", mode: "agent", note: "Edits files" },
	];
}
