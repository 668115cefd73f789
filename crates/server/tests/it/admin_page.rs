//! The page of the admin in a real browser, worked by keyboard alone, and read as a screen reader reads it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate::{LimiterBuilder, RedisBackend, Switch};
use tollgate_server::{Admin, AdminToken, Gateway};
use tollgate_testkit::keys::{DOWN, ENTER, ESCAPE, SPACE, TAB};
use tollgate_testkit::{Browser, Nginx, Standalone};

use crate::common::File;
use crate::common::http::send;

const TOKEN: &str = "a-token-of-the-operators";

const POLICIES: &str = r#"
client_address = { x-forwarded-for = { networks = ["127.0.0.1"] } }

[forward_auth]
gateway = "nginx"

[[policies]]
name = "search"
quotas = "2/h"
routes = ["/search"]

[[policies]]
name = "login"
quotas = "2/h"
routes = ["/login"]
ban = { after = "60 in 10min for 15min" }

[[policies]]
name = "api"
quotas = ["1000/s", "100000/day"]
routes = ["/api"]
key = { header = "x-api-key" }
"#;

/// A gateway with an admin, which can go away and come back.
struct Steered {
    runtime: Runtime,
    gateway: Arc<Gateway>,
    admin: Admin,
    address: SocketAddr,
    questions: SocketAddr,
    serving: Option<(oneshot::Sender<()>, JoinHandle<std::io::Result<()>>)>,
    _file: File,
}

impl Steered {
    fn start(policies: &str) -> Self {
        Self::with(policies, |builder| builder)
    }

    fn with(policies: &str, finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder) -> Self {
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
        let within = runtime.enter();
        let file = File::toml(policies);
        let admin = Admin::new(AdminToken::new(TOKEN).unwrap());
        let gateway = Gateway::start(file.path(), None, |builder| finish(admin.watch(builder)));
        let gateway = Arc::new(gateway.unwrap());
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let questions = listener.local_addr().unwrap();
        let answering = Arc::clone(&gateway);
        runtime.spawn(async move {
            let never = std::future::pending();
            answering.serve_forward_auth(listener, never).await
        });
        drop(within);
        let mut steered = Self {
            runtime,
            gateway,
            admin,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            questions,
            serving: None,
            _file: file,
        };
        steered.serve();
        steered
    }

    /// Serves the admin, on the address of before if there was one.
    fn serve(&mut self) {
        let listener = self
            .runtime
            .block_on(TcpListener::bind(self.address))
            .unwrap();
        self.address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (serving, admin) = (Arc::clone(&self.gateway), self.admin.clone());
        let end = self.runtime.spawn(async move {
            let stopped = async move { drop(stopped.await) };
            serving.serve_admin(listener, &admin, stopped).await
        });
        self.serving = Some((stop, end));
    }

