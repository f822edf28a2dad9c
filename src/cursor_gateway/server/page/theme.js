// The colours that were chosen here, before the first paint; else the system's. (No module: those wait.)
const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
