// The configuration as loaded, and what the file says now.

import { run, types } from "../api.js";
import { confirm, element, message, problem } from "../elements.js";
import { column, table } from "../tables.js";

export function show(main) {
  const settings = element("pre", { role: "region", tabindex: "0", "aria-label": "Configuration" });
  const differences = table("Settings in the file that differ", [
    column("setting", "setting"),
    column("before", "in force"),
    column("after", "in the file"),
    column("result", "reload"),
  ], { id: "setting" });
  const said = element("p", { class: "quiet" });
  const button = element("button", { type: "button", click: reload }, "Reload the file");
  const again = element("button", { type: "button", click: () => compare().catch((error) => problem(error.message)) }, "Compare again");
  const file = element("section", { "aria-labelledby": "file" },
    element("h2", { id: "file" }, "The file"), said, differences.part, element("div", { class: "actions" }, button, again));
  const loaded = element("section", { "aria-labelledby": "loaded" },
    element("h2", { id: "loaded" }, "As loaded"),
    element("p", { class: "quiet" }, "Settings at their defaults and secrets are left out."), settings);
  main.append(element("h1", {}, "Configuration"), file, loaded);

  async function reload() {
    if (!(await confirm("Read the configuration again, and apply what can change?", "Reload"))) return;
    try {
      const { value } = await run("broker", "broker", "reload");
      const applied = value.differences.filter((each) => each.applied).length;
      message(`${applied} settings applied, ${value.differences.length - applied} need a restart.`);
      await compare();
    } catch (error) {
      problem(error.message);
    }
  }

  async function compare() {
    const operations = (await types()).broker.operations;
    if (operations["GET-CONFIGURATION"] === undefined) {
      said.textContent = "The configuration is shown in the default virtual host.";
      button.disabled = again.disabled = loaded.hidden = true;
      return;
    }
    const { value } = await run("broker", "broker", "get-configuration");
    settings.textContent = JSON.stringify(value.configuration, null, 2);
    button.disabled = value.error !== "";
    said.textContent = value.error || (value.file === "" ? "The broker runs without a file." : value.file);
    differences.update(value.differences.map((each) => ({ ...each, result: each.applied ? "applies it" : "needs a restart" })));
  }

  // Reading the file is work for the broker: it is done once, and when it is asked for.
  let read = false;
  return {
    async update() {
      if (read) return;
      read = true;
      await compare();
    },
  };
}
