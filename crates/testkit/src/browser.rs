//! A real browser without a screen, driven by WebDriver as a user with a keyboard and a screen reader would have it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::standalone::folder;
use crate::web_server::WebServer;

/// The time that a page may take for what is expected of it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The name by which WebDriver refers to elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A Chromium of its own.
#[derive(Debug)]
pub struct Browser {
    driver: WebServer,
    session: String,
    /// The profile. It is removed after the browser has ended.
    _profile: TempDir,
}

/// An element of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element(String);

/// Keys by their names, as WebDriver encodes them.
pub mod keys {
    /// To the next control.
    pub const TAB: char = '\u{e004}';
    /// Presses a button, and sends a form.
    pub const ENTER: char = '\u{e007}';
    /// Leaves a dialog.
    pub const ESCAPE: char = '\u{e00c}';
    /// To the next one of several.
    pub const DOWN: char = '\u{e015}';
    /// Presses a button.
    pub const SPACE: char = '\u{e00d}';
    /// Held with the key after it.
    pub const SHIFT: char = '\u{e008}';
}

impl Browser {
    /// Starts a browser without any page.
    ///
    /// # Panics
    ///
    /// If there is no browser or no driver to start. The message says what to install.
    #[must_use]
    pub fn start() -> Self {
        let install = "there is no `chromedriver`, which drives a browser: `apt-get install chromium chromium-driver`";
        let driver = WebServer::start(install, |folder, address| {
            let mut command = Command::new("chromedriver");
            command
                .arg(format!("--port={}", address.port()))
                // The browser keeps files beside its profile.
                .env("HOME", folder)
                .env("XDG_CONFIG_HOME", folder)
                .env("XDG_CACHE_HOME", folder);
            command
        });
        let profile = folder();
        let mut options = json!({ "args": [
            "headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "no-first-run", "disable-background-networking",
            "disable-component-update", "disable-sync", "window-size=1280,1600", "remote-debugging-pipe",
            format!("user-data-dir={}", profile.path().display()),
        ] });
        if let Ok(browser) = std::env::var("TOLLGATE_BROWSER") {
            options["binary"] = browser.into();
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let session = exchange(driver.address(), "POST", "/session", &wanted);
        let session = session["sessionId"].as_str().expect("a session");
        Self {
            session: session.to_owned(),
            driver,
            _profile: profile,
        }
    }

    /// Opens a page.
    pub fn open(&self, url: &str) {
        self.post("url", &json!({ "url": url }));
    }

    /// Loads the page again.
    pub fn reload(&self) {
        self.post("refresh", &json!({}));
    }

    /// Presses these keys one after the other, on whatever has the focus.
    pub fn press(&self, keys: &str) {
        let presses = keys.chars().flat_map(|key| {
            let key = key.to_string();
            [
                json!({ "type": "keyDown", "value": key }),
                json!({ "type": "keyUp", "value": key }),
            ]
        });
        self.act(&presses.collect::<Vec<_>>());
    }

    fn act(&self, actions: &[Value]) {
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.post("actions", &json!({ "actions": [keyboard] }));
    }

    /// Presses Tab until the control with this name has the focus.
    ///
    /// # Panics
    ///
    /// If none of the next 100 has it.
    pub fn tab_to(&self, name: &str) -> Element {
        self.tab(name, || self.press(&keys::TAB.to_string()))
    }

    /// Presses Shift and Tab until the control with this name has the focus.
    ///
    /// # Panics
    ///
    /// If none of the 100 before has it.
    pub fn tab_backwards_to(&self, name: &str) -> Element {
        self.tab(name, || {
            let key = |kind: &str, key: char| json!({ "type": kind, "value": key.to_string() });
            self.act(&[
                key("keyDown", keys::SHIFT),
                key("keyDown", keys::TAB),
                key("keyUp", keys::TAB),
                key("keyUp", keys::SHIFT),
            ]);
        })
    }

    fn tab(&self, name: &str, on: impl Fn()) -> Element {
        let mut passed = Vec::new();
        for _ in 0..100 {
            on();
            let focused = self.focused();
            let label = self.label(&focused);
            if label == name {
                return focused;
            }
            passed.push(label);
        }
        panic!("no control is named {name:?} among {passed:?}");
    }

    /// The element with the focus.
    #[must_use]
    pub fn focused(&self) -> Element {
        element(&self.get("element/active"))
    }

    /// The first element that a selector of CSS finds.
    #[must_use]
    pub fn find(&self, selector: &str) -> Element {
        let wanted = json!({ "using": "css selector", "value": selector });
        element(&self.post("element", &wanted))
    }

    /// All elements that a selector of CSS finds.
    #[must_use]
    pub fn find_all(&self, selector: &str) -> Vec<Element> {
        let wanted = json!({ "using": "css selector", "value": selector });
        let found = self.post("elements", &wanted);
        found
            .as_array()
            .into_iter()
            .flatten()
            .map(element)
            .collect()
    }

    /// The text of the first element that a selector finds, as it is shown.
    #[must_use]
    pub fn text(&self, selector: &str) -> String {
        let Element(id) = self.find(selector);
        text(&self.get(&format!("element/{id}/text")))
    }

    /// The role that a screen reader tells.
    #[must_use]
    pub fn role(&self, Element(id): &Element) -> String {
        text(&self.get(&format!("element/{id}/computedrole")))
    }

    /// The name that a screen reader tells.
    #[must_use]
    pub fn label(&self, Element(id): &Element) -> String {
        text(&self.get(&format!("element/{id}/computedlabel")))
    }

    /// The value of a script, which is the body of a function.
    pub fn script(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The lines of a log, `browser` or `performance`, since the last call.
    #[must_use]
    pub fn log(&self, kind: &str) -> Vec<String> {
        let lines = self.post("se/log", &json!({ "type": kind }));
        let lines = lines.as_array().into_iter().flatten();
        lines.map(|line| text(&line["message"])).collect()
    }

    /// A picture of the page as it is now, a PNG in base64.
    #[must_use]
    pub fn picture(&self) -> String {
        text(&self.get("screenshot"))
    }

    /// Calls the browser's own protocol.
    pub fn call(&self, command: &str, parameters: &Value) -> Value {
        let wanted = json!({ "cmd": command, "params": parameters });
        self.post("goog/cdp/execute", &wanted)
    }

    /// Waits until the text of the first element that a selector finds is as it should be.
    ///
    /// # Panics
    ///
    /// If it is not within 30 seconds.
    pub fn until(&self, selector: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let text = self.text(selector);
            if is_so(&text) {
                return text;
            }
            assert!(begin.elapsed() < PATIENCE, "{selector} says {text:?}");
            sleep(Duration::from_millis(20));
        }
    }

    fn get(&self, path: &str) -> Value {
        let path = format!("/session/{}/{path}", self.session);
        exchange(self.driver.address(), "GET", &path, &Value::Null)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{path}", self.session);
        exchange(self.driver.address(), "POST", &path, body)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser. It is killed right after.
        let path = format!("/session/{}", self.session);
        let _ended = try_exchange(self.driver.address(), "DELETE", &path, &Value::Null);
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn element(value: &Value) -> Element {
    Element(text(&value[ELEMENT]))
}

fn exchange(driver: SocketAddr, method: &str, path: &str, body: &Value) -> Value {
    match try_exchange(driver, method, path, body) {
        Ok(value) if value["error"].is_string() && value["stacktrace"].is_string() => {
            panic!("{method} {path} {body}: {}", value["message"])
        }
        Ok(value) => value,
        Err(error) => panic!("{method} {path}: the driver does not answer: {error}"),
    }
}

fn try_exchange(
    driver: SocketAddr,
    method: &str,
    path: &str,
    body: &Value,
) -> std::io::Result<Value> {
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let mut connection = TcpStream::connect(driver)?;
    connection.set_read_timeout(Some(PATIENCE * 2))?;
    let length = body.len();
    write!(
        connection,
        "{method} {path} HTTP/1.1\r\nhost: {driver}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )?;
    // The driver does not close.
    let mut answer = BufReader::new(connection);
    let mut length = 0;
    let mut line = String::new();
    while answer.read_line(&mut line)? > 2 {
        let field = line.trim_end().to_ascii_lowercase();
        if let Some(stated) = field.strip_prefix("content-length:") {
            length = stated.trim().parse().unwrap_or_default();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    answer.read_exact(&mut body)?;
    let mut body: Value = serde_json::from_slice(&body)?;
    Ok(body["value"].take())
}
