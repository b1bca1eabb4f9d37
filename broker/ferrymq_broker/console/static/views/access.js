// Users and rules.

import { ask, list, types } from "../api.js";
import { confirm, element, message, problem, text } from "../elements.js";
import { column, number, table } from "../tables.js";

export function show(main) {
  const users = table("Users with a password", [
    column("name", "user"),
    column("groups", "groups"),
    column("mechanisms", "logins"),
    column("origin", "from"),
    column("end", "action", text, { cell: (item) => removeButton("user", item, item.origin === "configuration") }),
  ]);
  const rules = table("Rules, in the order in which they count", [
    column("name", "rule"),
    number("position", "place"),
    column("who", "who"),
    column("may", "may"),
    column("may-not", "may not"),
    column("where", "where"),
    column("origin", "from"),
    column("end", "action", text, { cell: (item) => removeButton("rule", item, item.origin === "configuration") }),
  ]);
  const userPart = element("section", { "aria-labelledby": "users" },
    element("h2", { id: "users" }, "Users"), users.part, userForm());
  const rulePart = element("section", { "aria-labelledby": "rules" },
    element("h2", { id: "rules" }, "Rules"), rules.part, ruleForm());
  const none = element("p", { class: "quiet", hidden: true }, "Users are managed in the default virtual host.");
  main.append(element("h1", {}, "Users and rules"), userPart, none, rulePart);

  function removeButton(kind, item, fixed) {
    return fixed ? "" : element("button", { type: "button", class: "danger", click: () => remove(kind, item) },
      "Delete", element("span", { class: "aside" }, ` ${item.name}`));
  }

  async function remove(kind, item) {
    if (!(await confirm(`Delete the ${kind} ${item.name}?`, "Delete"))) return;
    await change(async () => {
      await ask("DELETE", [kind, item.name]);
      message(`The ${kind} ${item.name} is deleted.`);
    });
  }

  function userForm() {
    const name = field("user-name", "Name", { required: true });
    const password = field("user-password", "Password", { type: "password", autocomplete: "new-password", required: true });
    const groups = field("user-groups", "Groups");
    return form("Add a user", [name, password, groups], async () => {
      await ask("PUT", ["user", name.input.value], { body: { password: password.input.value, groups: words(groups) } });
      message(`The user ${name.input.value} is added.`);
    });
  }

  function ruleForm() {
    const name = field("rule-name", "Name", { required: true });
    const who = field("rule-who", "Who", { placeholder: "user:ada, group:staff" });
    const may = field("rule-may", "May", { placeholder: "send, receive" });
    const not = field("rule-not", "May not");
    const where = field("rule-where", "Where", { placeholder: "orders.*" });
    return form("Add a rule", [name, who, may, not, where], async () => {
      const body = { who: words(who), may: words(may), "may-not": words(not), where: words(where) };
      await ask("PUT", ["rule", name.input.value], { body });
      message(`The rule ${name.input.value} is added.`);
    });
  }

  function form(title, fields, send) {
    const made = element("form", { class: "fields", submit: async (event) => {
      event.preventDefault();
      if (await change(send)) made.reset();
    } }, fields.map((each) => each.part), element("button", { type: "submit" }, title));
    return element("details", {}, element("summary", {}, title), made);
  }

  async function change(work) {
    try {
      await work();
      await view.update();
      return true;
    } catch (error) {
      problem(error.message);
      return false;
    }
  }

  const view = {
    async update() {
      const known = await types();
      userPart.hidden = known.user === undefined;
      none.hidden = known.user !== undefined;
      rulePart.hidden = known.rule === undefined;
      if (known.user) users.update((await list("user", { count: 1000 })).items);
      if (known.rule) rules.update((await list("rule", { count: 1000 })).items);
    },
  };
  return view;
}

function field(id, label, attributes = {}) {
  const input = element("input", { id, ...attributes });
  return { input, part: element("div", {}, element("label", { for: id }, label), input) };
}

function words(field) {
  return field.input.value.split(",").map((word) => word.trim()).filter((word) => word !== "");
}
