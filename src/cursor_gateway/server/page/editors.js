// Links that open a file in an editor on this machine, at a line.
const EDITORS = {
	vscode: ["VS Code", (path, line) => `vscode://file${path}:${line}`],
	cursor: ["Cursor", (path, line) => `cursor://file${path}:${line}`],
	vscodium: ["VSCodium", (path, line) => `vscodium://file${path}:${line}`],
	windsurf: ["Windsurf", (path, line) => `windsurf://file${path}:${line}`],
	zed: ["Zed", (path, line) => `zed://file${path}:${line}`],
	idea: ["JetBrains IDE", (path, line) => `idea://open?file=${path}&line=${line}`],
};
const KEY = "cursor-gateway-editor";

export const editors = Object.entries(EDITORS).map(([id, [name]]) => ({ id, name }));
export const chosenEditor = () => (localStorage.getItem(KEY) in EDITORS ? localStorage.getItem(KEY) : "cursor");
export const chooseEditor = (id) => localStorage.setItem(KEY, id);
export const editorName = () => EDITORS[chosenEditor()][0];

export function editorUrl(workspace, path, line) {
	const whole = path.startsWith("/") ? path : `${workspace}/${path}`;
	return EDITORS[chosenEditor()][1](whole.split("/").map(encodeURIComponent).join("/"), line);
}
