"use strict";
// The page of the admin. All data enters as text: nothing here makes markup of it.
(() => {
  const TICK_MS = 1000;
  const PATIENCE_MS = 5000;
  const TOKEN = "tollgate-token";
  const COURSE = 120;
  // For so long a backend that failed has to answer until it is said to be well.
  const CALM_MS = 5000;

  // The results by what came of the request. Those left out did not decide about it.
  const PASSED = new Set(["allowed", "waited", "allowed_by_share", "passed_undecided", "exempt", "off", "passed_unidentified", "replayed"]);
  const REFUSED = new Set(["denied", "banned", "denied_by_share", "refused_undecided", "blocked", "unidentified", "tier_unknown", "shed"]);

  const at = (id) => document.getElementById(id);
  const make = (name, text, type) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (type) element.className = type;
    return element;
  };
  // Writes only what has changed, so that nothing that is read aloud or selected is disturbed.
  const say = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };

  let token = sessionStorage.getItem(TOKEN) ?? "";
  let last = null;
  let lostSince = null;
  let timer = 0;
  let wasFailing = false;
  let failedAt = 0;
  let policies = [];
  let chosenOffenders = false;
  const course = [];

  // ---- words

  const count = new Intl.NumberFormat("en");
  const number = (value) => count.format(value);
  const rate = (value) => (value === null ? "–" : value === 0 ? "0" : value < 10 ? value.toFixed(1) : number(Math.round(value)));
  const span = (ms) => {
    const units = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];
    for (let place = 0; place < units.length; place += 1) {
      const [unit, name] = units[place];
      if (ms >= unit) {
        const next = units[place + 1];
        const rest = next ? Math.floor((ms % unit) / next[0]) : 0;
        return `${Math.floor(ms / unit)} ${name}${rest ? ` ${rest} ${next[1]}` : ""}`;
      }
    }
    return ms > 0 ? "under 1 s" : "0 s";
  };
  const clock = (time) => time.toLocaleTimeString("en-GB");
  // Characters that show nothing, or that turn or break the text around them, are written out.
  const visible = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
  const named = (row) => (row.text === null || row.text === undefined || row.text === "" ? row.caller : visible(row.text));

  // ---- the server

  class Refused extends Error {}
  class Lost extends Error {}

  const ask = async (path, body) => {
    const options = { headers: { authorization: `Bearer ${token}` }, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) };
    if (body) {
      options.method = "POST";
      options.headers["content-type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    let answer;
    let told;
    try {
      answer = await fetch(path, options);
      told = await answer.json();
    } catch {
      throw new Lost("the server does not answer");
    }
    if (answer.status === 401) throw new Refused("the server does not know this token");
    if (!answer.ok) throw new Error(told.error ?? `the server answers ${answer.status}`);
    return told;
  };
  const query = (path, parameters) => `${path}?${new URLSearchParams(parameters)}`;

  // ---- signing in and out

  const showLogin = (fault) => {
    clearTimeout(timer);
    token = "";
    sessionStorage.removeItem(TOKEN);
    if (at("switch-dialog").open) at("switch-dialog").close();
    at("board").hidden = true;
    at("leave").hidden = true;
    at("login").hidden = false;
    say(at("login-fault"), fault);
    say(at("connection"), "");
    say(at("about"), "");
    at("token").value = "";
    at("token").focus();
    document.title = "Tollgate";
    last = null;
    // The figures are for operators with the token.
    for (const table of document.querySelectorAll("#board tbody")) table.replaceChildren();
    for (const place of ["caller-result", "bans", "details", "alarm", "passed", "refused", "trial", "health"]) at(place).replaceChildren();
    at("caller-key").value = "";
    course.length = 0;
    drawCourse();
  };

  at("login").addEventListener("submit", async (event) => {
    event.preventDefault();
    token = at("token").value.trim();
    if (/[^\x21-\x7e]/.test(token)) {
      say(at("login-fault"), "A token has no blanks, and only characters of ASCII.");
      return;
    }
    say(at("login-fault"), "");
    await tick();
  });
  at("leave").addEventListener("click", () => showLogin(""));

  // ---- tables whose rows stay

  // Brings a table up to date. Rows keep their elements, and one with the focus stays where it is.
  const rows = (table, items, keyOf, begin, update) => {
    const body = table.tBodies[0];
    const known = new Map(Array.from(body.rows, (row) => [row.dataset.key, row]));
    const wanted = items.map((item) => {
      const key = keyOf(item);
      let row = known.get(key);
      known.delete(key);
      if (!row) {
        row = document.createElement("tr");
        row.dataset.key = key;
        begin(row, item);
      }
      update(row, item);
      return row;
    });
    const focused = Array.from(body.rows).find((row) => row.contains(document.activeElement));
    for (const row of known.values()) {
      if (row === focused) wanted.splice(Math.min(row.sectionRowIndex, wanted.length), 0, row);
      else row.remove();
    }
    if (wanted.every((row, place) => body.rows[place] === row)) return;
    const place = wanted.indexOf(focused);
    wanted.forEach((row, index) => {
      if (row === focused) return;
      if (index < place) body.insertBefore(row, focused);
      else body.append(row);
    });
  };
  const cells = (row, ...types) => types.forEach((type) => row.append(make("td", "", type)));

  // A caller as a button that inspects it.
  const callerButton = (policy, row) => {
    const button = make("button", undefined, "link");
    button.type = "button";
    const text = make("bdi", named(row), "caller");
    button.append(text);
    button.title = row.caller.slice(0, 300);
    button.addEventListener("click", () => {
      at("caller-policy").value = policy;
      at("caller-key").value = row.caller;
      inspect().then(() => at("caller-result").focus());
    });
    return button;
  };
  const callerHeader = (policy, row) => {
    const header = make("th");
    header.scope = "row";
    header.append(callerButton(policy, row));
    return header;
  };

  // ---- figures

  const sums = (decisions) => {
    const of = (results, kind) => Object.entries(decisions[kind]).reduce((sum, [result, n]) => sum + (results.has(result) ? n : 0), 0);
    return { passed: of(PASSED, "enforced") + of(PASSED, "trial") + of(REFUSED, "trial"), refused: of(REFUSED, "enforced"), trial: of(REFUSED, "trial") };
  };
  const perSecond = (state, before, of) => {
    if (!before || before.run !== state.run || state.uptime_ms <= before.uptime_ms) return null;
    const [now, then] = [of(state), of(before)];
    return now < then ? null : ((now - then) * 1000) / (state.uptime_ms - before.uptime_ms);
  };
  const all = (state, result, kind) => state.policies.reduce((sum, policy) => sum + (policy.decisions[kind][result] ?? 0), state.shed[kind][result] ?? 0);
  const total = (state, what) => state.policies.reduce((sum, policy) => sum + sums(policy.decisions)[what], sums(state.shed)[what]);

  const drawCourse = () => {
    const most = Math.max(1, ...course.map((point) => Math.max(point.passed, point.refused)));
    const line = (what) => course.map((point, place) => `${240 - (course.length - 1 - place) * (240 / (COURSE - 1))},${38 - (36 * point[what]) / most}`).join(" ");
    at("course-passed").setAttribute("points", line("passed"));
    at("course-refused").setAttribute("points", line("refused"));
    say(at("course-scale"), course.length ? `the last two minutes, up to ${rate(most)} a second` : "");
  };

  const showNow = (state, before) => {
    const rates = {};
    for (const what of ["passed", "refused", "trial"]) {
      rates[what] = perSecond(state, before, (one) => total(one, what));
      say(at(what), rates[what] === null ? "–" : `${rate(rates[what])} /s`);
    }
    if (rates.passed !== null) {
      course.push(rates);
      if (course.length > COURSE) course.shift();
      drawCourse();
    }
    const { backend } = state;
    const name = backend.kind === "redis" ? "Redis" : "Memory";
    // One decision that failed is not an outage. A backend that fails now and then is told once, and not each second anew.
    const now = Date.now();
    const isNew = before && before.run === state.run && backend.failures > before.backend.failures;
    if (backend.is_failing || isNew) failedAt = now;
    const failing = backend.is_failing || (wasFailing && now - failedAt < CALM_MS);
    const faltering = !backend.is_failing && now - failedAt < CALM_MS;
    say(at("health"), failing ? `${name} fails` : faltering ? `${name} falters` : `${name} answers`);
    at("health").classList.toggle("bad", failing);
    at("health").classList.toggle("warn", faltering && !failing);
    at("health").classList.toggle("good", !failing && !faltering);
    const alarm = at("alarm");
    if (failing && !wasFailing) {
      say(alarm, `The backend fails since ${clock(new Date())}${backend.place ? `: ${backend.place}` : ""}. Policies act as their on_failure says.`);
      alarm.className = "";
    } else if (!failing && wasFailing) {
      say(alarm, `The backend answers again since ${clock(new Date(failedAt))}.`);
      alarm.className = "well";
    }
    wasFailing = failing;
    document.title = failing ? "(!) Tollgate: the backend fails" : "Tollgate";
    say(at("about"), `${state.version}, up for ${span(state.uptime_ms)}`);
  };

  const showPolicies = (state, before) => {
    const words = at("filter").value.trim().toLowerCase();
    const shown = state.policies.filter((policy) => !words || policy.name.includes(words) || policy.quotas.some((quota) => quota.quota.includes(words)));
    say(at("filter-count"), shown.length === state.policies.length ? `${number(shown.length)} in all` : `${number(shown.length)} of ${number(state.policies.length)}`);
    const earlier = new Map(before ? before.policies.map((policy) => [policy.name, policy]) : []);
    rows(
      at("policies"),
      shown,
      (policy) => policy.name,
      (row, policy) => {
        const header = make("th", policy.name);
        header.scope = "row";
        header.append(make("span", "", "mark warn"), make("span", "bans", "mark"));
        row.append(header);
        cells(row, "", "number", "number", "");
        const button = make("button", undefined, "switch");
        button.type = "button";
        button.addEventListener("click", () => openSwitch(policy.name));
        row.cells[4].append(button);
      },
      (row, policy) => {
        const [header, quotas, passed, refused, control] = row.cells;
        const [trial, bans] = header.querySelectorAll(".mark");
        say(trial, policy.on_trial ? "on trial" : "");
        trial.hidden = !policy.on_trial;
        bans.hidden = !policy.bans;
        say(quotas, (policy.quotas.map((quota) => quota.quota).join("; ") || "none") + (policy.tiers ? "; tiers" : ""));
        const then = earlier.get(policy.name);
        const of = (what) => (then ? perSecond(state, before, (one) => sums((one === state ? policy : then).decisions)[what]) : null);
        const [pass, refuse] = [of("passed"), of("refused")];
        say(passed, rate(pass));
        say(refused, rate(refuse));
        refused.classList.toggle("hot", refuse > 0);
        const button = control.firstChild;
        say(button, { on: "On", shadow: "Shadow", off: "Off" }[policy.switch]);
        button.className = `switch ${policy.switch}`;
        const label = `Switch of ${policy.name}: ${policy.switch}`;
        if (button.getAttribute("aria-label") !== label) button.setAttribute("aria-label", label);
      },
    );
    const names = state.policies.map((policy) => policy.name);
    if (names.join(" ") !== policies.join(" ")) {
      policies = names;
      for (const id of ["caller-policy", "offenders-policy"]) {
        const select = at(id);
        const chosen = select.value;
        select.replaceChildren(...names.map((name) => new Option(name, name)));
        if (names.includes(chosen)) select.value = chosen;
      }
    }
    at("filter-tools").hidden = names.length < 8;
  };

  const showTightest = (state) => {
    at("tightest-none").hidden = state.tightest.length > 0;
    rows(
      at("tightest"),
      state.tightest,
      (budget) => [budget.policy, budget.quota, budget.caller].join(" "),
      (row, budget) => {
        row.append(callerHeader(budget.policy, budget));
        cells(row, "", "", "number", "number");
        row.cells[3].append(make("span"), make("meter"));
      },
      (row, budget) => {
        say(row.cells[1], budget.policy);
        say(row.cells[2], budget.quota);
        const [text, meter] = row.cells[3].children;
        say(text, `${number(budget.remaining)} of ${number(budget.limit)}`);
        meter.max = budget.limit;
        meter.low = budget.limit / 4;
        meter.optimum = budget.limit;
        meter.value = budget.remaining;
        meter.setAttribute("aria-label", "left");
        say(row.cells[4], span(budget.full_in_ms));
      },
    );
  };

  const RESULT_WORDS = {
    allowed: "allowed", waited: "allowed after a wait", denied: "denied", banned: "banned", allowed_by_share: "allowed by the local share",
    denied_by_share: "denied by the local share", passed_undecided: "passed undecided", refused_undecided: "refused undecided", blocked: "blocked",
    exempt: "exempt", off: "switched off", unidentified: "refused without identity", passed_unidentified: "passed without identity",
    tier_unknown: "refused, tier unknown", shed: "shed under pressure", left: "left before the decision", replayed: "repeated", unasked: "not asked",
  };
  const showResults = (state, before) => {
    const found = [];
    for (const kind of ["enforced", "trial"]) {
      for (const result of Object.keys(RESULT_WORDS)) {
        const sum = all(state, result, kind);
        if (sum > 0) found.push({ result, kind, sum });
      }
    }
    rows(
      at("results"),
      found,
      (one) => `${one.kind} ${one.result}`,
      (row, one) => {
        const header = make("th", RESULT_WORDS[one.result] + (one.kind === "trial" ? ", on trial" : ""));
        header.scope = "row";
        row.append(header);
        cells(row, "number", "number");
      },
      (row, one) => {
        say(row.cells[1], rate(perSecond(state, before, (each) => all(each, one.result, one.kind))));
        say(row.cells[2], number(one.sum));
      },
    );
  };

  // An outage ends for the page with the next decision, so the time of the last one says how old the news is.
  const lastDecision = (backend) => {
    const ago = backend.last_decision_ms_ago;
    if (ago === null) return "none yet";
    const when = ago < 1000 ? "just now" : `${span(ago)} ago`;
    return backend.is_failing ? `${when}; the next one tells whether the backend answers again` : when;
  };

  const showDetails = (state) => {
    const { backend, questions } = state;
    const lines = [
      ["Backend", backend.kind === "redis" ? `Redis, ${backend.place}` : "in this process's memory"],
      ["Failed decisions", number(backend.failures)],
      ["Last decision", lastDecision(backend)],
      ["Servers away", number(backend.servers_away)],
    ];
    const figures = { keys: "Keys in memory", evicted_keys: "Keys forgotten too early", calls: "Calls to Redis", requests: "Requests in these calls", lost_give_backs: "Refunds lost" };
    for (const [figure, name] of Object.entries(figures)) {
      if (figure in backend.figures) lines.push([name, number(backend.figures[figure])]);
    }
    const asked = { passed: "Questions passed", refused: "Questions refused", undecided: "Questions undecided", invalid: "Questions that make no sense", unknown_domains: "Unknown domains", unknown_descriptors: "Unknown descriptors", lost_reports: "Reports lost" };
    for (const [figure, name] of Object.entries(asked)) lines.push([name, number(questions[figure])]);
    if (state.shedding) lines.push(["Pressure", "requests are being shed"]);
    if (state.waiting > 0) lines.push(["Requests that wait", number(state.waiting)]);
    const list = at("details");
    const names = Array.from(list.querySelectorAll("dt"), (name) => name.textContent);
    if (names.join() !== lines.map(([name]) => name).join()) {
      list.replaceChildren(...lines.flatMap(([name]) => [make("dt", name), make("dd")]));
    }
    const values = list.querySelectorAll("dd");
    lines.forEach(([, value], place) => say(values[place], value));
  };

  const showOffenders = async (state) => {
    const select = at("offenders-policy");
    // Until an operator chooses, the policy that refuses most.
    if (!chosenOffenders) {
      const refusals = (policy) => sums(policy.decisions).refused + sums(policy.decisions).trial;
      const worst = state.policies.reduce((best, policy) => (!best || refusals(policy) > refusals(best) ? policy : best), null);
      if (worst) select.value = worst.name;
    }
    const policy = select.value;
    if (!policy) return;
    const told = await ask(query("api/offenders", { policy, most: 20 }));
    if (select.value !== policy) return;
    say(at("offenders-sum"), told.denials ? `${number(told.denials)} denials of about ${number(told.distinct)} ${told.distinct === 1 ? "caller" : "callers"}` : "");
    at("offenders-none").hidden = told.callers.length > 0;
    rows(
      at("offenders"),
      told.callers,
      (row) => `${policy} ${row.caller}`,
      (row, caller) => {
        row.append(callerHeader(policy, caller));
        cells(row, "number");
      },
      (row, caller) => say(row.cells[1], caller.error ? `${number(caller.denials - caller.error)} to ${number(caller.denials)}` : number(caller.denials)),
    );
  };

  // ---- the tick

  const tick = async () => {
    clearTimeout(timer);
    const asked = token;
    try {
      const state = await ask("api/state");
      // Another token by now, or an answer that was overtaken.
      if (token !== asked || (last && last.run === state.run && last.uptime_ms > state.uptime_ms)) return;
      const wasLost = lostSince !== null;
      lostSince = null;
      const connection = at("connection");
      const isAgain = wasLost || (last && last.run !== state.run);
      say(connection, isAgain ? `connected again since ${clock(new Date())}` : connection.textContent || "connected");
      connection.classList.remove("lost");
      at("board").classList.remove("stale");
      if (at("board").hidden) {
        sessionStorage.setItem(TOKEN, token);
        at("login").hidden = true;
        at("board").hidden = false;
        at("leave").hidden = false;
        at("now-title").focus();
        chosenOffenders = false;
        wasFailing = false;
        failedAt = 0;
      }
      const before = last;
      last = state;
      showPolicies(state, before);
      showNow(state, before);
      showTightest(state);
      showResults(state, before);
      showDetails(state);
      await showOffenders(state);
    } catch (error) {
      if (token !== asked) return;
      if (error instanceof Refused) {
        showLogin("The server does not know this token.");
        return;
      }
      if (error instanceof Lost) {
        lostSince ??= new Date();
        if (at("board").hidden) say(at("login-fault"), "The server does not answer. This page goes on asking.");
        say(at("connection"), `no answer since ${clock(lostSince)}`);
        at("connection").classList.add("lost");
        at("board").classList.add("stale");
        document.title = "(!) Tollgate: no answer";
      } else {
        say(at(at("board").hidden ? "login-fault" : "connection"), `The server answers: ${error.message}.`);
      }
    }
    clearTimeout(timer);
    timer = setTimeout(tick, TICK_MS);
  };

  // ---- the switch

  let switching = null;
  const openSwitch = (name) => {
    const policy = last && last.policies.find((one) => one.name === name);
    if (!policy) return;
    switching = policy;
    say(at("switch-title"), `Switch of ${name}`);
    at(`to-${policy.switch}`).checked = true;
    warnOfSwitch();
    at("switch-dialog").showModal();
    at(`to-${policy.switch}`).focus();
  };
  const chosenSwitch = () => document.querySelector('input[name="to"]:checked').value;
  const warnOfSwitch = () => {
    const to = chosenSwitch();
    const isOff = to === "off" && switching.switch !== "off";
    say(at("switch-warning"), isOff ? `Without ${switching.name}, its requests pass without a limit, banned callers too.` : "");
    say(at("switch-apply"), isOff ? "Switch it off" : "Apply");
    at("switch-apply").classList.toggle("danger", isOff);
  };
  for (const radio of document.querySelectorAll('input[name="to"]')) radio.addEventListener("change", warnOfSwitch);
  at("switch-cancel").addEventListener("click", () => at("switch-dialog").close());
  at("switch-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const [policy, to] = [switching.name, chosenSwitch()];
    try {
      const told = await ask("api/switch", { policy, to });
      at("switch-dialog").close();
      result("caller-result", [`Policy ${told.policy} is ${told.switch === "shadow" ? "on trial" : told.switch}.`]);
      await tick();
    } catch (error) {
      if (error instanceof Refused) showLogin("The server does not know this token.");
      else say(at("switch-warning"), `It is not switched: ${error.message}.`);
    }
  });

  // ---- one caller

  const result = (place, lines, isFault, first, then) => {
    const words = lines.map((line, index) => make("p", line, isFault ? "fault" : index === 0 ? "said" : ""));
    at(place).replaceChildren(...(first ? [first] : []), ...words, ...(then ? [then] : []));
  };
  const acting = async (place, act) => {
    try {
      await act();
    } catch (error) {
      if (error instanceof Refused) showLogin("The server does not know this token.");
      else result(place, [`Not done: ${error.message}.`], true);
    }
  };
  const subject = () => {
    if (!at("caller-form").reportValidity()) return null;
    return { policy: at("caller-policy").value, caller: at("caller-key").value.trim() };
  };
  const who = (told) => {
    const line = make("p");
    line.append(make("bdi", named(told), "caller"), ` under ${told.policy}`);
    return line;
  };
  const standing = (told) => {
    const lines = [];
    if (told.blocked) lines.push("It is on a block list, or its tier has a limit of 0.");
    if (told.banned_for_ms !== null) lines.push(`It is banned for ${span(told.banned_for_ms)} more.`);
    else if (told.strikes_until_ban !== null) lines.push(`It is not banned; strikes until a ban: ${number(told.strikes_until_ban)}.`);
    else if (!told.bans) lines.push("This policy has no ban.");
    if (!told.budgets.length && !told.blocked) lines.push("No quota limits it.");
    if (told.switch !== "on") lines.push(`The policy is ${told.switch === "off" ? "switched off" : "on trial"} at this moment.`);
    for (const budget of told.budgets) {
      const left = `${number(budget.remaining)} of ${number(budget.limit)} left`;
      const more = budget.passes ? (budget.reset_after_ms ? `, full again in ${span(budget.reset_after_ms)}` : "") : budget.retry_after_ms === null ? ", and no wait is known" : `, passes again in ${span(budget.retry_after_ms)}`;
      lines.push(`${budget.quota}: ${left}${more}`);
    }
    return lines;
  };
  const inspect = async () => {
    const asked = subject();
    if (!asked) return;
    await acting("caller-result", async () => {
      const told = await ask("api/caller", asked);
      const lines = [told.passes ? "Its next request passes." : "Its next request is refused.", ...standing(told)];
      result("caller-result", lines, false, who(told));
    });
  };
  const change = (operation, words) => async () => {
    const asked = subject();
    if (!asked) return;
    if (operation === "ban") {
      const length = at("ban-length");
      if (!length.reportValidity() || length.value === "") return;
      asked.seconds = Number(length.value) * Number(at("ban-unit").value);
    }
    await acting("caller-result", async () => {
      const told = await ask(`api/${operation}`, asked);
      result("caller-result", [words(told, asked), `In the log this caller is ${told.logged_as}.`], false, who(told));
      await tick();
    });
  };
  at("caller-form").addEventListener("submit", (event) => {
    event.preventDefault();
    inspect();
  });
  at("reset").addEventListener("click", change("reset", () => "Done: its budgets are full, and it is not banned."));
  at("unban").addEventListener("click", change("unban", (told) => (told.was_banned_for_ms === null ? "Done: it was not banned; its strikes are forgotten." : "Done: its ban is over, and its strikes are forgotten.")));
  at("ban").addEventListener(
    "click",
    change("ban", (told, asked) => {
      const is = `banned for ${span(told.banned_for_ms ?? 0)}`;
      return told.was_banned_for_ms > asked.seconds * 1000 ? `It was banned for longer already, and stays ${is}.` : `Done: it is ${is}.`;
    }),
  );

  // ---- lists

  at("offenders-policy").addEventListener("change", () => {
    chosenOffenders = true;
    at("bans").replaceChildren();
    if (last) acting("bans", () => showOffenders(last));
  });
  at("list-bans").addEventListener("click", () =>
    acting("bans", async () => {
      const policy = at("offenders-policy").value;
      const told = await ask(query("api/bans", { policy, most: 100 }));
      const list = make("ul");
      for (const caller of told.callers) {
        const item = make("li");
        item.append(callerButton(policy, caller), `for ${span(caller.banned_for_ms)} more`);
        list.append(item);
      }
      const banned = told.banned === 1 ? "1 caller is banned" : `${number(told.banned)} callers are banned`;
      const more = told.banned > told.callers.length ? `; the ${told.callers.length} with the longest bans:` : "";
      const lines = [`${banned} under ${policy}${more}`];
      if (!told.complete) lines.push("There may be more: not every state could be looked at.");
      result("bans", lines, false, null, told.callers.length ? list : null);
    }),
  );
  at("filter").addEventListener("input", () => {
    if (last) showPolicies(last, null);
  });

  if (token) tick();
  else showLogin("");
})();
