//! The pictures of `simulate` and `suggest`, opened by a real browser without a network, and with callers that have hostile names.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::program::tollgate;

/// Names of callers that want to be more than names.
const HOSTILE: [&str; 6] = [
    "<script>document.title='taken'</script>",
    "\\\"><img src=x onerror=document.title='taken'>",
    "</td></table></svg><iframe src=file:///etc/passwd>",
    "a&lt;b&amp;c",
    "'+alert(1)+'",
    "-->]]><style>*{display:none}</style>",
];

const LIMITS: &str =
    r#"policies = [{ name = "api", quotas = "1/s burst 3", key = { header = "x-api-key" } }]"#;

/// A log in which each caller asks for more than it may.
fn log() -> String {
    let mut log = String::new();
    for request in 0..600_u64 {
        let time_us = 1_795_478_400_000_000 + request * 200_000;
        let key = match usize::try_from(request / 10 % 10).unwrap() {
            place @ 0..6 => HOSTILE[place],
            _ => "plain",
        };
        let target = "/search/%3Cb%3E?q='x'";
        writeln!(
            log,
            r#"{{"time_us":{time_us},"address":"192.0.2.1","method":"GET","target":"{target}","http_x_api_key":"{key}"}}"#
        )
        .unwrap();
    }
    log
}

/// The page as a browser has it, after it has read it.
fn rendered(page: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    let browser = std::env::var("TOLLGATE_BROWSER").unwrap_or_else(|_| "chromium".to_owned());
    let mut command = Command::new(&browser);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", folder.path().display()))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null());
    let output = command.output().unwrap_or_else(|error| {
        panic!(
            "{browser}: {error}; a browser is needed to look at pictures: tests/install.sh installs chromium (on Debian: apt-get install chromium), or name another one in TOLLGATE_BROWSER"
        )
    });
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The folder with a log, and the pictures of one run.
fn pictures(arguments: &[&str]) -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("app.log"), log()).unwrap();
    fs::write(at("limits.toml"), LIMITS).unwrap();
    fs::write(at("old.toml"), LIMITS.replace("burst 3", "burst 9")).unwrap();
    let all = [arguments, &["--html", "report.html", "--plot", "out.svg"]].concat();
    let ran = tollgate(folder.path(), &all);
    let _words = ran.words();
    let (page, plot) = (rendered(&at("report.html")), rendered(&at("out.svg")));
    (folder, page, plot)
}

/// Checks that the page is whole, and that it is nothing but text and figures.
fn is_whole(folder: &Path, page: &str, plot: &str, charts: &[&str]) {
    for (name, shown) in [("report.html", page), ("out.svg", plot)] {
        for chart in charts {
            assert!(
                shown.contains(&format!(">{chart}")),
                "{name}: {chart}: {shown}"
            );
        }
        for forbidden in [
            "<script",
            "<img",
            "<iframe",
            "onerror=\"",
            "parsererror",
            "NaN",
            "inf,",
        ] {
            assert!(
                !shown.contains(forbidden),
                "{name} has {forbidden}: {shown}"
            );
        }
        // It fetches nothing, wherever it lies.
        let written = fs::read_to_string(folder.join(name)).unwrap();
        let written = written.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for fetches in ["http:", "https:", "url(", "@import", "<link"] {
            assert!(!written.contains(fetches), "{name} has {fetches}");
        }
    }
    assert_eq!(page.matches("<svg").count(), charts.len(), "{page}");
    assert_eq!(page.matches("</svg>").count(), charts.len());
    assert!(!page.contains("<title>taken</title>"), "{page}");
    // The browser has read the names as they are, and writes them with the three characters that it has to.
    for name in HOSTILE {
        let name = name.replace("\\\"", "\"").replace('&', "&amp;");
        let name = name.replace('<', "&lt;").replace('>', "&gt;");
        assert!(
            page.contains(&format!("<bdi>{name}</bdi>")),
            "{name}: {page}"
        );
    }
}

#[test]
fn a_browser_shows_the_page_about_a_replay_with_all_its_figures() {
    let (folder, page, plot) = pictures(&[
        "simulate",
        "app.log",
        "limits.toml",
        "--against",
        "old.toml",
    ]);

    let charts = [
        "refused share over time",
        "requests over time",
        "distribution over callers",
    ];
    is_whole(folder.path(), &page, &plot, &charts);
    for words in [
        "600 requests of 1 address",
        "<h2>Callers that are refused most</h2>",
        "<h2>Paths that are refused most</h2>",
        "<h2>About the log</h2>",
        ">these limits</text>",
        "2026-11-24 00:00",
        "<meter",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn a_browser_shows_the_page_about_suggested_limits_with_all_its_figures() {
    let (folder, page, plot) = pictures(&["suggest", "app.log", "--key", "header:x-api-key"]);

    let charts = [
        "the frontier: for each rate the least burst",
        "distribution over callers at ",
        "refused share over time",
    ];
    is_whole(folder.path(), &page, &plot, &charts);
    for words in [
        "<h2>Three quotas to choose from</h2>",
        "the largest bursts at",
        ">burst</text>",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn a_name_moves_no_cursor_of_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = r"\u001b]0;taken\u0007\u001b[2J\u202ename\nroot";
    fs::write(
        folder.path().join("app.log"),
        log().replace("plain", hostile),
    )
    .unwrap();

    let suggested = tollgate(
        folder.path(),
        &["suggest", "app.log", "--key", "header:x-api-key"],
    );

    let words = suggested.words();
    assert!(
        words.contains("]0;taken") && words.contains("name\u{fffd}root"),
        "{words}"
    );
    assert!(!words.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{words}");
}

#[test]
fn a_picture_that_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("app.log"), log()).unwrap();

    for option in ["--plot", "--html"] {
        let arguments = ["suggest", "app.log", option, "nowhere/out"];
        let ran = tollgate(
            folder.path(),
            &[&arguments[..], &["--key", "header:x-api-key"]].concat(),
        );
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_eq!(ran.err, "error: nowhere/out: there is no folder nowhere\n");
    }
}

/// The log does not exist, and is not looked for: a page that cannot be written is told before hours of reading.
#[test]
fn files_that_cannot_be_written_are_told_before_the_log_is_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("limits.toml"), LIMITS).unwrap();
    for option in ["--plot", "--html", "--decisions"] {
        let ran = tollgate(
            folder.path(),
            &["simulate", "no.log", "limits.toml", option, "nowhere/out"],
        );
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_eq!(ran.err, "error: nowhere/out: there is no folder nowhere\n");
        // A file that could be written is not left behind without content.
        let ran = tollgate(folder.path(), &["suggest", "no.log", "--html", "out.html"]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(!folder.path().join("out.html").exists());
    }
}

#[test]
fn a_file_that_is_read_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("app.log"), log()).unwrap();
    fs::write(folder.path().join("limits.toml"), LIMITS).unwrap();
    fs::write(folder.path().join("old.toml"), LIMITS).unwrap();

    for (option, file) in [
        ("--decisions", "app.log"),
        ("--html", "./limits.toml"),
        ("--plot", "old.toml"),
    ] {
        let before = fs::read(folder.path().join(file)).unwrap();
        let arguments = [
            "simulate",
            "app.log",
            "limits.toml",
            "--against",
            "old.toml",
        ];
        let ran = tollgate(folder.path(), &[&arguments[..], &[option, file]].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        let said = format!("error: {file} is read, and would be overwritten; name another file\n");
        assert_eq!(ran.err, said);
        assert_eq!(fs::read(folder.path().join(file)).unwrap(), before);
    }
}