    /// Stops the admin.
    fn stop(&mut self) {
        let (stop, end) = self.serving.take().unwrap();
        stop.send(()).unwrap();
        self.runtime.block_on(end).unwrap().unwrap();
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The status of the answer to a question about a request.
    fn ask(&self, path: &str, address: &str, key: &str) -> u16 {
        let fields = format!(
            "x-original-method: GET\r\nx-original-uri: {path}\r\nx-forwarded-for: {address}\r\nx-api-key: {key}\r\n"
        );
        let asked = send(self.questions, "GET /_limit", &fields);
        self.runtime.block_on(asked).status
    }

    fn passes(&self, path: &str, address: &str) -> bool {
        self.ask(path, address, "alice") == 204
    }

    /// Asks until the guard is dropped.
    fn traffic(&self) -> Traffic {
        let goes_on = Arc::new(AtomicBool::new(true));
        let (asking, to) = (Arc::clone(&goes_on), self.questions);
        self.runtime.spawn(async move {
            while asking.load(Ordering::Relaxed) {
                for path in ["/api", "/search"] {
                    let fields = format!(
                        "x-original-method: GET\r\nx-original-uri: {path}\r\nx-forwarded-for: 203.0.113.9\r\nx-api-key: alice\r\n"
                    );
                    send(to, "GET /_limit", &fields).await;
                }
            }
        });
        Traffic(goes_on)
    }
}

struct Traffic(Arc<AtomicBool>);

impl Drop for Traffic {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Types the token, with the keyboard alone.
fn sign_in(browser: &Browser) {
    assert_eq!(browser.label(&browser.focused()), "Token");
    browser.press(&format!("{TOKEN}{ENTER}"));
    browser.until("#about", |text| text.contains("up for"));
}

/// The number in a text such as `1,234 /s`.
fn number(text: &str) -> f64 {
    let digits = text.trim_end_matches(" /s").replace(',', "");
    digits.parse().unwrap_or_default()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fails if the browser asked another host for anything, or if the page broke a rule of its own.
fn stayed_at_home(browser: &Browser, at: &Steered) {
    let mut hosts = BTreeSet::new();
    for line in browser.log("performance") {
        let line: Value = serde_json::from_str(&line).unwrap();
        let message = &line["message"];
        if message["method"] == "Network.requestWillBeSent" {
            hosts.insert(
                message["params"]["request"]["url"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    let own = at.url();
    let abroad: Vec<_> = hosts
        .iter()
        .filter(|url| {
            !url.starts_with(&own) && !url.starts_with("data:") && !url.starts_with("chrome://")
        })
        .collect();
    assert!(hosts.contains(&own) && abroad.is_empty(), "{abroad:?}");
    for line in browser.log("browser") {
        assert!(
            !line.contains("Content Security Policy")
                && !line.contains("Uncaught")
                && !line.contains("TypeError"),
            "{line}"
        );
    }
}

#[test]
fn an_operator_signs_in_looks_and_steers_by_keyboard_alone() {
    let steered = Steered::start(POLICIES);
    let browser = Browser::start();
    browser.open(&steered.url());
    let _traffic = steered.traffic();

    // A wrong token is told, and nothing is shown.
    assert_eq!(browser.label(&browser.focused()), "Token");
    browser.press(&format!("not-the-token-of-these{ENTER}"));
    browser.until("#login-fault", |text| {
        text == "The server does not know this token."
    });
    assert_eq!(browser.role(&browser.find("#login-fault")), "alert");
    assert_eq!(browser.text("#policies"), "");
    sign_in(&browser);
    assert_eq!(browser.label(&browser.focused()), "Now");
    // A tab that is loaded again has the token still.
    browser.reload();
    browser.until("#about", |text| text.contains("up for"));

    // Decisions grow: of each kind, and in sum.
    browser.until("#passed", |text| number(text) > 0.0);
    browser.until("#refused", |text| number(text) > 0.0);
    let row = browser.until("#policies tbody", |text| {
        text.contains("login") && text.contains("2/h")
    });
    assert!(row.contains("1000/s; 100000/day"), "{row}");
    let denied = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("denied"));
        line.and_then(|line| line.rsplit(' ').next())
            .map_or(0.0, number)
    };
    let before = denied(&browser.until("#results tbody", |text| denied(text) > 0.0));
    browser.until("#results tbody", |text| denied(text) > before);
    browser.until("#health", |text| text == "Memory answers");
    browser.until("#tightest tbody", |text| {
        text.contains("203.0.113.9") && text.contains("0 of 2")
    });
    browser.until("#offenders tbody", |text| text.contains("203.0.113.9"));

    // To shadow, and the limiter obeys.
    assert!(!steered.passes("/search", "203.0.113.9"));
    browser.tab_to("Switch of search: on");
    browser.press(&ENTER.to_string());
    assert_eq!(browser.label(&browser.focused()), "On");
    // Escape changes nothing, and the focus is back where it was.
    browser.press(&ESCAPE.to_string());
    assert_eq!(browser.label(&browser.focused()), "Switch of search: on");
    browser.press(&format!("{ENTER}{DOWN}{ENTER}"));
    browser.until("#policies .switch", |text| text == "Shadow");
    assert!(steered.passes("/search", "203.0.113.9"));
    browser.until("#trial", |text| number(text) > 0.0);
    browser.until("#policies tbody", |text| text.contains("on trial"));
    // The row has been brought up to date under the focus.
    assert_eq!(
        browser.label(&browser.focused()),
        "Switch of search: shadow"
    );

    // Off needs a second look: the warning is told, and the button says what it does.
    browser.press(&format!("{ENTER}{DOWN}"));
    browser.until("#switch-warning", |text| {
        text.contains("pass without a limit, banned callers too")
    });
    assert_eq!(browser.role(&browser.find("#switch-warning")), "alert");
    browser.tab_to("Switch it off");
    browser.press(&SPACE.to_string());
    browser.until("#policies .switch", |text| text == "Off");
    browser.until("#policies tbody", |text| !text.contains("on trial"));
    browser.press(&format!("{ENTER}{DOWN}{ENTER}"));
    browser.until("#policies .switch", |text| text == "On");
    assert!(!steered.passes("/search", "203.0.113.9"));

    // An offender is inspected from its row, reset, banned and let in again.
    browser.press(&TAB.to_string());
    browser.tab_to("203.0.113.9");
    browser.press(&ENTER.to_string());
    browser.until("#caller-result", |text| {
        text.contains("2/h: 0 of 2 left, passes again in")
    });
    assert_eq!(
        browser.script("return document.activeElement.id"),
        "caller-result"
    );
    let steer = |button: &str, done: &str| {
        browser.tab_backwards_to("Caller");
        browser.tab_to(button);
        browser.press(&ENTER.to_string());
        browser.until("#caller-result", |text| text.contains(done));
    };
    // Another policy, and a caller that the traffic does not charge.
    let select = browser.tab_backwards_to("Policy");
    assert_eq!(browser.role(&select), "combobox");
    browser.press("login");
    browser.press(&TAB.to_string());
    browser.press("203.0.113.20");
    for _ in 0..2 {
        assert!(steered.passes("/login", "203.0.113.20"));
    }
    assert!(!steered.passes("/login", "203.0.113.20"));
    browser.press(&ENTER.to_string());
    browser.until("#caller-result", |text| {
        text.contains("Its next request is refused.")
    });
    steer("Reset", "Done: its budgets are full");
    assert!(steered.passes("/login", "203.0.113.20"));
    steer("Ban", "Done: it is banned for 1");
    assert!(!steered.passes("/login", "203.0.113.20"));
    steer("Inspect", "It is banned for 1");
    steer("Unban", "Done: its ban is over");
    assert!(steered.passes("/login", "203.0.113.20"));
    browser.until("#caller-result", |text| {
        text.contains("In the log this caller is")
    });

    // Signing out leaves nothing.
    browser.tab_backwards_to("Sign out");
    browser.press(&ENTER.to_string());
    assert_eq!(browser.label(&browser.focused()), "Token");
    assert_eq!(browser.script("return sessionStorage.length"), 0);
    let rest = browser.script("return document.getElementById('board').textContent");
    assert!(!rest.as_str().unwrap().contains("203.0.113"), "{rest}");
    stayed_at_home(&browser, &steered);
}

#[test]
fn hostile_identities_are_shown_as_they_are_and_run_nothing() {
    let steered = Steered::start(&POLICIES.replace("1000/s", "1/h"));
    let hostile = [
        "<img src=x onerror=window.taken=1>",
        "</script><script>window.taken=1</script>",
        "\"><svg onload=window.taken=1>",
        "' onmouseover='window.taken=1",
        "javascript:window.taken=1",
        "{{constructor.constructor('window.taken=1')()}}",
    ];
    let limiter = steered.gateway.limiter();
    let unusual = [
        "a\u{202e}gpj.exe",
        "line\nbreak\u{2028}and\0more",
        "\u{200b}",
        " blanks  ",
    ];
    let long = "w".repeat(120);
    let all: Vec<&str> = hostile
        .iter()
        .chain(&unusual)
        .copied()
        .chain([&*long])
        .collect();
    steered.runtime.block_on(async {
        for key in &all {
            for _ in 0..3 {
                drop(limiter.check("api", *key).await.unwrap());
            }
        }
        drop(limiter.check("api", "x".repeat(10_000)).await.unwrap());
        drop(limiter.check("api", "x".repeat(10_000)).await.unwrap());
    });
    let browser = Browser::start();
    browser.open(&steered.url());
    sign_in(&browser);

    let shown = || -> BTreeSet<String> {
        let script = "return Array.from(document.querySelectorAll('#offenders bdi, #tightest bdi'), one => one.textContent)";
        let shown = browser.script(script);
        let shown = shown.as_array().unwrap().iter();
        shown
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    };
    until("all callers are there", || shown().len() > all.len());
    let shown = shown();
    for key in hostile {
        assert!(shown.contains(key), "{key}: {shown:?}");
    }
    for key in [
        "a\\u{202e}gpj.exe",
        "line\\u{a}break\\u{2028}and\\u{0}more",
        "\\u{200b}",
        // Blanks around the value of a header are none of it.
        "blanks",
        &long,
    ] {
        assert!(shown.contains(key), "{key}: {shown:?}");
    }
    // Each is a button with that name, and inspecting it finds the same caller.
    let buttons = browser.find_all("#offenders button");
    let names: BTreeSet<_> = buttons.iter().map(|button| browser.label(button)).collect();
    assert!(names.contains(hostile[0]), "{names:?}");
    for (place, _) in buttons.iter().enumerate() {
        let script = format!("document.querySelectorAll('#offenders button')[{place}].click()");
        let name = browser.script(&format!(
            "return document.querySelectorAll('#offenders bdi')[{place}].textContent"
        ));
        browser.script(&script);
        until("the caller is shown", || {
            browser.script("return document.querySelector('#caller-result bdi')?.textContent")
                == name
        });
        browser.until("#caller-result", |text| text.contains("0 of 1 left"));
    }
    // An operator may type anything, too.
    for text in hostile.into_iter().chain([&*"y".repeat(10_000)]) {
        let text = json!(text);
        browser.script(&format!("document.getElementById('caller-key').value = {text}; document.getElementById('caller-form').requestSubmit()"));
        browser.until("#caller-result", |text| text.contains("Its next request"));
    }
    browser.script("document.getElementById('caller-key').value = 'h' + '0'.repeat(32); document.getElementById('caller-form').requestSubmit()");
    browser.until("#caller-result", |text| {
        text.contains("Not done: caller: this is the hash of an identity")
    });

    assert_eq!(browser.script("return window.taken ?? null"), Value::Null);
    let made = browser.script("return document.querySelectorAll('main img, main script, main svg:not(#course), main iframe').length");
    assert_eq!(made, 0);
    // Nothing is wider than the window.
    let wide = browser.script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth",
    );
    assert_eq!(wide, 0);
    stayed_at_home(&browser, &steered);
}

#[test]
fn an_outage_of_the_backend_and_one_of_the_server_are_told_and_end_by_themselves() {
    let mut redis = Standalone::start();
    let url = redis.url();
    let mut steered = Steered::with(POLICIES, |builder| {
        // A busy machine is not an outage.
        let deadline = Duration::from_secs(20);
        let redis = RedisBackend::builder(&url)
            .deadline(deadline)
            .connect_deadline(deadline);
        builder.backend(redis.start().unwrap())
    });
    let _traffic = steered.traffic();
    let browser = Browser::start();
    browser.open(&steered.url());
    sign_in(&browser);
    browser.until("#health", |text| text == "Redis answers");

    redis.kill();
    browser.until("#health", |text| text == "Redis fails");
    let alarm = browser.until("#alarm", |text| text.contains("The backend fails"));
    assert!(alarm.contains(&redis.port().to_string()), "{alarm}");
    assert_eq!(browser.role(&browser.find("#alarm")), "status");
    let title = browser.script("return document.title");
    assert_eq!(title, "(!) Tollgate: the backend fails");
    // A change that cannot be made is told, with the reason.
    browser.script("document.getElementById('caller-key').value = '203.0.113.20'; document.getElementById('reset').click()");
    browser.until("#caller-result", |text| text.starts_with("Not done: "));
    redis.restart();
    browser.until("#health", |text| text == "Redis answers");
    browser.until("#alarm", |text| {
        text.starts_with("The backend answers again since")
    });

    steered.stop();
    let lost = browser.until("#connection", |text| text.starts_with("no answer since"));
    assert_eq!(browser.role(&browser.find("#connection")), "status");
    // The time is that of the beginning.
    let passed = browser.script("return performance.now()").as_f64().unwrap();
    until("another try has failed", || {
        browser.script("return performance.now()").as_f64().unwrap() > passed + 2_500.0
    });
    assert_eq!(browser.text("#connection"), lost);
    steered.serve();
    browser.until("#connection", |text| {
        text.starts_with("connected again since")
    });
    let _more = steered.traffic();
    browser.until("#passed", |text| number(text) > 0.0);

    // Another server in its place, which has another token.
    steered.stop();
    steered.admin = Admin::new(AdminToken::new("another-token-of-operators").unwrap());
    steered.serve();
    browser.until("#login-fault", |text| {
        text == "The server does not know this token."
    });
    assert_eq!(browser.label(&browser.focused()), "Token");
}

#[test]
fn every_control_has_a_role_and_a_name_and_the_page_has_its_landmarks() {
    let many: String = (0..200)
        .map(|n| format!("\n[[policies]]\nname = \"tenant-{n}\"\nquotas = \"{}/s\"\nroutes = [\"/tenant/{n}\"]\n", n + 1))
        .collect();
    let steered = Steered::start(&format!("{POLICIES}{many}"));
    assert!(steered.passes("/login", "203.0.113.9"));
    let browser = Browser::start();
    browser.open(&steered.url());
    sign_in(&browser);
    browser.until("#tightest tbody", |text| text.contains("203.0.113.9"));

    let roles = |selector: &str| -> Vec<(String, String)> {
        let found = browser.find_all(selector);
        found
            .iter()
            .map(|one| (browser.role(one), browser.label(one)))
            .collect()
    };
    let row = |role: &str, name: &str| (role.to_owned(), name.to_owned());
    assert_eq!(roles("h1"), [row("heading", "Tollgate")]);
    assert_eq!(roles("main"), [row("main", "")]);
    assert_eq!(roles("header"), [row("banner", "")]);
    assert_eq!(
        roles("main section"),
        [
            "Now",
            "Policies",
            "A caller",
            "Tightest budgets",
            "Offenders",
            "Decisions by result",
            "Backend and gateways"
        ]
        .map(|name| row("region", name))
    );
    assert_eq!(
        roles("table"),
        [
            row("table", "Decisions per second by policy, and its switch"),
            row(
                "table",
                "Budgets with the least left, as this server saw them last"
            ),
            row("table", "Callers that were denied most since the start"),
            row("table", "Decisions of all policies by result"),
        ]
    );
    assert_eq!(
        roles("#caller-form input, #caller-form select, #caller-form button"),
        [
            row("combobox", "Policy"),
            row("textbox", "Caller"),
            row("button", "Inspect"),
            row("button", "Reset"),
            row("button", "Unban"),
            row("spinbutton", "For"),
            row("combobox", "Unit"),
            row("button", "Ban"),
        ]
    );
    assert_eq!(roles("#filter"), [row("searchbox", "Show policies with")]);
    assert_eq!(
        roles("#policies thead th")
            .iter()
            .filter(|(role, _)| role == "columnheader")
            .count(),
        5
    );
    assert_eq!(roles("#policies tbody th")[0].0, "rowheader");
    // Everything that can be reached has a name, and nothing is reached twice.
    let script = "return Array.from(document.querySelectorAll('a, button, input, select, [tabindex=\"0\"]')).filter(one => one.checkVisibility()).length";
    let reachable = browser.script(script).as_u64().unwrap();
    assert!(reachable > 200, "{reachable}");
    let unnamed = roles(
        "#filter, #offenders-policy, #list-bans, #leave, .scroll, #tightest button, #tightest meter",
    );
    assert!(
        unnamed
            .iter()
            .all(|(role, name)| !role.is_empty() && !name.is_empty()),
        "{unnamed:?}"
    );

    // 203 policies break nothing, and the filter finds one by keyboard.
    assert_eq!(browser.text("#filter-count"), "203 in all");
    browser.script("document.activeElement.blur()");
    browser.tab_to("Show policies with");
    browser.press("tenant-19");
    browser.until("#filter-count", |text| text == "11 of 203");
    for width in [1280, 700, 360] {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", &size);
        let wide = browser.script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth",
        );
        assert_eq!(wide, 0, "at {width}");
    }
    // Text stands out from its ground by 4.5 to 1 in both schemes.
    for scheme in ["light", "dark"] {
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.call("Emulation.setEmulatedMedia", &media);
        let faint = browser.script(CONTRAST);
        assert_eq!(faint, json!([]), "{scheme}");
    }
    stayed_at_home(&browser, &steered);
}

/// The texts that are fainter than they may be, each with its contrast.
const CONTRAST: &str = r"
    const read = (text) => text.match(/[\d.]+/g).map(Number);
    const light = (rgb) => {
        const [r, g, b] = rgb.map((part) => { const c = part / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (one) => {
        for (let at = one; at; at = at.parentElement) {
            const color = read(getComputedStyle(at).backgroundColor);
            if (color.length === 3 || color[3] > 0) return color.slice(0, 3);
        }
        return [255, 255, 255];
    };
    const faint = [];
    for (const one of document.querySelectorAll('body *')) {
        const hasText = Array.from(one.childNodes).some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!hasText || !one.checkVisibility() || one.tagName === 'OPTION') continue;
        const [over, under] = [light(read(getComputedStyle(one).color).slice(0, 3)), light(ground(one))];
        const contrast = (Math.max(over, under) + 0.05) / (Math.min(over, under) + 0.05);
        if (contrast < 4.5) faint.push(`${one.tagName} ${one.className} ${one.textContent.slice(0, 20)} ${contrast.toFixed(2)}`);
    }
    return faint;
";

#[test]
fn the_page_works_below_a_path_of_a_proxy() {
    let steered = Steered::start(POLICIES);
    let directives = format!(
        "location /operators/tollgate/ {{ proxy_pass http://{}/; }}",
        steered.address
    );
    let nginx = Nginx::start("", &directives);
    let browser = Browser::start();
    // Without the slash at its end nginx leads there.
    browser.open(&format!("http://{}/operators/tollgate", nginx.address()));
    sign_in(&browser);
    assert!(steered.passes("/search", "203.0.113.20"));

    browser.until("#policies tbody", |text| text.contains("search"));
    browser.until("#results tbody", |text| text.contains("allowed"));
    browser.until("#details", |text| text.contains("Last decision"));
    browser.tab_to("Switch of search: on");
    browser.press(&format!("{ENTER}{DOWN}{ENTER}"));
    browser.until("#policies .switch", |text| text == "Shadow");

    assert_eq!(
        steered.gateway.limiter().switch_of("search"),
        Switch::Shadow
    );
    let faults = browser.log("browser");
    assert!(faults.is_empty(), "{faults:?}");
}
